"""From what a user types, or a jobs file says, to the submissions that the service is sent."""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slaq.client.place import surroundings
from slaq.core.errors import CommandError, JobOptionError, ProgramError
from slaq.service.records import IfLost, Submission

if TYPE_CHECKING:
    from slaq.config import CommandWork

#: Keys of a job's table that say how a program is made; all others are told to the service itself.
PROGRAM_KEYS = (
    "algorithm", "program", "data", "target", "partitions", "task_timeout", "parameters", "max_iterations",
)  # fmt: skip
REFERENCE = re.compile(r"\S+:[A-Za-z_]\w*")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def is_jobs_file(words: Sequence[str]) -> bool:
    """Return whether the words name a jobs file."""
    return len(words) == 1 and words[0].endswith(".toml")


def is_program(words: Sequence[str]) -> bool:
    """Return whether the words name a training program, as in train.py:train."""
    return len(words) == 1 and REFERENCE.fullmatch(words[0]) is not None and not Path(words[0]).exists()


def environment(given: Sequence[str], *, local: bool) -> dict[str, str]:
    """Return a job's environment: NAME=VALUE as given, NAME as it is here, and what it cannot do without."""
    # Where the service is elsewhere, the paths of this machine mean nothing to it.
    found = surroundings() if local else {}
    for text in given:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise JobOptionError("--env", text, "NAME=VALUE, or NAME for a variable that is set here")
        if not equals and name not in os.environ:
            raise JobOptionError("--env", text, "a variable that is set here, or NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def command_submission(words: Sequence[str], template: Submission, *, local: bool) -> Submission:
    """Return the submission of a command; its program is looked up here, where it was typed."""
    program = words[0]
    if local:
        folder = Path(template.cwd or ".")
        where = str(folder / program) if os.sep in program else program
        found = shutil.which(where, path=template.env.get("PATH"))
        if found is None:
            remedy = "check the path, or chmod +x it" if os.sep in program else "check it, or give its path"
            raise CommandError(f"there is no program {program!r} here", remedy)
        program = os.path.abspath(found) if os.sep in words[0] else found
    return replace(template, command=(program, *words[1:]), python=None)


def program_table(data: str | None, target: str | None, parameters: Sequence[str]) -> dict[str, Any]:
    """Return the table that options about a program make; a parameter's value is read as in a jobs file."""
    given: dict[str, Any] = {"data": data, "target": target}
    table = {key: value for key, value in given.items() if value is not None}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise JobOptionError("--param", text, "NAME=VALUE")
        table.setdefault("parameters", {})[name] = _toml_value(value)
    return table


def _toml_value(text: str) -> Any:
    """Return the number, list or other value that TOML reads from it; the text itself where it reads none."""
    try:
        values = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return values["value"] if set(values) == {"value"} else text


def program_submission(reference: str, table: Mapping[str, Any], template: Submission) -> Submission:
    """Return the submission of a training program; `table` is what it has beside itself, as in a jobs file."""
    from slaq.bootstrap import jobs_vocabulary
    from slaq.config import read_job

    folder = Path(template.cwd or ".")
    program = {"program": reference, **table}
    where = reference.rpartition(":")[0]
    if where.endswith(".py") and not (folder / where).is_file():
        raise ProgramError(f"there is no file {folder / where}", "check the path")
    read_job(program, folder / "submit", jobs_vocabulary())
    return replace(_without_iterations(template, program), program=program)


def _without_iterations(template: Submission, program: dict[str, Any]) -> Submission:
    """Let the program itself stop after its iterations, so that it keeps its model."""
    if template.max_iterations is not None:
        program["max_iterations"] = template.max_iterations
    return replace(template, max_iterations=None)


def file_submissions(path: Path, template: Submission, *, units_per_core: int) -> list[Submission]:
    """Return the submissions of a jobs file, in its order; raises JobsFileError with all its mistakes."""
    from slaq.bootstrap import jobs_vocabulary
    from slaq.config import CommandWork, FitWork, read_jobs_file

    submissions = []
    for job in read_jobs_file(path, jobs_vocabulary()).jobs:
        if isinstance(job.work, FitWork):
            raise CommandError(
                f"job {job.name!r} fits on Spark, and a service runs jobs on its own machine",
                f"run the file with `slaq run {path}`",
            )
        said: dict[str, Any] = {
            "weight": job.weight,
            "min_units": job.min_units / units_per_core,
            "max_units": None if job.max_units is None else job.max_units / units_per_core,
            "target_loss": job.target_loss,
            "stop_at": job.stop_at,
            "max_iterations": job.max_iterations,
            "time_budget": job.time_budget,
            "max_restarts": job.max_restarts,
        }
        fields = {key.replace("units", "cores"): value for key, value in said.items() if key in job.table}
        one = replace(template, name=job.name, **fields)
        if isinstance(job.work, CommandWork):
            submissions.append(command_submission(job.work.argv, _command_fields(job.work, one), local=True))
        else:
            program = {key: value for key, value in job.table.items() if key in PROGRAM_KEYS}
            one = _without_iterations(one, program)
            submissions.append(replace(one, program=program, cwd=str(path.parent.resolve())))
    return submissions


def _command_fields(work: "CommandWork", template: Submission) -> Submission:
    """Return the template with what a jobs file says about a command."""
    return replace(
        template,
        cwd=str(work.cwd),
        env={**template.env, **work.env},
        loss_pattern=work.loss_pattern,
        loss_file=None if work.loss_file is None else str(work.loss_file),
        loss_column=work.loss_column or template.loss_column,
        trains=work.trains,
    )


def left_out(path: Path) -> list[str]:
    """Return what a jobs file says that a service does not take from it; one sentence each."""
    from slaq.config.toml import read_toml

    _, values = read_toml(path)
    told = []
    if "cluster" in values:
        told.append("[cluster] is for `slaq run`: the service has settings of its own")
    if any("arrival" in job for job in values.get("job", ()) if isinstance(job, dict)):
        told.append("arrival is for `slaq run`: the service starts jobs as they come")
    return told


def template_of(options: Mapping[str, Any], *, local: bool) -> Submission:
    """Return what the options say, without the work itself."""
    cwd = options["cwd"]
    if cwd is None and local:
        cwd = Path.cwd()
    return Submission(
        user=options["user"],
        name=options["name"],
        python=str(options["python"] or sys.executable) if local or options["python"] else None,
        cwd=None if cwd is None else os.path.abspath(cwd),
        env=environment(options["env"], local=local),
        weight=options["weight"],
        min_cores=options["min_cores"],
        max_cores=options["max_cores"],
        target_loss=options["target_loss"],
        stop_at=options["stop_at"],
        by=options["by"],
        max_iterations=options["max_iterations"],
        time_budget=options["time_budget"],
        max_restarts=options["max_restarts"],
        if_lost=IfLost(options["if_lost"]),
        loss_pattern=options["loss_pattern"],
        loss_file=options["loss_file"],
        loss_column=options["loss_column"],
        trains=not options["other"],
        tags=tuple(options["tags"]),
    )
