"""`slaq submit`: hands jobs to the service."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from slaq.cli.reach import client_for, print_json
from slaq.cli.submit_options import submit_options

if TYPE_CHECKING:
    from slaq.client import Client
    from slaq.service.records import Submission


class _Submit(click.Command):
    """Remembers whether the words came after `--`: then they are a command, whatever they look like."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else None
        rest = super().parse_args(ctx, list(args))
        words = ctx.params.get("work", ())
        ctx.meta["slaq.dashes"] = dashes is not None and tuple(args[dashes + 1 :]) == tuple(words)
        return rest


@click.command("submit", cls=_Submit)
@click.argument("work", nargs=-1, metavar="WORK...")
@submit_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    work: tuple[str, ...],
    url: str | None,
    token_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit WORK to the service, and print the ids of its jobs, one a line.

    WORK is a command after --, a training program as file.py:function, or a jobs file that ends in .toml, of
    which all jobs are submitted. The file is checked as a whole first: with a mistake in it, nothing is
    submitted. Options hold for each job of a file that does not say otherwise itself.

    \b
    slaq submit --name net --stop-at 0.95 -- python train.py --lr 0.1
    slaq submit --by 10m --loss-pattern 'loss (\\S+)' -- ./train.sh
    slaq submit train.py:train --data data.npz -p rate=0.1
    slaq submit jobs.toml --tag sweep
    slaq submit --external --name elsewhere
    """
    from slaq.cli.submissions import template_of

    typed = _Typed(words=work, after_dashes=ctx.meta["slaq.dashes"], options=options)
    typed.check()
    with client_for(url, token_file) as client:
        template = template_of(options, local=client.local)
        _send(client, typed.submissions(client, template), as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typed:
    """What stood on the command line."""

    words: tuple[str, ...]
    after_dashes: bool
    options: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What the words are."""
        from slaq.cli.submissions import is_jobs_file, is_program

        if self.options["external"]:
            return "external"
        if not self.after_dashes and is_jobs_file(self.words):
            return "file"
        return "program" if not self.after_dashes and is_program(self.words) else "command"

    def check(self) -> None:
        """Refuse what does not go together."""
        kind = self.kind
        if not self.words and kind != "external":
            raise click.UsageError(
                "there is no WORK; give a command after --, file.py:function, or jobs.toml"
            )
        if self.words and kind == "external":
            raise click.UsageError("an --external job runs elsewhere; remove the command")
        if kind == "file" and self.options["name"] is not None:
            raise click.UsageError("the jobs of a file have names of their own; remove --name")
        given = [flag for flag in ("data", "target", "parameters") if self.options[flag]]
        if given and kind != "program":
            raise click.UsageError(
                f"--{given[0].removesuffix('eters')} is for a program, as in: slaq submit train.py:train"
            )
        loss = [flag for flag in ("loss_pattern", "loss_file") if self.options[flag] is not None]
        if loss and self.options["other"]:
            raise click.UsageError("an --other job has no loss; remove it, or the loss")

    def submissions(self, client: "Client", template: "Submission") -> "list[Submission]":
        """Return what is to be sent."""
        from slaq.cli import submissions

        if self.kind == "external":
            return [replace(template, external=True, python=None, cwd=None, env={})]
        if self.kind == "command":
            return [submissions.command_submission(self.words, template, local=client.local)]
        if self.kind == "program":
            table = submissions.program_table(
                self.options["data"], self.options["target"], self.options["parameters"]
            )
            return [submissions.program_submission(self.words[0], table, template)]
        file = Path(self.words[0])
        for told in submissions.left_out(file):
            click.echo(f"slaq: {told}", err=True)
        units_per_core = client.cluster()["units_per_core"]
        return submissions.file_submissions(file, template, units_per_core=units_per_core)


def _send(client: "Client", submissions: "list[Submission]", *, as_json: bool) -> None:
    """Submit one after another; what was submitted before a failure is told all the same."""
    ids = []
    try:
        for submission in submissions:
            ids.append(client.send(submission).id)
            if not as_json:
                click.echo(ids[-1])
    finally:
        if as_json:
            print_json([client.show_job(job_id) for job_id in ids])
