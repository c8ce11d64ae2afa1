"""Whether chances are what they say: how often a target foreseen with probability p was made in time."""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.recorded_curves import read_curves
from slaq.core.appraisal import Appraiser
from slaq.core.arrays import Floats, Integers
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec
from slaq.core.progress import SHARES
from slaq.core.prospects import foresee
from slaq.core.roster import Roster
from slaq.core.trajectories import strides_to_shares
from slaq.simulation.generator import generate

#: Losses known when a chance is asked for, and iterations left until the deadline.
KNOWN = (3, 5, 10, 20, 40)
LEFT = (2, 5, 10, 20, 40, 80)
STOP_AT = 0.95
BANDS = np.array([0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0])


class Reported:
    """Jobs that have reported their first losses, one iteration a second, and can be asked about."""

    def __init__(self, curves: list[Floats], targets: Floats) -> None:
        """Give each job its target loss; where that is NaN it wants a share of its whole reduction."""
        self.curves = curves
        self.roster = Roster(CurveForecaster())
        for number, target in enumerate(targets.tolist()):
            loss = None if np.isnan(target) else target
            self.roster.admit(JobSpec(id=str(number), target_loss=loss, stop_at=STOP_AT, deadline=0.0), 0.0)
        self.rows = self.roster.rows()
        self.roster.cores[self.rows] = 1
        self.known = 0

    def report(self) -> None:
        """Let every job whose curve goes on report its next loss."""
        k = self.known
        going = np.array([row for row, curve in zip(self.rows, self.curves, strict=True) if k < len(curve)])
        losses = np.array([curve[k] for curve in self.curves if k < len(curve)])
        second = np.ones(len(going))
        self.roster.observe(going, k * second, losses, second * (k > 0), second * (k > 0))
        self.known += 1

    def chances(self, left: float) -> Floats:
        """Return the chances of making the targets in so many more iterations."""
        now = self.known - 1.0
        self.roster.deadline[self.rows] = now + left
        appraisal = Appraiser(epoch_seconds=1.0).appraise(self.roster, len(self.rows), now)
        return foresee(self.roster, appraisal, np.ones(len(self.rows))).chance

    def found_at(self) -> Floats:
        """Return after how many losses each job was first found to have made its target; infinite for never."""
        found = np.full(len(self.rows), np.inf)
        while self.known < max(map(len, self.curves)):
            self.report()
            done = (self.chances(0.0) == 1.0) & np.isinf(found)
            done &= self.known <= np.array([len(curve) for curve in self.curves])
            found[done] = self.known
        return found


def expected_times(curves: list[Floats]) -> dict[str, dict[str, float]]:
    """Compare the iterations expected until each of SHARES of a curve's whole fall with those that it took.

    "off" is the median factor between the two, either way; "longer" the share of cases in which it took longer than
    expected, or was never expected.
    """
    factors: dict[float, list[float]] = {share: [] for share in SHARES}
    jobs = Reported(curves, np.full(len(curves), np.nan))
    for known in KNOWN:
        while jobs.known < known:
            jobs.report()
        appraisal = Appraiser(epoch_seconds=1.0).appraise(jobs.roster, len(jobs.rows), known - 1.0)
        strides = strides_to_shares(jobs.roster, jobs.rows, appraisal.forecasts, SHARES)
        for column, share in enumerate(SHARES):
            for curve, expected in zip(curves, strides[:, column], strict=True):
                goal = curve[0] - share * (curve[0] - curve.min())
                took = _first_at(curve, goal) - known
                if len(curve) > known and took > 0 and not np.isnan(expected):
                    factors[share].append(took / max(expected, 0.5))
    return {
        f"{share:.0%}": {
            "cases": len(found),
            "off": round(float(np.exp(np.median(np.abs(np.log(np.maximum(found, 1e-9)))))), 2),
            "longer": round(float(np.mean(np.array(found) > 1)), 2),
        }
        for share, found in factors.items()
    }


def cases(curves: list[Floats], rng: np.random.Generator, by_loss: bool) -> tuple[Floats, Floats]:
    """Return the chances foreseen and whether they came true, over all curves long enough.

    A target loss lies between the best loss so far and a little below the best of the whole curve. A share of
    the reduction is made when the job is first found to have made it, as a service that ends it there would.
    """
    foreseen, made = [], []
    lengths = np.array([len(curve) for curve in curves])
    final = np.array([curve.min() for curve in curves])
    unknown = np.full(len(curves), np.nan)
    found = np.array([]) if by_loss else Reported(curves, unknown).found_at()
    for known in KNOWN:
        best = np.array([curve[:known].min() for curve in curves])
        targets = best - rng.uniform(0.0, 1.2, len(curves)) * (best - final) if by_loss else unknown
        if by_loss:
            found = np.array([_first_at(curve, goal) for curve, goal in zip(curves, targets, strict=True)])
        jobs = Reported(curves, targets)
        for _ in range(known):
            jobs.report()
        for left in LEFT:
            asked = (known + left <= lengths) & (found > known)
            foreseen.append(jobs.chances(left)[asked])
            made.append(found[asked] <= known + left)
    return np.concatenate(foreseen), np.concatenate(made).astype(float)


def _first_at(curve: Floats, goal: float) -> float:
    """Return after how many losses the curve is at its goal."""
    below = np.flatnonzero(curve <= goal)
    return float(below[0] + 1) if len(below) else np.inf


def table(foreseen: Floats, made: Floats) -> list[dict[str, float]]:
    """Return, for each band of chances, how many there were, what they said, and what came true."""
    band: Integers = np.clip(np.searchsorted(BANDS, foreseen, side="right") - 1, 0, len(BANDS) - 2)
    rows = []
    for number in range(len(BANDS) - 1):
        inside = band == number
        if inside.any():
            said, came = float(foreseen[inside].mean()), float(made[inside].mean())
            rows.append({"cases": int(inside.sum()), "said": round(said, 3), "came_true": round(came, 3)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder with index.csv.gz and <source>.npz; else made-up curves"
    )
    parser.add_argument("--curves", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.data:
        recorded = read_curves(options.data)
        chosen = rng.permutation(len(recorded))[: options.curves]
        curves = [recorded[place].losses for place in chosen]
    else:
        curves = [job.losses for job in generate(options.curves, rng)]
    result = {}
    for name, by_loss in (("target_loss", True), ("reduction_95", False)):
        foreseen, made = cases(curves, rng, by_loss)
        brier = float(np.mean((foreseen - made) ** 2))
        spread = float(made.mean() * (1 - made.mean()))
        result[name] = {
            "bands": table(foreseen, made),
            "brier": round(brier, 4),
            "brier_of_the_mean": round(spread, 4),
        }
    times = expected_times(curves)
    if options.json:
        print(json.dumps({**result, "times": times}))
        return
    for name, found in result.items():
        print(f"{name}: Brier score {found['brier']}, of always saying the mean {found['brier_of_the_mean']}")
        for row in found["bands"]:
            print(f"  {row['cases']:>6} cases: said {row['said']:.2f}, came true {row['came_true']:.2f}")
    for share, row in times.items():
        print(
            f"time to {share}: off by a factor of {row['off']} (median),"
            f" longer than expected in {row['longer']:.0%}"
        )


if __name__ == "__main__":
    main()
