"""Makes submissions to the service of what a user types, or of a jobs file."""

import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from slaq.client.endpoint import surroundings
from slaq.core.errors import CommandError, JobOptionError, ProgramError
from slaq.jobs.executable import find_executable
from slaq.jobs.options import PATHS, SERVICE, SERVICE_COMMAND, SERVICE_PROGRAM, ServiceOptions
from slaq.service.records import Submission

REFERENCE = re.compile(r"\S+:[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def is_jobs_file(words: Sequence[str]) -> bool:
    """Return whether the words name a jobs file."""
    return len(words) == 1 and words[0].endswith(".toml")


def is_program(words: Sequence[str]) -> bool:
    """Return whether the words name a training program, as in train.py:train."""
    return len(words) == 1 and REFERENCE.fullmatch(words[0]) is not None and not Path(words[0]).exists()


def given_options(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job that were typed, each checked alone."""
    given: dict[str, Any] = {}
    for name, option in SERVICE.options.items():
        value = typed[name]
        if value is None or value == ():
            continue
        if name == "env":
            value = _variables(value)
        elif option.type.repeatable:
            value = [part for text in value for part in cast(list[str], option.type.parse(text))]
        given[name] = option.read(value)
    return given | {name: os.path.abspath(given[name]) for name in PATHS if name in given}


def as_here(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, completed by what a job on this machine finds where it was typed."""
    return {"cwd": os.getcwd(), **options, "env": surroundings() | options.get("env", {})}


def _of_program(options: Mapping[str, Any], *, local: bool) -> ServiceOptions:
    """Return the options of a program: on this machine, the interpreter that runs slaq runs it."""
    return cast(ServiceOptions, {"python": sys.executable, **options} if local else options)


def _variables(texts: Sequence[str]) -> dict[str, str]:
    """Return variables: NAME=VALUE as given, NAME as it is here."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise JobOptionError("env", text, "NAME=VALUE, or NAME for a variable that is set here")
        if not equals and name not in os.environ:
            raise JobOptionError("env", text, "a variable that is set here, or NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def command_submission(words: Sequence[str], options: Mapping[str, Any], *, local: bool) -> Submission:
    """Return the submission of a command; its program is looked up here, where it was typed."""
    program = words[0]
    if local:
        program = find_executable(program, Path(options["cwd"]), {**os.environ, **options["env"]})
        # The service starts the command elsewhere.
        program = os.path.abspath(program)
    return Submission(command=(program, *words[1:]), options=cast(ServiceOptions, options))


def program_table(data: str | None, target: str | None, parameters: Sequence[str]) -> dict[str, Any]:
    """Return the table that options about a program make; a parameter's value is read as in a jobs file."""
    given: dict[str, Any] = {"data": data, "target": target}
    table = {key: value for key, value in given.items() if value is not None}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise JobOptionError("param", text, "NAME=VALUE")
        table.setdefault("parameters", {})[name] = _toml_value(value)
    return table


def _toml_value(text: str) -> Any:
    """Return the number, list or other value that TOML reads from it; the text itself where it reads none."""
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return values["value"] if set(values) == {"value"} else text


def program_submission(
    reference: str, table: Mapping[str, Any], options: Mapping[str, Any], *, local: bool
) -> Submission:
    """Return the submission of a training program; `table` is what it has beside itself, as in a jobs file."""
    from slaq.bootstrap import jobs_vocabulary
    from slaq.config import read_job

    folder = Path(options.get("cwd", "."))
    program = {"program": reference, **table}
    where = reference.rpartition(":")[0]
    if where.endswith(".py") and not (folder / where).is_file():
        raise ProgramError(f"there is no file {folder / where}", "check the path")
    read_job(program, folder / "submit", jobs_vocabulary())
    return Submission(program=program, options=_of_program(options, local=local))


def file_submissions(path: Path, options: Mapping[str, Any], *, local: bool) -> list[Submission]:
    """Return the submissions of a jobs file, in its order; raises JobsFileError with all its mistakes.

    What a job of the file says itself wins over `options`, which hold for each job that takes them.
    """
    from slaq.bootstrap import jobs_vocabulary
    from slaq.config import CommandWork, FitWork, read_jobs_file

    submissions = []
    used: set[str] = set()
    for job in read_jobs_file(path, jobs_vocabulary()).jobs:
        if isinstance(job.work, FitWork):
            raise CommandError(
                f"job {job.name!r} fits on Spark, and a service runs jobs on its own machine",
                f"run the file with `slaq run {path}`",
            )
        command = isinstance(job.work, CommandWork)
        taken = (SERVICE_COMMAND if command else SERVICE_PROGRAM).options
        used |= taken.keys() & options.keys()
        own = {name: value for name, value in options.items() if name in taken}
        own |= {"name": job.name, "cwd": str(path.parent.resolve()), **job.options}
        own["env"] = options.get("env", {}) | job.options.get("env", {})
        if isinstance(job.work, CommandWork):
            submissions.append(command_submission(job.work.argv, own, local=True))
        else:
            submissions.append(Submission(program=job.table, options=_of_program(own, local=local)))
    for name in options.keys() - used:
        raise CommandError(f"no job of {path} takes {SERVICE.options[name].flag}", "remove it")
    return submissions


def has_cluster_table(path: Path) -> bool:
    """Return whether a jobs file has a [cluster] table, which is for `slaq run` alone."""
    from slaq.config.toml import read_toml

    return "cluster" in read_toml(path)[1]
