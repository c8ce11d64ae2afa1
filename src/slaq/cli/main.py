"""The `slaq` command itself: finds the verb, and turns failures into one sentence and an exit status."""

import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from slaq.core.errors import SlaqError, UnknownNameError, UnreachableError

#: Each verb with its module, which exports `command`, and its line in `slaq --help`. The line stands
#: here and not only in the module, so that help and completion import no verb, hence no NumPy.
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("slaq.cli.demo", "See slaq and fair sharing train the same jobs, side by side."),
    "run": ("slaq.cli.run", "Train the jobs in a file on this machine's cores."),
    "simulate": ("slaq.cli.simulate", "Run a workload through a policy on a virtual clock."),
    "forecast": ("slaq.cli.forecast", "Predict where a loss curve is heading, and how surely."),
    "workload": ("slaq.cli.workload", "Generate, inspect and check workload files."),
    "bench": ("slaq.cli.bench", "Measure how fast the scheduler decides."),
    "serve": ("slaq.cli.serve", "Run the service that others submit to."),
    "submit": ("slaq.cli.submit", "Submit a command, a program or a file of jobs to the service."),
    "ls": ("slaq.cli.ls", "List jobs."),
    "show": ("slaq.cli.show", "Show all that is known about a job."),
    "top": ("slaq.cli.top", "Watch and steer jobs on a full screen, live."),
    "logs": ("slaq.cli.logs", "Print what a job has printed."),
    "wait": ("slaq.cli.wait", "Wait for jobs to end, or to be good enough."),
    "pause": ("slaq.cli.pause", "Take all capacity from jobs, until they are resumed."),
    "resume": ("slaq.cli.resume", "Let paused jobs go on."),
    "cancel": ("slaq.cli.cancel", "End jobs for good."),
    "weight": ("slaq.cli.weight", "Change how much a job counts."),
    "why": ("slaq.cli.why", "Tell why a job holds what it holds, in numbers."),
    "whatif": ("slaq.cli.whatif", "Replay the present jobs under another policy or capacity."),
    "report": ("slaq.cli.report", "Write a page about how the jobs of the service went."),
    "cluster": ("slaq.cli.cluster", "Show the service at a glance, or change its policy."),
    "users": ("slaq.cli.users", "List users, and set what each may have."),
    "token": ("slaq.cli.tokens", "Make and take away tokens for access over TCP."),
    "prune": ("slaq.cli.prune", "Remove jobs that ended long ago."),
    "backup": ("slaq.cli.backup", "Fetch a copy of the service's database while it runs."),
    "completion": ("slaq.cli.completion", "Print the completion script for your shell."),
}

# What a shell reports for a program that SIGINT or SIGPIPE ended: 128 + the signal's number.
INTERRUPTED = 130
PIPE_CLOSED = 141


class Failure(click.ClickException):
    """The one sentence a user sees when a verb could not do its work."""

    @override
    def show(self, file: Any = None) -> None:
        click.echo(f"slaq: {self.message}", file=file, err=True)


class Unreachable(Failure):
    """No service answers."""

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
        assert isinstance(command, click.Command), f"{module}.command is no click command"
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
        # Past click.Group, which would import every verb to ask whether it is hidden.
        return verbs + super(click.Group, self).shell_complete(ctx, incomplete)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe is still caught
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(PIPE_CLOSED)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params["debug"]:
                raise
            _fail(error)
        return result


def _fail(error: Exception) -> NoReturn:
    if isinstance(error, SlaqError):
        raise (Unreachable if isinstance(error, UnreachableError) else Failure)(str(error)) from error
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise Failure(f"{where}{error.strerror}") from error
    raise Failure(
        f"unexpected {type(error).__name__}: {error} (a defect in slaq; `slaq --debug ...` shows where)"
    ) from error


def _silence_stdout() -> None:
    # Python flushes stdout once more as it exits, and would complain about the closed pipe then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slaq", prog_name="slaq", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback when something fails.")
def main(debug: bool) -> None:
    """Give capacity to the training jobs whose loss will fall the most."""
