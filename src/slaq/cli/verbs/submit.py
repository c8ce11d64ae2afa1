"""`slaq submit`: hands jobs to the service."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from typing_extensions import override

from slaq.cli.display.say import say
from slaq.cli.input.connection_options import client_for, print_json
from slaq.cli.input.submit_options import submit_options
from slaq.core.errors import GridError, JobOptionError, UnknownNameError
from slaq.jobs.options import SERVICE

if TYPE_CHECKING:
    from slaq.client import Client
    from slaq.jobs.options import ServiceOptions
    from slaq.service.records import Submission


class _Submit(click.Command):
    """Remembers whether the words came after `--`: then they are a command, whatever they look like."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else None
        try:
            rest = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            if dashes is not None:
                raise
            remedy = "put -- before a command, as in: slaq submit --name net -- python train.py --lr 0.1"
            raise click.UsageError(f"{error.format_message()}\n{remedy}", ctx) from None
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
    slaq submit --deadline 10m --loss-pattern 'loss (\\S+)' -- ./train.sh
    slaq submit train.py:train --data data.npz -p rate=0.1
    slaq submit --grid lr=0.1,0.01 --grid wd=0,1e-4 -- python train.py --lr {lr} --wd {wd}
    slaq submit jobs.toml --tags sweep
    slaq submit --external --name elsewhere
    """
    dry_run = options.pop("dry_run")
    typed = _Typed(words=work, after_dashes=ctx.meta["slaq.dashes"], options=options)
    typed.check()
    with client_for(url, token_file) as client:
        # What would be submitted is told without asking the service.
        name_group = str if dry_run else client.new_group
        try:
            submissions = typed.submissions(local=client.local, name_group=name_group)
        except (JobOptionError, GridError) as error:
            raise click.UsageError(str(error)) from None
        if dry_run:
            _tell(submissions, as_json=as_json)
        else:
            _send(client, submissions, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Typed:
    """What stood on the command line."""

    words: tuple[str, ...]
    after_dashes: bool
    options: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What the words are."""
        from slaq.cli.input.submissions import is_jobs_file, is_program

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
        self._check_options()
        self._check_kind({"data": "--data", "target": "--target"}, "program", "slaq submit train.py:train")
        if kind in ("file", "external"):
            self._check_kind(
                {"grids": "--grid"}, "", "slaq submit --grid lr=0.1,0.01 -- python train.py --lr {lr}"
            )
        if kind == "file":
            self._check_kind({"parameters": "--param"}, "", "slaq submit train.py:train -p rate=0.1")

    def _check_kind(self, flags: Mapping[str, str], kind: str, example: str) -> None:
        """Refuse options that only jobs of a kind take."""
        given = [flag for name, flag in flags.items() if self.options[name]]
        if given and self.kind != kind:
            what = kind or "command or a program"
            raise click.UsageError(f"{given[0]} is for a {what}, as in: {example}")

    def _check_options(self) -> None:
        """Refuse options that jobs of another kind take."""
        from slaq.service.records import OPTION_SETS

        given = [name for name in SERVICE.options if self.options[name] not in (None, ())]
        try:
            OPTION_SETS.get(self.kind, SERVICE).check_names(given)
        except UnknownNameError as error:
            raise click.UsageError(str(error)) from None

    def submissions(self, *, local: bool, name_group: Callable[[str], str]) -> "list[Submission]":
        """Return what is to be sent, each checked.

        `local` says whether the service is on this machine, and `name_group` returns the name of a new group.
        """
        from slaq.cli.input import submissions
        from slaq.service.records import Submission

        options = submissions.given_options(self.options)
        if local and self.kind != "external":
            # Where the service is elsewhere, the paths of this machine mean nothing to it.
            options = submissions.as_here(options)
        if self.kind == "external":
            sent = [Submission(external=True, options=cast("ServiceOptions", options))]
        elif self.kind == "file":
            file = Path(self.words[0])
            if submissions.has_cluster_table(file):
                told = "[cluster] is for `slaq run`: the service has settings of its own"
                say(f"slaq: {told}", err=True)
            sent = submissions.file_submissions(file, options, local=local, name_group=name_group)
        else:
            typed = submissions.typed_parameters(self.options["parameters"])
            jobs = self._of_grid(options, typed, name_group) or [(typed, options)]
            sent = [self._one(parameters, own, local=local) for parameters, own in jobs]
        return [submission.checked() for submission in sent]

    def _of_grid(
        self, options: Mapping[str, Any], typed: Mapping[str, str], name_group: Callable[[str], str]
    ) -> list[tuple[Mapping[str, str], Mapping[str, Any]]]:
        """Return the parameters, as they were typed, and the options of each job of the grids, if there are any."""
        from slaq.cli.input import submissions
        from slaq.jobs.grid import grid_jobs

        grids = submissions.typed_grid(self.options["grids"])
        if not grids:
            return []
        for twice in grids.keys() & typed.keys():
            raise GridError(f"--grid and --param both give {twice}", "keep one of them")
        name, stem = options.get("name"), submissions.stem_of(self.kind, self.words)
        given = options.get("group")
        group = given or name_group(name or stem)
        choices = {key: [text] for key, text in typed.items()} | grids
        # The jobs of a new group are named after it: net-2-1 of net-2, where net was there.
        jobs = grid_jobs(choices, group=group, name=name if given else None)
        return [(job.parameters, submissions.in_grid(job, options)) for job in jobs]

    def _one(self, parameters: Mapping[str, str], options: Mapping[str, Any], *, local: bool) -> "Submission":
        from slaq.cli.input import submissions

        if self.kind == "command":
            if not self.after_dashes and len(self.words) == 1:
                # That a script is no program says more than that it uses no parameter.
                submissions.command_submission(self.words, options, local=local)
            words = submissions.with_parameters(self.words, parameters)
            return submissions.command_submission(words, options, local=local)
        table = submissions.program_table(self.options["data"], self.options["target"], parameters)
        return submissions.program_submission(self.words[0], table, options, local=local)


def _tell(submissions: "list[Submission]", *, as_json: bool) -> None:
    """Print what would be submitted."""
    if as_json:
        kinds = ("name", "group", "parameters", "command", "program")
        print_json([{kind: one.as_json().get(kind) for kind in kinds} for one in submissions])
        return
    for one in submissions:
        asked = one.as_json()
        runs = shlex.join(one.command) if one.command else json.dumps(one.program)
        say("  ".join(filter(None, (asked.get("name"), runs))))


def _send(client: "Client", submissions: "list[Submission]", *, as_json: bool) -> None:
    """Submit one after another; what was submitted before a failure is told all the same."""
    ids: list[str] = []
    # Jobs of a file wait for others of it by name, and get their ids here.
    named: dict[str | None, str] = {}
    try:
        for submission in submissions:
            ids.append(client.send(submission.waiting_for(named)).id)
            named[submission.options.get("name")] = ids[-1]
            if not as_json:
                say(ids[-1])
    finally:
        if as_json:
            print_json([client.show_job(job_id) for job_id in ids])
