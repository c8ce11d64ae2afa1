"""Reads a jobs file: every mistake in it is found, with its line and remedy, before anything starts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from slaq.config.lines import Place
from slaq.config.section import Notes, Section, described
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
from slaq.config.works import WorkReader

#: Engines that a file may name; the first is the usual one.
ENGINES = ("local", "spark")
#: What only the local engine has, in a job.
LOCAL_KEYS = ("max_restarts", "task_timeout")
#: Jobs of one file, grids expanded.
MOST_JOBS = 1000
LONGEST_NAME = 100


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
    """Reads one job table after another."""

    def __init__(self, notes: Notes, vocabulary: Vocabulary, engine: str) -> None:
        self._notes = notes
        self._engine = engine
        self._names: dict[str, Place] = {}
        self._count = 0
        self._works = WorkReader(notes, vocabulary, engine)

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
        works = self._works.read(section, grid)
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


def _names(name: str, count: int) -> list[str]:
    """Return the names of the jobs that one table stands for."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


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
