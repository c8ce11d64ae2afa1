"""Reads a jobs file: every mistake in it is found, with its line and remedy, before anything starts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as numbers
from math import prod
from pathlib import Path
from typing import Any

from slaq.config.lines import Place
from slaq.config.section import Diagnostics, Section, described
from slaq.config.toml import read_toml
from slaq.config.values import (
    AlgorithmWork,
    ClusterTable,
    FitWork,
    JobsFile,
    JobTable,
    ProgramWork,
    Vocabulary,
    Work,
    command_name,
)
from slaq.config.works import OPTION_SETS, WORK_KEYS, WorkReader, option_set
from slaq.core.errors import GridError, UnknownNameError
from slaq.jobs.grid import check_count, combinations
from slaq.jobs.options import CLUSTER, COMMAND, PATHS, WAITS, conflict_in


def read_jobs_file(path: Path, vocabulary: Vocabulary) -> JobsFile:
    """Return the contents of the file, data and programs loaded; raises JobsFileError with all mistakes."""
    text, values = read_toml(path)
    diagnostics = Diagnostics(path, text)
    top = Section(values, (), diagnostics)
    cluster = _cluster(top, vocabulary)
    tables = top.take("job", "the jobs as [[job]] tables", list) or []
    top.close("a jobs file")
    if not tables and not len(diagnostics):
        diagnostics.add((), "there is no job", "add a [[job]] table")
    reader = _JobReader(diagnostics, vocabulary, cluster.engine or vocabulary.engines[0])
    jobs = [job for place, table in enumerate(tables) for job in reader.read(table, ("job", place))]
    diagnostics.raise_any()
    return JobsFile(path=path, cluster=cluster, jobs=tuple(_numbered(jobs)))


def read_job(table: Mapping[str, Any], path: Path, vocabulary: Vocabulary) -> JobTable:
    """Return the one job of a table, as if it stood in the file at `path`; raises JobsFileError with mistakes."""
    diagnostics = Diagnostics(path, "")
    jobs = list(_JobReader(diagnostics, vocabulary, vocabulary.engines[0]).read(table, ("job", 0)))
    if len(jobs) > 1:
        diagnostics.add(("job", 0), f"the table stands for {len(jobs)} jobs", "give one, without a grid")
    diagnostics.raise_any()
    return _numbered(jobs)[0]


def _cluster(top: Section, vocabulary: Vocabulary) -> ClusterTable:
    section = top.table("cluster", "a [cluster] table")
    if section is None:
        return ClusterTable()
    cluster = ClusterTable(
        engine=section.choice("engine", "engine", vocabulary.engines),
        master=section.text("master", 'a Spark master such as "local[8]"'),
        cores=section.option(CLUSTER.options["cores"]),
        policy=section.choice("policy", "policy", vocabulary.policies),
        epoch_seconds=section.option(CLUSTER.options["epoch_seconds"]),
        units_per_core=section.option(CLUSTER.options["units_per_core"]),
        concurrent=section.option(CLUSTER.options["concurrent"]),
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
    """Reads one job table after another."""

    def __init__(self, diagnostics: Diagnostics, vocabulary: Vocabulary, engine: str) -> None:
        self._diagnostics = diagnostics
        self._engine = engine
        #: The jobs that each name given in the file stands for: several for a grid.
        self._named: dict[str, list[str]] = {}
        self._taken: set[str] = set()
        self._groups: set[str] = set()
        self._count = 0
        self._works = WorkReader(diagnostics, vocabulary, engine)

    def read(self, table: Any, place: Place) -> Iterator[JobTable]:
        """Yield the jobs of a table: several if the table has a grid, none if the table has mistakes."""
        if not isinstance(table, dict):
            self._diagnostics.add(place, f"a job is {described(table)}", "write jobs as [[job]] tables")
            return
        section = Section(table, place, self._diagnostics)
        before = len(self._diagnostics)
        options = self._options(section)
        name = options.pop("name", None)
        group = options.pop("group", None)
        grid = self._grid(section)
        if "policy" in options and group is None and len(grid) == 1:
            section.note("policy", "the job has a policy and no group", 'add group = "name", or a grid')
        if name is not None:
            self._claim(name, len(grid), (*place, "name"))
        works = self._works.read(section, grid, options)
        section.close("a job")
        if len(self._diagnostics) == before:
            named = name or _usual_name(works[0])
            names, own_group = _names(named, len(works)), self._group_of(named, len(works))
            for work, chosen, parameters in zip(works, names, grid, strict=True):
                own = {key: value for key, value in table.items() if key in WORK_KEYS}
                if "parameters" in own:
                    own["parameters"] = parameters
                yield JobTable(
                    name=chosen,
                    work=work,
                    options=options,
                    table=own,
                    parameters=parameters,
                    group=group,
                    own_group=own_group,
                )

    def _group_of(self, name: str, count: int) -> str | None:
        """Return the name for the group of a grid's jobs, which no other grid of the file has; None for one job."""
        if count == 1:
            return None
        names = (name if number == 1 else f"{name}-{number}" for number in numbers(1))
        group = next(one for one in names if one not in self._groups)
        self._groups.add(group)
        return group

    def _claim(self, name: str, count: int, place: Place) -> None:
        """Take the name of a table, and those of the jobs that it stands for."""
        for claimed in _names(name, count):
            if claimed in self._taken:
                self._diagnostics.add(
                    place, f"there is a job {claimed!r} already", "give each job a name of its own"
                )
            self._taken.add(claimed)
        self._named[name] = _names(name, count)

    def _options(self, section: Section) -> dict[str, Any]:
        """Return the options that the table gives, those without mistakes."""
        own = option_set(section, self._engine)
        if own is None:
            # Which options the job takes is not known; that it does not say what it does is noted elsewhere.
            section.pass_over(*(name for other in OPTION_SETS for name in other.options))
            return {}
        for other in OPTION_SETS:
            for name in other.options.keys() - own.options.keys():
                section.refuse(name, UnknownNameError(f"{own.noun} option", name, own.options))
        taken = {name: section.option(option) for name, option in own.options.items()}
        given = {name: value for name, value in taken.items() if value is not None}
        conflict = conflict_in(given)
        if conflict is not None:
            section.note(conflict.option, *conflict.parts)
        folder = self._diagnostics.path.parent
        for name in given.keys() & PATHS:
            given[name] = str((folder / Path(given[name]).expanduser()).resolve())
        if own is COMMAND:
            given.setdefault("cwd", str(folder.resolve()))
        for name in WAITS:
            if name in given:
                given[name] = self._jobs_above(section, name, given[name])
        return given

    def _jobs_above(self, section: Section, option: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the jobs that names stand for; all stand above, so that no two jobs wait for each other."""
        for name in names:
            if name not in self._named:
                found = f"no job above this one has the name {name!r}"
                section.note(option, found, "name a job that stands above this one")
        return tuple(job for name in names for job in self._named.get(name, ()))

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
                        key, f"the grid of {key} is not a list of values", "give {grid = [0.1, 0.01]}"
                    )
                    return []
        self._count += prod(map(len, choices.values()))
        try:
            check_count(self._count)
            return combinations(choices)
        except GridError as error:
            self._diagnostics.add_error(parameters.place, error)
            return []


def _names(name: str, count: int) -> list[str]:
    """Return the names of the jobs that one table stands for."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def _usual_name(work: Work) -> str:
    """Return the default name of a job."""
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
