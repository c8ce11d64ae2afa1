"""Reads a jobs file: every mistake in it is found, with its line and remedy, before anything starts."""

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from slaq.config.importing import import_program, with_parameters
from slaq.config.lines import Place
from slaq.config.section import Notes, Section, described
from slaq.config.sources import GENERATORS, FileSource, GeneratedSource, Source
from slaq.config.toml import read_toml
from slaq.config.values import (
    AlgorithmWork,
    ClusterTable,
    CommandWork,
    Data,
    FitWork,
    JobsFile,
    JobTable,
    ProgramWork,
    Recipe,
    Work,
    command_name,
)
from slaq.core.errors import (
    DataError,
    HyperparameterError,
    ProgramError,
    SlaqError,
    UnknownNameError,
)

#: What a job does: it has exactly one of these keys.
WORKS = ("algorithm", "program", "fit", "command")
#: Engines that a file may name; the first is the usual one.
ENGINES = ("local", "spark")
#: What only the local engine has, in a job.
LOCAL_KEYS = ("max_restarts", "task_timeout")
COMMAND_KEYS = ("loss_pattern", "loss_file", "loss_column", "cwd", "env", "trains")
DATA_KEYS = ("data", "target")
TASK_KEYS = ("partitions", "task_timeout")
#: Numbers that generated data may have.
LARGEST = 10**9
#: Jobs of one file, grids expanded.
MOST_JOBS = 1000
LONGEST_NAME = 100

T = TypeVar("T")

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The names a file may use, and what judges the values that only others understand."""

    policies: Sequence[str]
    algorithms: Mapping[str, Recipe]
    #: Raises a SlaqError for a loss pattern that can yield no loss.
    check_pattern: Callable[[str], object]


def read_jobs_file(path: Path, vocabulary: Vocabulary) -> JobsFile:
    """Return what the file says, data loaded and programs imported; raises JobsFileError with all mistakes."""
    text, values = read_toml(path)
    notes = Notes(path, text)
    top = Section(values, (), notes)
    cluster = _cluster(top, vocabulary)
    tables = top.take("job", "the jobs as [[job]] tables", list) or []
    top.close("a jobs file")
    if not tables and not len(notes):
        notes.add((), "there is no job", "add a [[job]] table")
    reader = _JobReader(notes, vocabulary, cluster.engine or ENGINES[0])
    jobs = [job for place, table in enumerate(tables) for job in reader.read(table, ("job", place))]
    notes.raise_any()
    return JobsFile(path=path, cluster=cluster, jobs=tuple(_numbered(jobs)))


def read_job(table: Mapping[str, Any], path: Path, vocabulary: Vocabulary) -> JobTable:
    """Return the one job of a table, as if it stood in the file at `path`; raises JobsFileError with mistakes."""
    notes = Notes(path, "")
    jobs = list(_JobReader(notes, vocabulary, ENGINES[0]).read(table, ("job", 0)))
    if len(jobs) > 1:
        notes.add(("job", 0), f"the table stands for {len(jobs)} jobs", "give one, without a grid")
    notes.raise_any()
    return _numbered(jobs)[0]


def _cluster(top: Section, vocabulary: Vocabulary) -> ClusterTable:
    section = top.table("cluster", "a [cluster] table")
    if section is None:
        return ClusterTable()
    cluster = ClusterTable(
        engine=section.choice("engine", "engine", ENGINES),
        master=section.text("master", 'a Spark master such as "local[8]"'),
        cores=section.whole("cores", least=1),
        policy=section.choice("policy", "policy", vocabulary.policies),
        epoch_seconds=section.number("epoch_seconds", above=0.0, wanted="a number of seconds above 0"),
        units_per_core=section.whole("units_per_core", least=1),
        results=section.path("results"),
        report=section.path("report"),
    )
    section.close("[cluster]")
    if cluster.master is not None and cluster.engine != "spark":
        section.note("master", "master is for Spark", 'add engine = "spark", or remove it')
    if cluster.cores is not None and cluster.engine == "spark":
        section.note("cores", "cores is for the local engine", 'name them in master = "local[8]"')
    if cluster.results is not None and cluster.results.is_file():
        section.note("results", f"results is the file {cluster.results}", "name a folder")
    if cluster.report is not None and (cluster.report.is_dir() or not cluster.report.parent.is_dir()):
        section.note("report", f"{cluster.report} cannot be written", "name a file in a folder that exists")
    return cluster


class _JobReader:
    """Reads one job table after another; data that several jobs name is loaded once."""

    def __init__(self, notes: Notes, vocabulary: Vocabulary, engine: str) -> None:
        self._notes = notes
        self._engine = engine
        self._vocabulary = vocabulary
        self._names: dict[str, Place] = {}
        self._count = 0
        self._load = cache(_loaded)

    def read(self, table: Any, place: Place) -> Iterator[JobTable]:
        """Yield the jobs that a table stands for: several where it has a grid, none where it has mistakes."""
        if not isinstance(table, dict):
            self._notes.add(place, f"a job is {described(table)}", "write jobs as [[job]] tables")
            return
        section = Section(table, place, self._notes)
        before = len(self._notes)
        name = self._name(section)
        if self._engine == "spark":
            section.refuse(LOCAL_KEYS, "is for the local engine", "remove it")
        common = self._common(section)
        grid = self._grid(section)
        if name is not None:
            for claimed in _names(name, len(grid)):
                self._claim(claimed, (*place, "name"))
        works = self._works(section, grid)
        section.close("a job")
        if len(self._notes) == before:
            names = _names(name or _usual_name(works[0]), len(works))
            for work, chosen, parameters in zip(works, names, grid, strict=True):
                own = table if "parameters" not in table else {**table, "parameters": parameters}
                yield JobTable(name=chosen, work=work, table=own, **common)

    def _name(self, section: Section) -> str | None:
        name = section.text("name")
        if name is not None and (len(name) > LONGEST_NAME or not name.isprintable()):
            section.note(
                "name", f"name is {described(name)}", f"give at most {LONGEST_NAME} printable characters"
            )
            return None
        return name

    def _claim(self, name: str, place: Place) -> None:
        if name in self._names:
            self._notes.add(place, f"there is a job {name!r} already", "give each job a name of its own")
        self._names[name] = place

    def _common(self, section: Section) -> dict[str, Any]:
        """Return what any job may have, as fields of a JobTable; what is not given is left out."""
        given: dict[str, Any] = {
            "arrival": section.duration("arrival", zero=True),
            "weight": section.number("weight", above=0.0, wanted="a number above 0"),
            "min_units": section.whole("min_units", least=0),
            "max_units": section.whole("max_units", least=1),
            "target_loss": section.number("target_loss"),
            "stop_at": section.number(
                "stop_at", above=0.0, most=1.0, wanted="a share above 0 and at most 1, such as 0.95"
            ),
            "max_iterations": section.whole("max_iterations", least=1),
            "time_budget": section.duration("time_budget"),
            "max_restarts": section.whole("max_restarts", least=0),
        }
        if "command" not in section:
            given["partitions"] = section.whole("partitions", least=1)
            given["task_timeout"] = section.duration("task_timeout")
        least, most = given["min_units"], given["max_units"]
        if least is not None and most is not None and least > most:
            section.note(
                "min_units", f"min_units is {least} and max_units is {most}", "give no more than max_units"
            )
        return {key: value for key, value in given.items() if value is not None}

    def _grid(self, section: Section) -> list[dict[str, Any]]:
        """Return the combinations of parameters: one, unless some are given as a grid."""
        parameters = section.table("parameters", "a table [job.parameters]")
        if parameters is None:
            return [{}]
        choices: dict[str, list[Any]] = {}
        for key, value in parameters.values.items():
            choices[key] = [value]
            if isinstance(value, dict) and "grid" in value:
                choices[key] = value["grid"]
                if len(value) > 1 or not isinstance(value["grid"], list) or not value["grid"]:
                    parameters.note(
                        key, f"the grid of {key} is no list of values", "give {grid = [0.1, 0.01]}"
                    )
                    return []
        self._count += prod(map(len, choices.values()))
        if self._count > MOST_JOBS:
            self._notes.add(
                parameters.place, f"there are {self._count} jobs by now", f"give at most {MOST_JOBS}"
            )
            return []
        return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]

    def _works(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        chosen = [key for key in WORKS if key in section]
        if len(chosen) != 1:
            found = " and ".join(chosen) if chosen else "neither algorithm, program, fit nor command"
            self._notes.add(section.place, f"this job has {found}", "give exactly one of them")
            section.pass_over(*WORKS, *COMMAND_KEYS, *DATA_KEYS)
            return []
        if chosen == ["fit"]:
            return self._fits(section, grid)
        if chosen == ["command"]:
            if self._engine == "spark":
                section.note("command", "a command cannot run on Spark", "use fit, program or algorithm")
            section.refuse(
                (*DATA_KEYS, *TASK_KEYS), "is for jobs with an algorithm or a program", "remove it"
            )
            return self._commands(section, grid)
        section.refuse(COMMAND_KEYS, "is for jobs with a command", "remove it")
        return self._algorithms(section, grid) if chosen == ["algorithm"] else self._programs(section, grid)

    def _algorithms(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        name = section.choice("algorithm", "algorithm", tuple(self._vocabulary.algorithms))
        data = self._data(section)
        if name is None:
            return []
        recipe = self._vocabulary.algorithms[name]
        if data is None:
            if not section.had("data"):
                section.note("algorithm", f"{name} has no data", 'name it: data = "file.npz"')
        elif data[1] is None and recipe.needs_targets:
            section.note("data", f"{name} needs targets and there are none", _targets_remedy(section))
        programs = [self._made(name, recipe, parameters, section) for parameters in grid]
        return [
            AlgorithmWork(algorithm=name, program=program, data=data)
            for program in programs
            if program is not None and data is not None
        ]

    def _made(self, name: str, recipe: Recipe, parameters: dict[str, Any], section: Section) -> Any:
        """Return the algorithm with the parameters, or None where they have mistakes."""
        inner = Section(parameters, (*section.place, "parameters"), self._notes)
        sound = True
        for key, value in parameters.items():
            if key not in recipe.names:
                error = UnknownNameError(f"hyperparameter of {name}", key, recipe.names)
                self._notes.add_error((*inner.place, key), error)
                sound = False
                continue
            # Alone, so that each mistake is told at its own line.
            sound &= self._sound(inner, key, partial(recipe.make, {key: value}))
        if not sound:
            return None
        try:
            return recipe.make(parameters)
        except SlaqError as error:
            self._notes.add_error(inner.place, error)
            return None

    def _sound(self, section: Section, key: str, make: Callable[[], object]) -> bool:
        try:
            make()
        except HyperparameterError as error:
            if error.name == key:
                section.note(key, f"{key} is {error.found!r}", f"give {error.expected}")
                return False
        except SlaqError as error:
            self._notes.add_error((*section.place, key), error)
            return False
        return True

    def _programs(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        reference = section.text("program", '"file.py:function" or "package.module:function"')
        data = self._data(section)
        if reference is None:
            return []
        programs = self._imported(section, "program", reference, grid)
        return [ProgramWork(reference=reference, program=program, data=data) for program in programs]

    def _imported(
        self,
        section: Section,
        key: str,
        reference: str,
        grid: list[dict[str, Any]],
        before: tuple[str, ...] = ("a context",),
    ) -> list[Callable[..., Any]]:
        """Return the function with each combination of parameters filled in; none where it has mistakes."""
        place = (*section.place, key)
        try:
            function = import_program(reference, self._notes.path.parent.resolve())
            place = (*section.place, "parameters")
            return [with_parameters(function, parameters, before) for parameters in grid]
        except ProgramError as error:
            self._notes.add(place, error.found, error.remedy)
            return []

    def _fits(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        if self._engine != "spark":
            section.note("fit", "fit is for Spark", 'add engine = "spark" to [cluster], or use program')
        others = [key for key in COMMAND_KEYS if key != "trains"]
        section.refuse(
            (*DATA_KEYS, "partitions", *others),
            "is no key of a job with fit",
            "read the data in the function",
        )
        reference = section.text("fit", '"file.py:function" or "package.module:function"')
        trains = section.take("trains", "true or false", bool)
        if reference is None:
            return []
        functions = self._imported(section, "fit", reference, grid, ("a Spark session", "a context"))
        return [FitWork(reference=reference, fit=one, trains=trains is not False) for one in functions]

    def _data(self, section: Section) -> Data | None:
        """Take where the data comes from, and load it."""
        target = section.text("target", "the name of the target's column")
        value = section.take("data", "a path, or a table {generate = ...}", str, dict)
        if value is None:
            return None
        source: Source | None
        if isinstance(value, dict):
            if target is not None:
                section.note(
                    "target", "target names a column of a file, and this data is generated", "remove it"
                )
            source = _generated(Section(value, (*section.place, "data"), self._notes))
        else:
            source = FileSource(path=self._notes.path.parent / Path(value).expanduser(), target=target)
        loaded = None if source is None else self._load(source)
        if isinstance(loaded, DataError):
            self._notes.add_error((*section.place, "data"), loaded)
            return None
        return loaded

    def _commands(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        words = _words(section)
        cwd = section.path("cwd") or self._notes.path.parent
        if not cwd.is_dir():
            section.note("cwd", f"there is no folder {cwd}", "make it, or name another")
        env = _env(section)
        pattern, file = section.text("loss_pattern"), section.text("loss_file")
        column = section.text("loss_column")
        if pattern is not None:
            try:
                self._vocabulary.check_pattern(pattern)
            except SlaqError as error:
                self._notes.add_error((*section.place, "loss_pattern"), error)
            if file is not None:
                section.note("loss_file", "there are both loss_pattern and loss_file", "give one of them")
        if column is not None and file is None:
            section.note("loss_column", "loss_column is there without loss_file", "name the file: loss_file")
        trains = section.take("trains", "true or false", bool)
        if trains is False and (pattern is not None or file is not None):
            section.note("trains", "this job has a loss and does not train", "remove trains, or the loss")
        if words is None:
            return []
        _check_placeholders(section, words, grid)
        _check_program(section, words[0], cwd, env)
        work = CommandWork(
            argv=tuple(words),
            cwd=cwd.resolve(),
            env=env,
            loss_pattern=pattern,
            loss_file=None if file is None else Path(file),
            loss_column=column,
            trains=trains is not False,
        )
        return [replace(work, argv=_filled(words, parameters)) for parameters in grid]


def _names(name: str, count: int) -> list[str]:
    """Return the names of the jobs that one table stands for."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def _loaded(source: Source) -> Data | DataError:
    try:
        return source.load()
    except DataError as error:
        return error


def _targets_remedy(section: Section) -> str:
    if str(section.given("data")).lower().endswith(".csv"):
        return 'name their column: target = "..."'
    return "save them beside the features (.npz: as y), or use other data"


def _generated(section: Section) -> GeneratedSource | None:
    before = len(section.notes)
    kind = section.choice("generate", "generator", tuple(GENERATORS))
    if kind is None and not section.had("generate"):
        section.notes.add(
            section.place, "data is a table without generate", 'give {generate = "classification"}'
        )
    groups = {"blobs": 8, "documents": 10}.get(kind or "", 2)
    source = GeneratedSource(
        generate=kind or "",
        rows=_or(section.whole("rows", least=1), 1000),
        features=_or(section.whole("features", least=1), 20),
        groups=_or(section.whole("groups", least=2), groups),
        noise=_or(section.number("noise", least=0.0, wanted="a number of at least 0"), 0.1),
        seed=_or(section.whole("seed", least=0), 0),
    )
    section.close("generated data")
    if len(section.notes) == before and source.rows * source.features > LARGEST:
        section.note(
            "rows", f"there are {source.rows} x {source.features} numbers", f"give at most {LARGEST}"
        )
    return None if len(section.notes) > before else source


def _or(value: T | None, usual: T) -> T:
    return usual if value is None else value


def _words(section: Section) -> list[str] | None:
    """Take the command as words: a list of texts, or one text cut as a shell would cut it."""
    wanted = 'a text, or a list such as ["python", "train.py"]'
    value = section.take("command", wanted, str, list)
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            section.note("command", f"command cannot be cut into words ({error})", "close the quotes")
            return None
    if value is None:
        return None
    if not value or not all(isinstance(word, str) for word in value) or not value[0]:
        section.note("command", "command is no list of words", f"give {wanted}")
        return None
    return list(value)


def _env(section: Section) -> dict[str, str]:
    value = section.take("env", "a table of texts", dict) or {}
    for name, text in value.items():
        if not isinstance(text, str) or not name or "=" in name or "\0" in name + text:
            section.notes.add(
                (*section.place, "env", name), f"{name} in env is {described(text)}", "give a text in quotes"
            )
            return {}
    return dict(value)


def _check_placeholders(section: Section, words: list[str], grid: list[dict[str, Any]]) -> None:
    """Note parameters that the command does not use, and values that do not fit into a command."""
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    for name, value in (item for parameters in grid for item in parameters.items()):
        place = (*section.place, "parameters", name)
        if name not in used:
            section.notes.add(
                place, f"the command does not use the parameter {name}", f"write {{{name}}} where it goes"
            )
        elif not isinstance(value, str | int | float):
            section.notes.add(place, f"{name} is {described(value)}", "give a text or a number")


def _filled(words: list[str], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command with {name} replaced by the parameter of that name."""

    def value(match: re.Match[str]) -> str:
        return str(parameters[match[1]]) if match[1] in parameters else match[0]

    return tuple(_PLACEHOLDER.sub(value, word) for word in words)


def _check_program(section: Section, program: str, cwd: Path, env: Mapping[str, str]) -> None:
    if _PLACEHOLDER.search(program):
        return
    if os.sep in program:
        if not os.access(cwd / program, os.X_OK) or not (cwd / program).is_file():
            section.note("command", f"{program} is no executable file", "check the path, or chmod +x it")
    elif shutil.which(program, path=env.get("PATH", os.environ.get("PATH", os.defpath))) is None:
        section.note("command", f"there is no program {program!r} on the PATH", "check it, or give its path")


def _usual_name(work: Work) -> str:
    """Return what a job is called whose owner gave it no name."""
    if isinstance(work, AlgorithmWork):
        return work.algorithm
    if isinstance(work, ProgramWork | FitWork):
        return work.reference.rpartition(":")[2]
    return Path(command_name(work.argv)).stem


def _numbered(jobs: Sequence[JobTable]) -> list[JobTable]:
    """Return the jobs under names that differ: of those that share a usual name, each gets a number."""
    often = Counter(job.name for job in jobs)
    taken = {job.name for job in jobs}
    named = []
    for job in jobs:
        name, number = job.name, 0
        while often[job.name] > 1 and name in taken:
            number += 1
            name = f"{job.name}-{number}"
        taken.add(name)
        named.append(replace(job, name=name))
    return named
