"""The `slaq` command: finds the verb, and turns errors into one sentence and an exit status."""

import os
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from slaq.cli.display.say import say
from slaq.core.errors import SlaqError, UnknownNameError, UnreachableError
from slaq.core.visible import visible

#: Each verb with its module, which exports `command`, and its line in `slaq --help`. The line is repeated
#: here, so that help and completion import no verb and therefore no NumPy.
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("slaq.cli.verbs.demo", "See slaq and fair sharing train the same jobs, side by side."),
    "run": ("slaq.cli.verbs.run", "Train the jobs in a file on this machine's cores."),
    "simulate": ("slaq.cli.verbs.simulate", "Run a workload through a policy on a virtual clock."),
    "forecast": ("slaq.cli.verbs.forecast", "Predict the next losses of a curve, with intervals."),
    "detect": ("slaq.cli.verbs.detect", "Show which losses slaq finds in what a script prints or writes."),
    "workload": ("slaq.cli.verbs.workload", "Generate, inspect and check workload files."),
    "bench": ("slaq.cli.verbs.bench", "Measure how fast the scheduler decides."),
    "serve": ("slaq.cli.verbs.serve", "Run the service that others submit to."),
    "submit": ("slaq.cli.verbs.submit", "Submit a command, a program or a file of jobs to the service."),
    "ls": ("slaq.cli.verbs.ls", "List jobs."),
    "best": ("slaq.cli.verbs.best", "Rank the jobs of a group by their best loss."),
    "show": ("slaq.cli.verbs.show", "Show everything about one job."),
    "top": ("slaq.cli.verbs.top", "Watch and control jobs on a full screen."),
    "logs": ("slaq.cli.verbs.logs", "Print what a job has printed."),
    "wait": ("slaq.cli.verbs.wait", "Wait for jobs to end, or to reach a share of their reduction."),
    "pause": ("slaq.cli.verbs.pause", "Stop jobs in place until they are resumed."),
    "resume": ("slaq.cli.verbs.resume", "Continue paused jobs."),
    "cancel": ("slaq.cli.verbs.cancel", "End jobs."),
    "weight": ("slaq.cli.verbs.weight", "Change the weight of a job."),
    "why": ("slaq.cli.verbs.why", "Explain why a job holds its cores."),
    "whatif": ("slaq.cli.verbs.whatif", "Simulate the present jobs under another policy or capacity."),
    "report": ("slaq.cli.verbs.report", "Write an HTML page about the jobs of the service."),
    "export": ("slaq.cli.verbs.export", "Write the losses and parameters of jobs as CSV or Parquet."),
    "cluster": ("slaq.cli.verbs.cluster", "Show the state of the service, or change its policy."),
    "users": ("slaq.cli.verbs.users", "List users, and set their weights and limits."),
    "token": ("slaq.cli.verbs.token", "Create and revoke tokens for access over TCP."),
    "prune": ("slaq.cli.verbs.prune", "Remove jobs that ended long ago."),
    "backup": ("slaq.cli.verbs.backup", "Copy the database of the running service."),
    "completion": ("slaq.cli.verbs.completion", "Print the completion script for your shell."),
}

# A shell reports 128 + the signal's number for a program that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
PIPE_CLOSED = 141


class Failure(click.ClickException):
    """The one sentence that a user sees when a verb fails."""

    @override
    def show(self, file: Any = None) -> None:
        say(f"slaq: {self.message}", file=file, err=True)


class Unreachable(Failure):
    """No service answers; exit status 3."""

    exit_code = 3


class VerbGroup(click.Group):
    """A click group that imports a verb only when that verb is run."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _ = VERBS[cmd_name]
        command = import_module(module).command
        assert isinstance(command, click.Command), f"{module}.command is not a click command"
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            raise click.UsageError(str(UnknownNameError("verb", args[0], VERBS)), ctx)
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [
            CompletionItem(verb, help=line)
            for verb, (_, line) in VERBS.items()
            if verb.startswith(incomplete)
        ]
        # Skips click.Group, which would import every verb to ask whether the verb is hidden.
        return verbs + super(click.Group, self).shell_complete(ctx, incomplete)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, because a closed pipe is caught below
        except click.ClickException as error:
            error.message = visible(error.message, lines=True)  # type: ignore[misc]
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(PIPE_CLOSED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params["debug"]:
                say(traceback.format_exc(), err=True, nl=False)
                ctx.exit(1)
            _fail(error)
        return result


def _fail(error: Exception) -> NoReturn:
    if isinstance(error, SlaqError):
        raise (Unreachable if isinstance(error, UnreachableError) else Failure)(str(error)) from error
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise Failure(f"{where}{error.strerror}") from error
    raise Failure(
        f"unexpected {type(error).__name__}: {error} (a defect in slaq; `slaq --debug ...` shows the traceback)"
    ) from error


def _silence_stdout() -> None:
    # Python flushes stdout again at exit, and would then report the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slaq", prog_name="slaq", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Give capacity to the training jobs whose loss will fall the most."""
