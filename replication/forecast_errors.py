"""How far off forecasts are: from every place of our own runs, and from drawn places of published curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.recorded_curves import (
    Cases,
    RecordedCurve,
    cut,
    every_place,
    forecasts,
    macro,
    read_curves,
    truths,
)
from replication.catalogue import ACRONYMS
from replication.experiment import Settings
from replication.intervals import Estimate, estimate
from slaq.core.arrays import Floats
from slaq.core.forecast import METHODS
from slaq.reports.style import BLUE

HORIZONS = (1, 5, 10)
FARTHEST = HORIZONS[-1]
#: Method, what it is called, colour and marker.
WAYS = {
    "strawman": ("strawman", "#7d858f", "s"),
    "weighted-fit": ("the paper's weighted fit", "#e69f00", "^"),
    "slaq": ("slaq", BLUE, "o"),
}
#: Losses that are known before the first forecast is scored.
EARLIEST = 5
#: Cases of each family of published curves, and the fewest losses known there.
PUBLIC_CASES, PUBLIC_EARLIEST = 200, 10


def own_errors(curves: list[RecordedCurve]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return estimates over runs, by method, horizon and algorithm, of a run's mean relative error.

    Under "range" is the error at the last horizon relative to the run's range instead of the true loss.
    """
    cases = every_place(curves, earliest=EARLIEST)
    true = truths(curves, cases, HORIZONS)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for method in WAYS:
        said = forecasts(METHODS[method], curves, cases, HORIZONS)
        off = np.abs(said / true - 1.0)
        found[method] = {
            str(horizon): _by_algorithm(curves, cases, off[:, place])
            for place, horizon in enumerate(HORIZONS)
        }
        found[method]["range"] = _by_algorithm(curves, cases, np.abs(said - true)[:, -1] / cases.extent)
    return found


def _by_algorithm(curves: list[RecordedCurve], cases: Cases, off: Floats) -> dict[str, Any]:
    means = {place: float(off[cases.curve == place].mean()) for place in np.unique(cases.curve).tolist()}
    by_algorithm = {
        acronym: estimate(mean for place, mean in means.items() if curves[place].family == acronym)
        for acronym in ACRONYMS
        if any(curves[place].family == acronym for place in means)
    }
    return {"algorithms": by_algorithm, "mean": stratified(list(by_algorithm.values()))}


def stratified(parts: Sequence[Estimate]) -> dict[str, float]:
    """Return the mean of independent estimates, all counting alike, with the interval that theirs imply."""
    mean = float(np.mean([part["mean"] for part in parts]))
    half = float(np.sqrt(sum(((part["high"] - part["low"]) / 2) ** 2 for part in parts)) / len(parts))
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": sum(part["n"] for part in parts)}


def example(curves: list[RecordedCurve]) -> dict[str, Any]:
    """Return one run with what was forecast from each of its places, one row per horizon."""
    cases = every_place(curves, earliest=EARLIEST)
    said = {method: forecasts(METHODS[method], curves, cases, HORIZONS).T for method in WAYS}
    return {"run": curves[0].source, "losses": curves[0].losses, "places": cases.known - 1, "forecasts": said}


def published_errors(settings: Settings) -> dict[str, Any] | None:
    """Return estimates over seeds of the error in % of a curve's range; None without published curves."""
    if settings.data is None or not (settings.data / "curves_public").is_dir():
        return None
    curves = read_curves(settings.data / "curves_public")
    seen: dict[str, list[list[float]]] = {method: [] for method in WAYS}
    count = 0
    for place, seed in enumerate(settings.seeds):
        cases = cut(
            curves,
            np.random.default_rng(seed),
            per_family=20 if settings.quick else PUBLIC_CASES,
            earliest=PUBLIC_EARLIEST,
        )
        true, everything = truths(curves, cases, HORIZONS), np.ones(len(cases), dtype=bool)
        count += len(cases)
        for method in WAYS:
            off = np.abs(forecasts(METHODS[method], curves, cases, HORIZONS) - true)
            seen[method].append([macro(column, cases, everything)[0] / 100.0 for column in off.T])
        settings.progress(0.6 + 0.4 * (place + 1) / len(settings.seeds))
    return {
        "curves": len(curves),
        "families": len({curve.family for curve in curves}),
        "cases": count,
        "error": {
            method: {str(h): estimate(row[k] for row in rows) for k, h in enumerate(HORIZONS)}
            for method, rows in seen.items()
        },
    }
