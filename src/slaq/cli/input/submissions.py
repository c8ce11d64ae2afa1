"""Makes submissions to the service of what a user types, or of a jobs file."""

import csv
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from slaq.client.endpoint import surroundings
from slaq.config.values import command_name
from slaq.core.errors import CommandError, GridError, JobOptionError, ProgramError
from slaq.jobs.executable import check_script, find_executable
from slaq.jobs.grid import PARAMETER, GridJob, check_placeholders, filled, kept, kept_text, typed_value
from slaq.jobs.options import PATHS, SERVICE, SERVICE_COMMAND, SERVICE_PROGRAM, ServiceOptions, waits
from slaq.service.records import Submission
from slaq.service.work import identifier

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
        elif name == "parameters":
            value = {key: kept_text(text) for key, text in typed_parameters(value).items()}
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
        if not waits(options):
            check_script(words, Path(options["cwd"]))
    return Submission(command=(program, *words[1:]), options=cast(ServiceOptions, options))


def typed_parameters(texts: Sequence[str]) -> dict[str, str]:
    """Return parameters by name, as they were typed."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not PARAMETER.fullmatch(name):
            raise JobOptionError("parameters", text, "NAME=VALUE")
        if name in found:
            raise GridError(
                f"--param gives {name} twice", f"give several values with --grid {name}=VALUE,VALUE"
            )
        found[name] = value
    return found


def typed_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each parameter, as they were typed between commas; one with a comma stands in quotes."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise GridError(
                f"the grid {text!r} has no values", "give NAME=VALUE,VALUE as in --grid lr=0.1,0.01"
            )
        if name in found:
            raise GridError(f"there are two grids of {name}", "give all its values in one, between commas")
        try:
            rows = list(csv.reader([values], strict=True, skipinitialspace=True))
        except csv.Error as error:
            raise GridError(f"the grid {text!r} cannot be read ({error})", "close the quotes") from None
        found[name] = rows[0] if rows else []
        _check_values(name, found[name], empty='""' in values)
    return found


def _check_values(name: str, values: Sequence[str], *, empty: bool) -> None:
    """Raise GridError for a value that is left out between two commas, and for a number that is given twice."""
    if "" in values and not empty:
        raise GridError(f"the grid of {name} has an empty value", f'remove a comma, or write {name}="",VALUE')
    read: dict[object, str] = {}
    for value in values:
        kept_value = kept_text(value)
        other = read.setdefault((type(kept_value), kept_value), value)
        if other != value:
            raise GridError(
                f"the grid of {name} has {other} and {value}, which are equal", "give each value once"
            )


def program_table(data: str | None, target: str | None, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the table that options about a program make; a parameter's value is read as in a jobs file."""
    given: dict[str, Any] = {"data": data, "target": target}
    table = {key: value for key, value in given.items() if value is not None}
    if parameters:
        table["parameters"] = {name: typed_value(text) for name, text in parameters.items()}
    return table


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


def stem_of(kind: str, words: Sequence[str]) -> str:
    """Return the name that a group of these programs, or commands, gets."""
    runs = words[0].rpartition(":")[2] if kind == "program" else Path(command_name(tuple(words))).stem
    return identifier(runs)


def with_parameters(words: Sequence[str], parameters: Mapping[str, str]) -> Sequence[str]:
    """Return a command with its parameters in place; without any, its braces mean nothing."""
    if not parameters:
        return words
    check_placeholders(words, list(parameters))
    return filled(words, parameters)


def in_grid(job: GridJob, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one job of a grid."""
    parameters = {name: kept_text(text) for name, text in job.parameters.items()}
    return {**options, "name": job.name, "group": job.group, "parameters": parameters}


def file_submissions(
    path: Path, options: Mapping[str, Any], *, local: bool, name_group: Callable[[str], str]
) -> list[Submission]:
    """Return the submissions of a jobs file, in its order; raises JobsFileError with all its mistakes.

    What a job of the file says itself wins over `options`, which hold for each job that takes them. `name_group`
    returns the name of a group that there is not yet.
    """
    from slaq.bootstrap import jobs_vocabulary
    from slaq.config import CommandWork, FitWork, read_jobs_file

    submissions = []
    used: set[str] = set()
    name_group = cache(name_group)
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
        if job.group is not None:
            own["group"] = job.group
        elif job.own_group is not None:
            own.setdefault("group", name_group(identifier(job.own_group)))
        own["env"] = options.get("env", {}) | job.options.get("env", {})
        if isinstance(job.work, CommandWork):
            own["parameters"] = kept(job.parameters)
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
