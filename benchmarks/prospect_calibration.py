"""Whether chances and times are what they say, on recorded curves; makes the tables of `slaq.core.reliability`.

With recorded curves, every number is judged with tables that were fitted without the source of the curve.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.recorded_curves import RecordedCurve, read_curves, read_runs
from benchmarks.tune_forecast import HELD_OUT
from slaq.core import reliability
from slaq.core.appraisal import Appraiser
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecast import CurveForecaster
from slaq.core.forecaster import ForecastTable
from slaq.core.job import JobSpec
from slaq.core.progress import TOLERANCE
from slaq.core.quality import done
from slaq.core.roster import Roster
from slaq.core.trajectories import chances, reductions, strides_to_shares, strides_to_target
from slaq.simulation.generator import generate

#: Losses known when a question is asked, and iterations left until the deadline.
KNOWN = (3, 5, 8, 12, 20, 32, 50, 80)
LEFT: Floats = np.array([2.0, 5.0, 10.0, 20.0, 40.0, 80.0])
#: Shares of the whole reduction that are asked for; times are judged at the last two.
SHARES = (0.8, 0.9, 0.95)
#: Curves are followed for so many losses.
LONGEST = 400
#: What keeps the logits of chances from growing without bound where nothing speaks against it.
RIDGE = 1e-5
DECILES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True, slots=True)
class Chances:
    """Questions whether a target is made in time; the first five are what `corrected_chances` takes."""

    kind: Integers
    said: Floats
    time: Floats
    made: Floats
    known: Floats
    #: 1 where it was made in time, else 0.
    came: Floats
    curve: Integers


@dataclass(frozen=True, slots=True)
class Times:
    """Questions when a share of a whole reduction is made, an element each; times are in iterations."""

    #: Whether the end was known; iterations until then, whether it was known or not.
    whole: Booleans
    left: Floats
    known: Floats
    expected: Floats
    took: Floats
    share: Floats
    curve: Integers


Questions = Chances | Times


class Watched:
    """Jobs that report the losses of curves, one iteration a second, and are asked about on the way."""

    def __init__(self, curves: list[Floats], rng: np.random.Generator, *, ends: bool) -> None:
        """With `ends`, slaq knows how many iterations each job makes."""
        self.curves, self.rng, self.ends = curves, rng, ends
        self.lengths = np.array([len(curve) for curve in curves])
        self.roster = Roster(CurveForecaster())
        for number in range(len(curves)):
            self.roster.admit(JobSpec(id=str(number), stop_at=SHARES[-1], deadline=0.0), 0.0)
        self.rows = self.roster.rows()
        if ends:
            self.roster.total[self.rows] = self.lengths - 1.0
        #: After how many losses slaq first said that each share is made; infinite for never.
        self.found = np.full((len(curves), len(SHARES)), np.inf)
        #: After how many losses each share of the fall of the whole curve was made.
        self.came = np.array([[_first_at(c, c[0] - s * (c[0] - c.min())) for s in SHARES] for c in curves])

    def ask(self) -> tuple[list[Chances], list[Times]]:
        """Report all losses, and ask at KNOWN; return the questions about target losses and times."""
        asked, later, times = [], [], []
        for k in range(min(int(self.lengths.max()), LONGEST)):
            going = np.flatnonzero(self.lengths > k)
            rows, second = self.rows[going], np.ones(len(going))
            self.roster.iteration[rows] = k
            losses = np.array([self.curves[number][k] for number in going])
            self.roster.observe(rows, k * second, losses, second * (k > 0), second * (k > 0))
            forecasts = Appraiser(epoch_seconds=1.0).forecasts(self.roster, rows)
            made = reductions(self.roster, rows, forecasts)
            new = (made[:, None] >= np.array(SHARES) - TOLERANCE) & np.isinf(self.found[going])
            self.found[going] = np.where(new, k + 1.0, self.found[going])
            if k + 1 in KNOWN:
                times.append(self._times(going, forecasts, k + 1))
                asked += [] if self.ends else [self._losses(going, forecasts, k + 1)]
                later += list(self._shares(going, forecasts, k + 1, made))
        for kind, said, time, far, by, curve, column, known in later:
            moment = self.found[curve, column]
            fair = moment > known
            in_time, told = (moment <= by).astype(float), np.full(len(kind), float(known))
            every = Chances(kind, said, time, far, told, in_time, curve)
            asked.append(where(every, fair))
        return asked, times

    def _times(self, going: Integers, forecasts: ForecastTable, known: int) -> Times:
        strides = strides_to_shares(self.roster, self.rows[going], forecasts, SHARES)
        took = self.came[going] - known
        curve, column = ((took > 0) & ~np.isnan(strides)).nonzero()
        return Times(
            np.full(len(curve), self.ends), (self.lengths[going] - known)[curve].astype(float),
            np.full(len(curve), float(known)), strides[curve, column], took[curve, column],
            np.array(SHARES)[column], going[curve],
        )  # fmt: skip

    def _losses(self, going: Integers, forecasts: ForecastTable, known: int) -> Chances:
        """Ask for losses from the best so far to a little below the best of the whole curve."""
        best = np.array([self.curves[number][:known].min() for number in going])
        final = np.array([self.curves[number].min() for number in going])
        goal = best - self.rng.uniform(0.0, 1.2, len(going)) * (best - final)
        rows = self.rows[going]
        self.roster.target[rows] = goal
        strides = strides_to_target(self.roster, rows, forecasts)
        self.roster.target[rows] = np.nan
        moment = np.array([_first_at(self.curves[number], g) for number, g in zip(going, goal, strict=True)])
        far = done(self.roster.first[rows], best, goal)
        place, column = self._fair(going, known, goal < best)
        said = chances(strides, np.broadcast_to(LEFT, (len(going), len(LEFT))).copy())[place, column]
        return Chances(
            np.zeros(len(place), dtype=np.int64), said, LEFT[column] / known, far[place],
            np.full(len(place), float(known)), (moment[place] <= known + LEFT[column]).astype(float), going[place],
        )  # fmt: skip

    def _shares(
        self, going: Integers, forecasts: ForecastTable, known: int, made: Floats
    ) -> Iterator[tuple[Any, ...]]:
        """Ask for shares of the whole reduction, which are made when slaq first says so."""
        rows = self.rows[going]
        for number, share in enumerate(SHARES):
            self.roster.stop_at[rows] = share
            strides = strides_to_target(self.roster, rows, forecasts)
            place, column = self._fair(going, known, made < share)
            said = chances(strides, np.broadcast_to(LEFT, (len(going), len(LEFT))).copy())[place, column]
            kind = np.full(len(place), 1 + self.ends)
            by = known + LEFT[column]
            yield kind, said, LEFT[column] / known, made[place] / share, by, going[place], number, known

    def _fair(self, going: Integers, known: int, wanted: Booleans) -> tuple[Integers, Integers]:
        """Return which jobs can be asked about which of LEFT: their curves are long enough to tell."""
        place, column = (wanted[:, None] & (known + LEFT <= self.lengths[going, None])).nonzero()
        return place, column


def _first_at(curve: Floats, goal: float) -> float:
    """Return after how many losses the curve is at its goal."""
    below = np.flatnonzero(curve <= goal + 1e-12 * abs(goal))
    return float(below[0] + 1) if len(below) else np.inf


def joined(parts: list[Any]) -> Any:
    """Return the questions of several parts as one."""
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(kind)))


def where(questions: Any, chosen: Booleans) -> Any:
    """Return some of the questions."""
    return type(questions)(*(getattr(questions, f.name)[chosen] for f in fields(questions)))


# What is fitted.


def descend(gradient: Any, start: Floats, *, least: Floats, steps: int = 400, rate: float = 0.1) -> Floats:
    """Return the parameters that a descent by Adam ends at, none below its least."""
    at, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, steps + 1):
        slope = gradient(at)
        first += 0.1 * (slope - first)
        second += 0.02 * (slope**2 - second)
        speed = rate * (1 - step / (steps + 1))
        at -= speed * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.98**step)) + 1e-9)
        np.maximum(at, least, out=at)
    return at


def fit_chances(asked: Chances, weight: Floats) -> Floats:
    """Return CHANCES: one row per kind, by the likelihood of what came."""
    rows = []
    count = len(reliability.KNOTS)
    for kind in range(3):
        q = where(asked, asked.kind == kind)
        w = weight[asked.kind == kind] / weight[asked.kind == kind].sum()
        time = np.log(q.time.clip(reliability.LEAST_TIME, reliability.MOST_TIME))
        # The logit at a knot is the sum of what it rises by up to there: rises are never below zero.
        place, share = reliability.between_knots(q.said)
        rises = (place[:, None] + share[:, None] - np.arange(count - 1)).clip(0.0, 1.0)
        constant = reliability.constant_terms(q.made, q.known)
        x = np.column_stack((np.ones(len(rises)), rises, time, *constant))

        def cost(at: Floats, x: Floats = x, w: Floats = w, came: Floats = q.came) -> tuple[float, Floats]:
            logit = x @ at
            value = w @ (np.logaddexp(0.0, logit) - came * logit) + RIDGE * (at[1:] @ at[1:])
            slope = x.T @ (w * (1.0 / (1.0 + np.exp(-logit)) - came)) + 2.0 * RIDGE * np.append(0.0, at[1:])
            return float(value), slope

        # What is said with more losses known may be worth less, and is never taken to be worth more.
        bounds = [(None, None)] + [(0.0, None)] * (count + 1) + [(None, 0.0)]
        found = minimize(
            cost, np.append(np.full(count + 2, 0.1), 0.0), jac=True, method="L-BFGS-B", bounds=bounds
        ).x
        rows.append(np.append(np.cumsum(found[:count]), found[count:]))
    return np.array(rows)


def fit_times(asked: Times, weight: Floats) -> Floats:
    """Return TIMES: the times before and after which a tenth of the cases came, by the pinball loss."""
    rows = []
    for whole in (False, True):
        chosen = (asked.whole == whole) & np.isfinite(asked.expected) & (asked.expected > 0)
        q, w = where(asked, chosen), weight[chosen] / weight[chosen].sum()
        left = np.log(q.left / q.known) if whole else np.zeros(len(q.known))
        x = np.column_stack((np.log(q.expected / q.known), left, np.ones(len(left))))
        y = np.log(q.took / q.known)
        row = []
        for share in (0.1, 0.9):

            def slope(
                at: Floats, x: Floats = x, y: Floats = y, w: Floats = w, share: float = share
            ) -> Floats:
                return np.asarray(-x.T @ (w * np.where(y > x @ at, share, share - 1.0)))

            start = np.array([0.4, 0.3 if whole else 0.0, 0.0])
            row.append(descend(slope, start, least=np.array([0.0, 0.0, -np.inf])))
        rows.append(np.concatenate(row))
    return np.array(rows)


# What is judged.


def corrected(asked: Chances, table: Floats) -> Floats:
    """Return the chances that this table makes of what is said."""
    before, reliability.CHANCES = reliability.CHANCES, table
    try:
        return reliability.corrected_chances(
            asked.kind, asked.said[:, None], asked.time[:, None], asked.made, asked.known
        )[:, 0]
    finally:
        reliability.CHANCES = before


def ends_of(asked: Times, table: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the intervals that this table makes, in iterations."""
    rows = table[asked.whole.astype(int)]
    left = np.where(asked.whole, np.log(asked.left / asked.known), 0.0)
    with np.errstate(divide="ignore"):
        crossing = np.log(asked.expected / asked.known)
    low, high = (
        asked.known * np.exp(a * crossing + b * left + c) for a, b, c in (rows[:, :3].T, rows[:, 3:].T)
    )
    most = np.where(asked.whole, asked.left, np.inf)
    return np.fmin(np.fmin(low, most), asked.expected), np.fmax(np.fmin(high, most), asked.expected)


def table(said: Floats, came: Floats, weight: Floats) -> list[dict[str, float]]:
    """Return, for each decile of chances, how many there were, what they said, and what came true."""
    band: Integers = np.clip(np.searchsorted(DECILES, said, side="right") - 1, 0, len(DECILES) - 2)
    rows = []
    for number in range(len(DECILES) - 1):
        inside = band == number
        if inside.any():
            mean, truth = (float(np.average(each[inside], weights=weight[inside])) for each in (said, came))
            rows.append({"cases": int(inside.sum()), "said": round(mean, 3), "came_true": round(truth, 3)})
    return rows


def brier(said: Floats, came: Floats, weight: Floats) -> float:
    return round(float(np.average((said - came) ** 2, weights=weight)), 4)


KINDS = ("target_loss", "share_end_unknown", "share_end_known")


def judge_chances(asked: Chances, said: Floats, weight: Floats) -> dict[str, Any]:
    """Compare what these chances and the trajectories say with what came, by kind of target."""
    found = {}
    for kind, name in enumerate(KINDS):
        chosen = asked.kind == kind
        came, w = asked.came[chosen], weight[chosen]
        rows = table(said[chosen], came, w)
        found[name] = {
            "bands": rows,
            "worst": round(max(abs(row["said"] - row["came_true"]) for row in rows), 3),
            "trajectories": table(asked.said[chosen], came, w),
            "brier": brier(said[chosen], came, w),
            "brier_of_trajectories": brier(asked.said[chosen], came, w),
            "brier_of_the_mean": brier(np.full(len(w), np.average(came, weights=w)), came, w),
        }
    return found


def judge_times(asked: Times, low: Floats, high: Floats, weight: Floats) -> dict[str, Any]:
    """Compare the times expected with those that it took, with the end known and without.

    "off" is the median factor between the two, either way, and "off_from_20" the same from 20 losses on; "longer"
    the share of cases in which it took longer; "too_soon" the share of all cases in which slaq said too early that
    it was made; "covered" the share inside of the 80% intervals, and "width" the usual factor between their ends.
    """
    found = {}
    for whole, name in ((False, "end unknown"), (True, "end known")):
        for share in SHARES[1:]:
            cases = (asked.whole == whole) & (asked.share == share)
            told = cases & (asked.expected > 0)
            off = np.abs(np.log(asked.took[told] / asked.expected[told]))
            inside = (asked.took >= low - 1e-9) & (asked.took <= high + 1e-9)
            found[f"{share:.0%}, {name}"] = {
                "cases": int(told.sum()),
                "off": round(float(np.exp(np.median(off))), 2),
                "off_from_20": round(float(np.exp(np.median(off[asked.known[told] >= 20]))), 2),
                "longer": round(float(np.mean(asked.took[told] > asked.expected[told])), 2),
                "too_soon": round(float(np.mean(asked.expected[cases] == 0)), 2),
                "covered": round(float(np.average(inside[told], weights=weight[told])), 2),
                "width": round(float(np.exp(np.median(np.log(high[told] / low[told])))), 1),
            }
    return found


def questions(curves: list[Floats], seed: int) -> tuple[Chances, Times]:
    """Return all questions about these curves, with their ends known and not."""
    asked, times = [], []
    for ends in (False, True):
        more, others = Watched(curves, np.random.default_rng(seed), ends=ends).ask()
        asked += more
        times += others
    return joined(asked), joined(times)


def alike(curves: list[RecordedCurve], asked: Questions) -> Floats:
    """Return the weights with which every family counts alike."""
    _, family = np.unique([curve.family for curve in curves], return_inverse=True)
    each = family[asked.curve]
    return np.asarray(1.0 / np.bincount(each)[each])


def chosen_curves(folder: Path, runs: Path, per_family: int, rng: np.random.Generator) -> list[RecordedCurve]:
    """Return so many recorded curves of every family that have fallen at all."""
    everything = [c for c in read_curves(folder) + read_runs(runs) if len(c.losses) >= KNOWN[0] + LEFT[0]]
    everything = [c for c in everything if c.losses.min() < c.losses[0]]
    found = []
    for family in sorted({curve.family for curve in everything}):
        members = [curve for curve in everything if curve.family == family]
        found += [members[place] for place in rng.permutation(len(members))[:per_family]]
    return found


def judged_without_source(curves: list[RecordedCurve], asked: Chances, times: Times) -> dict[str, Any]:
    """Judge every source with tables fitted to the others."""
    source = np.array([curve.source for curve in curves])
    weights = alike(curves, asked), alike(curves, times)
    said, low, high = np.zeros(len(asked.said)), *np.zeros((2, len(times.took)))
    for sources in HELD_OUT:
        out, away = np.isin(source[asked.curve], sources), np.isin(source[times.curve], sources)
        said[out] = corrected(where(asked, out), fit_chances(where(asked, ~out), weights[0][~out]))
        low[away], high[away] = ends_of(where(times, away), fit_times(where(times, ~away), weights[1][~away]))
    return {
        "chances": judge_chances(asked, said, weights[0]),
        "times": judge_times(times, low, high, weights[1]),
    }


def source_of(chances_table: Floats, times_table: Floats) -> str:
    """Return the tables as a Python module."""
    lines = [
        '"""The tables of `slaq.core.reliability`, made by `prospect_calibration`; not written by hand."""',
        "",
        "# fmt: off",
    ]
    named = (
        (
            "CHANCES",
            "For a target loss, a share with an unknown end, and one with a known end.",
            chances_table,
        ),
        ("TIMES", "For an unknown end, and a known one: the early time, then the late one.", times_table),
    )
    for name, text, rows in named:
        lines += [f"#: {text}", f"{name}: tuple[tuple[float, ...], ...] = ("]
        lines += [
            "    (" + ", ".join(f"{value:6.2f}" for value in row) + ")," for row in rows.round(2).tolist()
        ]
        lines.append(")")
    return "\n".join([*lines, "# fmt: on", ""])


def told(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was found, line by line."""
    for name, row in found["chances"].items():
        yield (
            f"{name}: Brier score {row['brier']}, of the trajectories alone {row['brier_of_trajectories']},"
            f" of always saying the mean {row['brier_of_the_mean']}; off by {row['worst']} at most"
        )
        yield "  " + "  ".join(f"{b['said']:.2f}: {b['came_true']:.2f} ({b['cases']})" for b in row["bands"])
    for name, row in found["times"].items():
        yield (
            f"time to {name}: off by a factor of {row['off']} (median; {row['off_from_20']} from 20 losses on),"
            f" longer in {row['longer']:.0%}, said to be made too soon in {row['too_soon']:.0%};"
            f" {row['covered']:.0%} inside of 80% intervals, whose ends are a factor of {row['width']} apart"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder with index.csv.gz and <source>.npz; else made-up curves"
    )
    parser.add_argument("--runs", type=Path, default=Path("replication/curves/recorded.jsonl"))
    parser.add_argument(
        "--curves", type=int, default=40, help="curves per family; of made-up ones 20 times as many"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, help="write the tables as Python source to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.data:
        curves = chosen_curves(options.data, options.runs, options.curves, rng)
        asked, times = questions([curve.losses for curve in curves], options.seed)
        found = judged_without_source(curves, asked, times)
    else:
        asked, times = questions([job.losses for job in generate(20 * options.curves, rng)], options.seed)
        same = np.ones(len(asked.said)), np.ones(len(times.took))
        said, spans = corrected(asked, reliability.CHANCES), ends_of(times, reliability.TIMES)
        found = {"chances": judge_chances(asked, said, same[0]), "times": judge_times(times, *spans, same[1])}
    print(json.dumps(found) if options.json else "\n".join(told(found)))
    if options.write and options.data:
        tables = fit_chances(asked, alike(curves, asked)), fit_times(times, alike(curves, times))
        options.write.write_text(source_of(*tables), encoding="utf-8")


if __name__ == "__main__":
    main()
