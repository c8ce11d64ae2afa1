"""Reads what a job does: an algorithm or a program on its data, a fit on Spark, or a command."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from slaq.config.commands import read_commands
from slaq.config.importing import import_program, with_parameters
from slaq.config.section import Diagnostics, Section
from slaq.config.sources import GENERATORS, FileSource, GeneratedSource, Source
from slaq.config.values import AlgorithmWork, Data, FitWork, ProgramWork, Recipe, Vocabulary, Work
from slaq.core.errors import (
    CommandError,
    DataError,
    HyperparameterError,
    ProgramError,
    SlaqError,
    UnknownNameError,
)
from slaq.jobs.options import COMMAND, FIT, PROGRAM, SPARK_PROGRAM, OptionSet

#: What a job does: it has exactly one of these keys.
WORKS = ("algorithm", "program", "fit", "command")
DATA_KEYS = ("data", "target")
#: All that says what a job does; any other key of a job is an option.
WORK_KEYS = (*WORKS, *DATA_KEYS, "parameters")
#: The options that jobs of a file take, by what they do.
OPTION_SETS: tuple[OptionSet[Any], ...] = (PROGRAM, COMMAND, FIT, SPARK_PROGRAM)
#: Numbers that generated data may have.
LARGEST = 10**9

T = TypeVar("T")


class WorkReader:
    """Reads the work of one job after another; data that several jobs name is loaded once."""

    def __init__(self, diagnostics: Diagnostics, vocabulary: Vocabulary, engine: str) -> None:
        self._diagnostics = diagnostics
        self._vocabulary = vocabulary
        self._engine = engine
        self._load = cache(_loaded)

    def read(self, section: Section, grid: list[dict[str, Any]], options: Mapping[str, Any]) -> list[Work]:
        """Return the work for each combination of parameters; combinations with mistakes are left out."""
        chosen = [key for key in WORKS if key in section]
        if len(chosen) != 1:
            found = " and ".join(chosen) if chosen else "neither algorithm, program, fit nor command"
            self._diagnostics.add(section.place, f"this job has {found}", "give exactly one of them")
            section.pass_over(*WORKS, *DATA_KEYS)
            return []
        if chosen == ["fit"]:
            return self._fits(section, grid)
        if chosen == ["command"]:
            if self._engine == "spark":
                section.note("command", "a command cannot run on Spark", "use fit, program or algorithm")
            for key in DATA_KEYS:
                found = f"{key} is for jobs with an algorithm or a program"
                section.refuse(key, CommandError(found, "remove it"))
            return read_commands(section, grid, options)
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
        inner = Section(parameters, (*section.place, "parameters"), self._diagnostics)
        sound = True
        for key, value in parameters.items():
            if key not in recipe.names:
                error = UnknownNameError(f"hyperparameter of {name}", key, recipe.names)
                self._diagnostics.add_error((*inner.place, key), error)
                sound = False
                continue
            # Alone, so that each mistake is told at its own line.
            sound &= self._sound(inner, key, partial(recipe.make, {key: value}))
        if not sound:
            return None
        try:
            return recipe.make(parameters)
        except SlaqError as error:
            self._diagnostics.add_error(inner.place, error)
            return None

    def _sound(self, section: Section, key: str, make: Callable[[], object]) -> bool:
        try:
            make()
        except HyperparameterError as error:
            if error.name == key:
                section.note(key, f"{key} is {error.found!r}", f"give {error.expected}")
                return False
        except SlaqError as error:
            self._diagnostics.add_error((*section.place, key), error)
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
        """Return the function with each combination of parameters; an empty list if there are mistakes."""
        place = (*section.place, key)
        try:
            function = import_program(reference, self._diagnostics.path.parent.resolve())
            place = (*section.place, "parameters")
            return [with_parameters(function, parameters, before) for parameters in grid]
        except ProgramError as error:
            self._diagnostics.add(place, error.found, error.remedy)
            return []

    def _fits(self, section: Section, grid: list[dict[str, Any]]) -> list[Work]:
        if self._engine != "spark":
            section.note("fit", "fit is for Spark", 'add engine = "spark" to [cluster], or use program')
        for key in DATA_KEYS:
            found = f"{key} is not a key of a job with fit"
            section.refuse(key, CommandError(found, "read the data in the function"))
        reference = section.text("fit", '"file.py:function" or "package.module:function"')
        if reference is None:
            return []
        functions = self._imported(section, "fit", reference, grid, ("a Spark session", "a context"))
        return [FitWork(reference=reference, fit=one) for one in functions]

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
            source = _generated(Section(value, (*section.place, "data"), self._diagnostics))
        else:
            source = FileSource(path=self._diagnostics.path.parent / Path(value).expanduser(), target=target)
        loaded = None if source is None else self._load(source)
        if isinstance(loaded, DataError):
            self._diagnostics.add_error((*section.place, "data"), loaded)
            return None
        return loaded


def option_set(section: Section, engine: str) -> OptionSet[Any] | None:
    """Return the options that a job takes; None if the table does not say what the job runs."""
    chosen = [key for key in WORKS if key in section]
    if len(chosen) != 1:
        return None
    if chosen == ["command"]:
        return COMMAND
    if chosen == ["fit"]:
        return FIT
    return SPARK_PROGRAM if engine == "spark" else PROGRAM


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
    before = len(section.diagnostics)
    kind = section.choice("generate", "generator", tuple(GENERATORS))
    if kind is None and not section.had("generate"):
        section.diagnostics.add(
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
    if len(section.diagnostics) == before and source.rows * source.features > LARGEST:
        section.note(
            "rows", f"there are {source.rows} x {source.features} numbers", f"give at most {LARGEST}"
        )
    return None if len(section.diagnostics) > before else source


def _or(value: T | None, usual: T) -> T:
    return usual if value is None else value
