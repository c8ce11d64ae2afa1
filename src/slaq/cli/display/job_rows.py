"""Jobs and their losses as rows with named columns, as CSV or Parquet has them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slaq.cli.display.job_columns import Shown
from slaq.jobs.ranking import diverged

#: What stands before the name of a parameter that another column has.
PREFIX = "parameter_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowField:
    """One column of the rows."""

    name: str
    #: str, int, float or bool; any of its values may be None.
    kind: type
    value: Callable[[Any], Any]


def _of_job(name: str, kind: type) -> RowField:
    return RowField(name=name, kind=kind, value=lambda job: job[name])


def iterations(job: Shown) -> int | None:
    """Return how many iterations a job has made; None before its first loss."""
    return job["iteration"] if job["iteration"] >= 0 else None


def seconds(job: Shown, now: float) -> float | None:
    """Return for how long a job has run; None before its start."""
    return None if job["started_at"] is None else max((job["ended_at"] or now) - job["started_at"], 0.0)


def ranking_fields(jobs: Sequence[Shown], now: float) -> list[RowField]:
    """Return the columns of a ranking."""
    before = (_of_job("id", str), _of_job("state", str))
    after = (
        _of_job("best_loss", float),
        RowField(name="iterations", kind=int, value=iterations),
        RowField(name="seconds", kind=float, value=lambda job: seconds(job, now)),
        _of_job("cpu_seconds", float),
        RowField(name="diverged", kind=bool, value=diverged),
    )
    return _with_parameters(jobs, before, after)


def job_fields(jobs: Sequence[Shown]) -> list[RowField]:
    """Return the columns of a row for each job."""
    texts = [_of_job(name, str) for name in ("job", "group", "owner", "state", "reason", "summary")]
    texts[0] = RowField(name="job", kind=str, value=lambda job: job["id"])
    names = ("first_loss", "loss", "best_loss", "reduction", "cpu_seconds", "weight", "submitted_at")
    numbers = [_of_job(name, float) for name in (*names, "started_at", "ended_at")]
    count = RowField(name="iterations", kind=int, value=iterations)
    maximize = _of_job("maximize", bool)
    attempts, apart = _of_job("attempts", int), RowField(name="diverged", kind=bool, value=diverged)
    tags = RowField(name="tags", kind=str, value=lambda job: " ".join(job["tags"]))
    return _with_parameters(jobs, texts, (count, *numbers, attempts, apart, maximize, tags))


def loss_fields(jobs: Sequence[Shown]) -> list[RowField]:
    """Return the columns of a row for each loss; a row is a pair of a job and an observation."""

    def of_loss(name: str, kind: type, key: str) -> RowField:
        return RowField(name=name, kind=kind, value=lambda row: row[1][key])

    before = (RowField(name="job", kind=str, value=lambda job: job["id"]), _of_job("group", str))
    after = (
        of_loss("iteration", int, "iteration"),
        of_loss("loss", float, "loss"),
        of_loss("time", float, "at"),
        of_loss("cpu_seconds", float, "cpu_seconds"),
        of_loss("wall_seconds", float, "wall_seconds"),
        RowField(name="metrics", kind=str, value=lambda row: _metrics(row[1]["metrics"])),
    )
    whole = _with_parameters(jobs, before, after)
    return [one if one in after else _of_first(one) for one in whole]


def _of_first(field: RowField) -> RowField:
    """Return a column of a job as one of a row that begins with the job."""
    return RowField(name=field.name, kind=field.kind, value=lambda row: field.value(row[0]))


def _metrics(metrics: Mapping[str, float | None]) -> str | None:
    return json.dumps(metrics) if metrics else None


def _with_parameters(
    jobs: Sequence[Shown], before: Iterable[RowField], after: Iterable[RowField]
) -> list[RowField]:
    """Return the columns with one for each parameter that any of the jobs has."""
    before, after = list(before), list(after)
    taken = {field.name for field in (*before, *after)}
    names = dict.fromkeys(name for job in jobs for name in job["parameters"])
    return [*before, *(_parameter(jobs, name, taken) for name in names), *after]


def _parameter(jobs: Sequence[Shown], name: str, taken: set[str]) -> RowField:
    kind = _kind({type(job["parameters"][name]) for job in jobs if name in job["parameters"]})
    column = f"{PREFIX}{name}" if name in taken else name

    def value(job: Shown) -> Any:
        found = job["parameters"].get(name)
        return found if found is None else kind(found)

    return RowField(name=column, kind=kind, value=value)


def _kind(found: set[type]) -> type:
    """Return the type that values of these types have in common."""
    if len(found) == 1:
        return next(iter(found))
    return float if found <= {int, float} else str
