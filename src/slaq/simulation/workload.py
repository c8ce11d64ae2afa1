"""Workloads: jobs with their arrivals, costs and loss curves, kept as JSON Lines files."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Any, Self

import numpy as np
from typing_extensions import override

from slaq.core.arrays import Floats
from slaq.core.demand import Demand
from slaq.core.direction import best_of
from slaq.core.errors import DuplicateJobError, WorkloadError
from slaq.core.job import JobSpec
from slaq.jobs.option_types import OptionType, number
from slaq.jobs.options import DEMAND, FIT, conflict_in

#: The path that stands for standard input or output.
STANDARD_STREAM = "-"

_LATEST = 1e9
_MOST_SECONDS = 1e15
_MOST_LOSS = sys.float_info.max


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedJob:
    """One job of a workload: its spec, its costs and its loss curve.

    With n cores an iteration takes serial + cpu / min(n, most) seconds, where `most` is that of its demand; with a
    `worth` there, it takes 1 + (n - 1) / worth times the CPU time on n > 1 of them.
    """

    spec: JobSpec
    #: The losses before the first iteration and after each; empty for a job that reports no loss.
    losses: Floats = field(default_factory=lambda: np.empty(0))
    cpu_seconds_per_iteration: float = 0.0
    #: Seconds per iteration that do not depend on the cores and use no CPU, such as communication.
    serial_seconds_per_iteration: float = 0.0
    #: CPU seconds from start to end of a job that reports no loss.
    cpu_seconds: float = 0.0
    #: The name of the algorithm, for display.
    algorithm: str = ""

    @property
    def iterations(self) -> int:
        """The number of iterations of the job."""
        return max(len(self.losses) - 1, 0)

    @property
    def total_cpu_seconds(self) -> float:
        """CPU seconds from start to end, on one worker."""
        return self.cpu_seconds + self.iterations * self.cpu_seconds_per_iteration

    @property
    def best_loss(self) -> float:
        """The best loss of the whole curve; NaN for a job without one."""
        best = best_of(self.losses.tolist(), self.spec.maximize)
        return math.nan if best is None else best

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedJob) and _as_record(self) == _as_record(other)

    @override
    def __hash__(self) -> int:
        return hash(self.spec)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their arrival, no two with the same id."""

    jobs: tuple[SimulatedJob, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for job in self.jobs:
            if job.spec.id in seen:
                raise DuplicateJobError(job.spec.id)
            seen.add(job.spec.id)
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.spec.arrival)))

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[SimulatedJob]:
        return iter(self.jobs)

    @property
    def specs(self) -> tuple[JobSpec, ...]:
        """The specs of the jobs."""
        return tuple(job.spec for job in self.jobs)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the workload in the file, or on standard input if the path is "-"."""
        if str(path) == STANDARD_STREAM:
            return cls.parse(sys.stdin.buffer.read(), "standard input")
        try:
            content = Path(path).read_bytes()
        except (OSError, ValueError) as error:
            raise WorkloadError(
                str(path), None, f"cannot be read ({_reason(error)})", "check the path"
            ) from None
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, name: str) -> Self:
        """Return the workload in the content of a file; errors use `name` for the file."""
        jobs: dict[str, SimulatedJob] = {}
        lines: dict[str, int] = {}
        for place, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                job = _parse_job(line)
                if job.spec.id in jobs:
                    raise _Malformed(
                        f"the id {_show(job.spec.id)} is also in line {lines[job.spec.id]}",
                        "give each job a different id",
                    )
            except _Malformed as error:
                raise WorkloadError(name, place, error.found, error.remedy) from None
            jobs[job.spec.id] = job
            lines[job.spec.id] = place
        if not jobs:
            raise WorkloadError(
                name, None, "has no job", "write one JSON object per line, or run `slaq workload generate`"
            )
        return cls(tuple(jobs.values()))

    def write(self, path: str | Path) -> None:
        """Write the workload to the file, or to standard output if the path is "-"."""
        text = "".join(json.dumps(_as_record(job)) + "\n" for job in self.jobs)
        if str(path) == STANDARD_STREAM:
            sys.stdout.write(text)
            return
        try:
            Path(path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise WorkloadError(
                str(path), None, f"cannot be written ({_reason(error)})", "check the path"
            ) from None


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """A mistake in one line; the file and the line's number are added later."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.found = found
        self.remedy = remedy


def _parse_job(line: bytes) -> SimulatedJob:
    record = _renamed(_parse_object(line))
    kind = _kind(record)
    _check_fields(record, kind)
    values = {name: _FIELDS[name].read(name, value) for name, value in record.items() if name != "kind"}
    conflict = conflict_in(values)
    if conflict is not None:
        raise _Malformed(*conflict.parts)
    demand = Demand(**{_DEMAND_FIELDS[name]: values.pop(name) for name in _DEMAND_FIELDS if name in values})
    spec = {name: values.pop(name) for name in _SPEC_FIELDS if name in values}
    return SimulatedJob(spec=JobSpec(trains=kind == "ml", demand=demand, **spec), **values)


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with earlier field names replaced by the present ones."""
    for earlier, name in _EARLIER.items():
        if earlier in record and name in record:
            raise _Malformed(f"{earlier} and {name} are the same field", f"keep {name}")
    return {_EARLIER.get(name, name): value for name, value in record.items()}


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise _Malformed("the text is not UTF-8", "save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Malformed(
            f"invalid JSON, {error.msg} at column {error.colno}", "write one JSON object per line"
        ) from None
    except (ValueError, RecursionError):
        raise _Malformed(
            "invalid JSON: a number is too long or lists are nested too deeply", "shorten it"
        ) from None
    if not isinstance(record, dict):
        raise _Malformed(f"{_show(record)} is not a JSON object", 'write {"id": ..., "arrival": ..., ...}')
    return record


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise _Malformed(f"the field {_show(repeated)} is given twice", "keep one of them")
    return record


def _kind(record: Mapping[str, Any]) -> str:
    found = record.get("kind", "ml")
    if found not in _KINDS:
        raise _Malformed(f"kind is {_show(found)}", f"use one of {', '.join(map(repr, _KINDS))}")
    return str(found)


def _check_fields(record: Mapping[str, Any], kind: str) -> None:
    for name in record:
        if name not in _FIELDS:
            close = get_close_matches(name, _FIELDS, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_FIELDS)}"
            raise _Malformed(f"there is no field {_show(name)}", remedy)
        if kind not in _FIELDS[name].kinds:
            raise _Malformed(f"a job of kind {kind!r} has no {name}", "remove it, or change the kind")
    for name, rule in _FIELDS.items():
        if rule.required and kind in rule.kinds and name not in record:
            raise _Malformed(f"the field {name!r} is missing", f"add it: {rule.wanted}")


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field of a line is read."""

    #: Returns the value, or raises ValueError, TypeError or OverflowError.
    convert: Callable[[Any], Any]
    #: Completes the sentence "give ...".
    wanted: str
    required: bool = False
    kinds: tuple[str, ...] = ("ml", "other")

    def read(self, name: str, value: object) -> Any:
        try:
            return self.convert(value)
        except _Malformed:
            raise
        except (ValueError, TypeError, OverflowError):
            raise _Malformed(f"{name} is {_show(value)}", f"give {self.wanted}") from None


def _typed(of: OptionType, **asked: Any) -> _Field:
    """Return a field whose values are of this type."""
    return _Field(of.read, of.wanted, **asked)


def _option(name: str, **asked: Any) -> _Field:
    """Return a field with the values of that option of a job."""
    return _typed(FIT.options[name].type, **asked)


def _identifier(value: Any) -> str:
    text = _text(value)
    if not text.strip():
        raise ValueError
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not value.isprintable():
        raise ValueError
    return value


def _losses(value: Any) -> Floats:
    if not isinstance(value, list):
        raise TypeError
    if len(value) < 2:
        count = "no loss" if not value else "one loss"
        raise _Malformed(
            f"losses holds {count}", "give at least two: before the first iteration and after each"
        )
    for index, loss in enumerate(value):
        if type(loss) not in (int, float) or not -_MOST_LOSS <= loss <= _MOST_LOSS:
            raise _Malformed(f"losses[{index}] is {_show(loss)}", "give a finite number for every loss")
    losses = np.array(value, dtype=np.float64)
    losses.setflags(write=False)
    return losses


_MOMENT = number("seconds", least=0.0, most=_LATEST)
_CPU_SECONDS = number("CPU seconds", above=0.0, most=_MOST_SECONDS)
#: The kinds of jobs in a file: "ml" trains and reports a loss, "other" does not.
_KINDS = ("ml", "other")
_ONLY_ML = ("ml",)
_ONLY_OTHER = ("other",)
#: Earlier names of fields, which files may still use; a unit in a file is a core.
_EARLIER = {
    "min_units": "min_cores",
    "max_units": "max_cores",
    "reserved_units": "reserved",
    "wanted": "stop_at",
}

#: Every field of a line, in the order they are written; `kind` is read before all others.
_FIELDS: Mapping[str, _Field] = {
    "id": _Field(_identifier, "a text that no other job has", required=True),
    "arrival": _typed(_MOMENT, required=True),
    "kind": _Field(_text, "'ml' or 'other'"),
    "algorithm": _Field(_text, "a short text"),
    "weight": _option("weight"),
    "min_cores": _option("min_cores"),
    "max_cores": _option("max_cores"),
    "sizes": _option("sizes"),
    "worth": _typed(DEMAND.options["worth"].type, kinds=_ONLY_ML),
    "reserved": _option("min_cores", kinds=_ONLY_OTHER),
    "target_loss": _option("target_loss", kinds=_ONLY_ML),
    "stop_at": _option("stop_at", kinds=_ONLY_ML),
    "maximize": _option("maximize", kinds=_ONLY_ML),
    "deadline": _typed(_MOMENT, kinds=_ONLY_ML),
    "owner": _Field(_text, "a short text"),
    "cpu_seconds": _typed(_CPU_SECONDS, required=True, kinds=_ONLY_OTHER),
    "cpu_seconds_per_iteration": _typed(_CPU_SECONDS, required=True, kinds=_ONLY_ML),
    "serial_seconds_per_iteration": _typed(number("seconds", least=0.0, most=_MOST_SECONDS), kinds=_ONLY_ML),
    "losses": _Field(_losses, "a list of at least two numbers", required=True, kinds=_ONLY_ML),
}
_OPTIONS = ("weight", "reserved", "target_loss", "stop_at", "maximize", "deadline", "owner")
_SPEC_FIELDS = ("id", "arrival", *_OPTIONS)
#: Fields of a line that make up the demand, and their names there.
_DEMAND_FIELDS = {"min_cores": "least", "max_cores": "most", "sizes": "sizes", "worth": "worth"}


def _as_record(job: SimulatedJob) -> dict[str, Any]:
    """Return the fields of a job's line, without those at their defaults."""
    spec, plain = job.spec, JobSpec(id="")
    record: dict[str, Any] = {"id": spec.id, "arrival": spec.arrival, "kind": _KINDS[not spec.trains]}
    if job.algorithm:
        record["algorithm"] = job.algorithm
    for name in _OPTIONS:
        if getattr(spec, name) != getattr(plain, name):
            record[name] = getattr(spec, name)
    for name, attribute in _DEMAND_FIELDS.items():
        if getattr(spec.demand, attribute) != getattr(plain.demand, attribute):
            record[name] = getattr(spec.demand, attribute)
    if not spec.trains:
        return record | {"cpu_seconds": job.cpu_seconds}
    record["cpu_seconds_per_iteration"] = job.cpu_seconds_per_iteration
    if job.serial_seconds_per_iteration:
        record["serial_seconds_per_iteration"] = job.serial_seconds_per_iteration
    return record | {"losses": job.losses.tolist()}


_BRIEF = Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 40


def _show(value: object) -> str:
    return _BRIEF.repr(value).replace("\n", " ")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
