"""Recorded loss curves for the forecasting benchmarks: read, cut into cases, and scored alike for every method."""

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecaster import Forecaster

#: Iterations ahead that are scored.
AHEAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCurve:
    """One training run as somebody recorded it."""

    source: str
    family: str
    losses: Floats
    #: Runs of one task trained for the same thing, so that their losses can be compared; empty where unknown.
    task: str = ""


def read_curves(folder: Path, *, improving: bool = True) -> list[RecordedCurve]:
    """Read every finite curve that was not recorded per mini-batch; those that never improved only if asked to."""
    with gzip.open(folder / "index.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        index = [
            row
            for row in csv.DictReader(lines)
            if row["all_finite"] == "1"
            and (row["improved"] == "1" or not improving)
            and "minibatch" not in row["metric"]
        ]
    arrays = {source: np.load(folder / f"{source}.npz") for source in {row["source"] for row in index}}
    loaded = {source: (file["offsets"], file["y"].astype(float)) for source, file in arrays.items()}
    found = []
    for row in index:
        offsets, losses = loaded[row["source"]]
        start, stop = offsets[int(row["row"])], offsets[int(row["row"]) + 1]
        found.append(
            RecordedCurve(
                source=row["source"], family=row["family"], task=row["task"], losses=losses[start:stop]
            )
        )
    return found


def read_runs(workload: Path) -> list[RecordedCurve]:
    """Read the runs of a workload, such as replication/curves/recorded.jsonl; the family is how an id begins."""
    with workload.open(encoding="utf-8") as lines:
        jobs = [json.loads(line) for line in lines]
    return [
        RecordedCurve(
            source="own", family="own " + job["id"].split("-")[0], losses=np.array(job["losses"], dtype=float)
        )
        for job in jobs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Places in curves to forecast from: the first `known` losses of curve `curve` are given."""

    curve: Integers
    known: Integers
    #: The loss AHEAD iterations on, the last loss given, and the range of the whole curve.
    truth: Floats
    last: Floats
    extent: Floats
    family: np.ndarray
    source: np.ndarray

    def __len__(self) -> int:
        return len(self.curve)


def cut(curves: list[RecordedCurve], rng: np.random.Generator, *, per_family: int, earliest: int) -> Cases:
    """Cut about `per_family` cases of every family, half of them early in the curve (log-uniform)."""
    pairs: list[tuple[int, int]] = []
    for family in sorted({curve.family for curve in curves}):
        members = [i for i, curve in enumerate(curves) if curve.family == family]
        members = [i for i in members if len(curves[i].losses) >= earliest + AHEAD]
        each = max(2, round(per_family / max(len(members), 1) / 2))
        for i in rng.permutation(members)[: per_family // 2].tolist():
            latest = len(curves[i].losses) - AHEAD
            early = np.exp(rng.uniform(np.log(earliest), np.log(latest + 0.99), each)).astype(int)
            pairs += [(i, k) for k in {*early.tolist(), *rng.integers(earliest, latest + 1, each).tolist()}]
    return _cases(curves, pairs)


def every_place(curves: Sequence[RecordedCurve], *, earliest: int) -> Cases:
    """Cut a case at every place of every curve with so many losses before it and AHEAD behind it."""
    places = (range(earliest, len(curve.losses) - AHEAD + 1) for curve in curves)
    return _cases(curves, [(i, k) for i, each in enumerate(places) for k in each])


def _cases(curves: Sequence[RecordedCurve], pairs: list[tuple[int, int]]) -> Cases:
    pairs = sorted(pairs)
    curve, known = np.array(pairs, dtype=np.int64).T
    return Cases(
        curve=curve,
        known=known,
        truth=np.array([curves[i].losses[k - 1 + AHEAD] for i, k in pairs]),
        last=np.array([curves[i].losses[k - 1] for i, k in pairs]),
        extent=np.array([np.ptp(curves[i].losses) for i, _ in pairs]),
        family=np.array([curves[i].family for i, _ in pairs]),
        source=np.array([curves[i].source for i, _ in pairs]),
    )


def replay(
    forecaster: Forecaster, curves: Sequence[RecordedCurve], cases: Cases
) -> Iterator[tuple[Integers, Integers]]:
    """Feed all curves to the forecaster in step; yield (cases, rows) whenever some are due.

    A curve is a row, so that thousands of them go through in one pass, as jobs do in the scheduler.
    """
    used = np.unique(cases.curve)
    row_of = {int(curve): row for row, curve in enumerate(used)}
    forecaster.resize(len(used))
    lengths = np.zeros(len(used), dtype=np.int64)
    rows = np.array([row_of[int(c)] for c in cases.curve])
    np.maximum.at(lengths, rows, cases.known)
    padded = np.zeros((len(used), lengths.max()))
    for row, curve in enumerate(used):
        padded[row, : lengths[row]] = curves[curve].losses[: lengths[row]]
    by_known = np.argsort(cases.known, kind="stable")
    starts = np.searchsorted(cases.known[by_known], np.arange(1, lengths.max() + 2))
    for step in range(lengths.max()):
        alive = np.flatnonzero(lengths > step)
        forecaster.observe(alive, padded[alive, step, None], np.ones(len(alive), dtype=np.int64))
        due = by_known[starts[step] : starts[step + 1]]
        if len(due):
            yield due, rows[due]


def forecasts(
    make: Callable[[int], Forecaster],
    curves: Sequence[RecordedCurve],
    cases: Cases,
    horizons: tuple[int, ...],
) -> Floats:
    """Return what is forecast so many iterations ahead of every case: shape (cases, horizons)."""
    forecaster = make(0)
    said = np.zeros((len(cases), len(horizons)))
    for due, rows in replay(forecaster, curves, cases):
        said[due] = forecaster.forecasts(rows, tuple(map(float, horizons))).mean
    return said


def truths(curves: Sequence[RecordedCurve], cases: Cases, horizons: tuple[int, ...]) -> Floats:
    """Return the losses that came so many iterations after every case; NaN where the curve had ended."""
    found = np.full((len(cases), len(horizons)), np.nan)
    for place, (i, known) in enumerate(zip(cases.curve.tolist(), cases.known.tolist(), strict=True)):
        for column, horizon in enumerate(horizons):
            if known - 1 + horizon < len(curves[i].losses):
                found[place, column] = curves[i].losses[known - 1 + horizon]
    return found


def macro(errors: Floats, cases: Cases, chosen: Booleans) -> tuple[float, dict[str, float]]:
    """Return the mean over families of the mean error in % of the curve's range, and it by family."""
    share = np.minimum(errors / cases.extent, 1.0) * 100.0
    by_family = {
        str(family): float(share[chosen & (cases.family == family)].mean())
        for family in np.unique(cases.family[chosen])
    }
    return float(np.mean(list(by_family.values()))), by_family
