"""From what a user asks to what the engine runs: checks a submission, and makes its spec and its work."""

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from slaq.config.values import command_name
from slaq.core.errors import CommandError, JobOptionError, LossSourceError
from slaq.core.job import JobSpec, Kind
from slaq.engines.limits import Goal
from slaq.engines.local.commands import CommandJob
from slaq.engines.local.external import ExternalJob
from slaq.engines.processes.records import CommandSpec
from slaq.engines.processes.sources import checked_pattern
from slaq.jobs.options import check_options
from slaq.service.accounts import Account
from slaq.service.files import JobFiles
from slaq.service.records import Submission

#: A job's name is also that of its directory.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
#: Bounds on what one submission may carry.
MOST_WORDS, MOST_VARIABLES, MOST_TAGS, LONGEST_TEXT = 1_000, 500, 50, 100_000
TAG = re.compile(r"[\w.:/@+-]{1,100}")

#: The variables that a job of the service finds: its id, its own place, how often it was started, and the
#: number of the next loss that is new to the service.
JOB_VARIABLE, STATE_VARIABLE, ATTEMPT_VARIABLE, ITERATION_VARIABLE = (
    "SLAQ_JOB",
    "SLAQ_JOB_DIR",
    "SLAQ_ATTEMPT",
    "SLAQ_ITERATION",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a job that goes on has behind it."""

    attempts: int = 0
    last_iteration: int = -1
    first_loss: float | None = None
    #: Seconds it has run.
    seconds: float = 0.0
    #: How far into what it reported elsewhere has been taken in.
    reach: int = 0


def check(submission: Submission) -> None:
    """Refuse what cannot be run, with what to write instead."""
    s = submission
    given = [name for name in ("command", "program") if getattr(s, name) is not None] + (
        ["external"] if s.external else []
    )
    if len(given) != 1:
        found = " and ".join(given) if given else "neither command, program nor external"
        raise CommandError(f"the job has {found}", "give exactly one of the three")
    check_options(
        weight=s.weight,
        min_cores=s.min_cores,
        max_cores=s.max_cores,
        target_loss=s.target_loss,
        stop_at=s.stop_at,
        by=s.by,
        max_iterations=s.max_iterations,
        time_budget=s.time_budget,
        max_restarts=s.max_restarts,
    )
    if s.name is not None and not NAME.fullmatch(s.name):
        raise JobOptionError(
            "name", s.name, "up to 80 letters, digits, '_', '.' or '-', the first a letter, a digit or '_'"
        )
    check_tags(s.tags)
    _check_command(s)
    if s.loss_pattern is not None and s.loss_file is not None:
        raise LossSourceError("there is both a loss pattern and a loss file", "give one of them")
    if s.loss_pattern is not None:
        checked_pattern(s.loss_pattern)


def check_tags(tags: Sequence[str]) -> None:
    """Refuse tags that could not be told apart in a list."""
    if len(tags) > MOST_TAGS or not all(TAG.fullmatch(tag) for tag in tags):
        raise JobOptionError("tags", ", ".join(tags), f"at most {MOST_TAGS} words without spaces")


def _check_command(s: Submission) -> None:
    if s.command is not None and (not s.command or not s.command[0]):
        raise CommandError("the command is empty", "name a program, as in ['python', 'train.py']")
    words = s.command or ()
    texts = (*words, *s.env, *s.env.values(), s.cwd or "", s.python or "", s.loss_file or "")
    if len(words) > MOST_WORDS or len(s.env) > MOST_VARIABLES or sum(map(len, texts)) > LONGEST_TEXT:
        raise CommandError(
            "the command and its environment are too long",
            f"give at most {MOST_WORDS} words, {MOST_VARIABLES} variables and {LONGEST_TEXT} characters in all",
        )
    if any("\0" in text for text in texts):
        raise CommandError("the command or its environment holds a NUL character", "remove it")
    if any("=" in name or not name for name in s.env):
        raise CommandError("a variable of the environment has '=' in its name, or no name", "correct it")
    if s.cwd is not None and not PurePath(s.cwd).is_absolute():
        raise CommandError(f"the working directory {s.cwd!r} is relative", "give its whole path")


def name_for(submission: Submission) -> str:
    """Return what to call a job: what its owner says, else what it runs."""
    if submission.name is not None:
        return submission.name
    if submission.command is not None:
        stem = Path(command_name(submission.command)).stem
    elif submission.program is not None:
        table = submission.program
        said = table.get("name") or table.get("algorithm") or table.get("program") or "program"
        stem = str(said).rpartition(":")[2] or "program"
    else:
        stem = "external"
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip(".-")[:60] or "job"


def summary_of(submission: Submission) -> str:
    """Return one line that says what it runs."""
    if submission.command is not None:
        return " ".join(submission.command)
    if submission.program is not None:
        return str(submission.program.get("program") or submission.program.get("algorithm") or "program")
    return "runs elsewhere"


def spec_of(
    submission: Submission, job_id: str, owner: str, *, now: float, capacity: int, units_per_core: int
) -> JobSpec:
    """Return what the scheduler is told of the job."""
    s = submission
    # What runs elsewhere uses nothing of this machine unless its owner says how much it may.
    watched = s.external and s.max_cores is None
    most = capacity if s.max_cores is None else max(1, min(round(s.max_cores * units_per_core), capacity))
    return JobSpec(
        id=job_id,
        arrival=now,
        kind=Kind.ML if s.trains and not watched else Kind.OTHER,
        reserved_units=0 if watched else None,
        weight=s.weight,
        min_units=min(math.ceil(s.min_cores * units_per_core), most),
        max_units=most,
        target_loss=s.target_loss,
        owner=owner,
        deadline=None if s.by is None else now + s.by,
        wanted=s.stop_at,
    )


def definition_of(submission: Submission, spec: JobSpec, units_per_core: int) -> Mapping[str, Any] | None:
    """Return what the process that runs a program is told; None for any other job."""
    if submission.program is None:
        return None
    assert spec.max_units is not None
    return {
        "job": dict(submission.program),
        "directory": submission.cwd,
        "cores": max(1, math.ceil(spec.max_units / units_per_core)),
    }


def external_job(submission: Submission, past: Past) -> ExternalJob:
    """Return the work of a job that runs elsewhere."""
    return ExternalJob(
        goal=_goal(submission),
        last_iteration=past.last_iteration,
        first_loss=past.first_loss,
        reach=past.reach,
    )


def command_job(
    submission: Submission, spec: JobSpec, files: JobFiles, account: Account, past: Past, units_per_core: int
) -> CommandJob:
    """Return the work of a job that is a command, or a program that slaq runs as one."""
    s = submission
    assert spec.max_units is not None
    if s.command is not None:
        argv = s.command
    else:
        argv = (s.python or sys.executable, "-m", "slaq.solo", str(files.definition))
    job_variables = {
        JOB_VARIABLE: spec.id,
        STATE_VARIABLE: str(files.state),
        ATTEMPT_VARIABLE: str(past.attempts + 1),
        ITERATION_VARIABLE: str(past.last_iteration + 1),
    }
    foreign = account.run_as.uid != os.getuid()
    command = CommandSpec(
        argv=argv,
        directory=files.directory,
        log=files.log,
        cwd=files.state if s.cwd is None else Path(s.cwd),
        env=account.environment() | dict(s.env) | job_variables,
        inherit_env=False,
        run_as=account.run_as if foreign else None,
        loss_pattern=s.loss_pattern,
        loss_file=None if s.loss_file is None else Path(s.loss_file),
        loss_column=s.loss_column,
        max_cores=spec.max_units / units_per_core,
    )
    return CommandJob(
        command=command,
        goal=_goal(s),
        time_budget=s.time_budget,
        max_restarts=s.max_restarts,
        last_iteration=past.last_iteration,
        first_loss=past.first_loss,
        spent_seconds=past.seconds,
    )


def _goal(submission: Submission) -> Goal:
    return Goal(
        max_iterations=submission.max_iterations,
        target=submission.target_loss,
        stop_at=submission.stop_at,
    )
