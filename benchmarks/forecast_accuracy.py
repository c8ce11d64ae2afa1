"""Forecast error and interval coverage on recorded curves: slaq against the last loss, a line, the paper's fit."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.recorded_curves import AHEAD, Cases, RecordedCurve, cut, macro, read_curves, replay
from slaq.core.arrays import Booleans, Floats
from slaq.core.forecast import METHODS
from slaq.core.forecaster import Forecaster

RIVALS = ("last", "strawman", "weighted-fit")
#: A family with fewer cases is counted in the mean but not held to a limit of its own.
ENOUGH = 20


def run(
    make: Callable[[int], Forecaster], curves: list[RecordedCurve], cases: Cases
) -> tuple[Floats, Booleans]:
    """Return the error AHEAD iterations on, and whether the interval held the truth, for every case."""
    forecaster = make(0)
    errors, covered = np.zeros(len(cases)), np.zeros(len(cases), dtype=bool)
    for due, rows in replay(forecaster, curves, cases):
        forecasts = forecaster.forecasts(rows, (float(AHEAD),))
        off = cases.truth[due] - forecasts.mean[:, 0]
        errors[due] = np.abs(off)
        covered[due] = (off >= -forecasts.below[:, 0]) & (off <= forecasts.above[:, 0])
    return errors, covered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with index.csv.gz and <source>.npz")
    parser.add_argument("--cases", type=int, default=400, help="cases per family")
    parser.add_argument("--earliest", type=int, default=10, help="fewest losses known")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    curves = read_curves(options.data)
    cases = cut(
        curves, np.random.default_rng(options.seed), per_family=options.cases, earliest=options.earliest
    )
    results = {method: run(METHODS[method], curves, cases) for method in ("slaq", *RIVALS)}
    report(results, cases, as_json=options.json)


def report(results: dict[str, tuple[Floats, Booleans]], cases: Cases, *, as_json: bool) -> None:
    everything = np.ones(len(cases), dtype=bool)
    means = {method: macro(errors, cases, everything) for method, (errors, _) in results.items()}
    best = min(RIVALS, key=lambda rival: means[rival][0])
    families = {
        family: {
            "cases": int((cases.family == family).sum()),
            **{method: round(means[method][1][family], 3) for method in results},
            "ratio": round(means["slaq"][1][family] / min(means[r][1][family] for r in RIVALS), 3),
            "coverage": round(float(results["slaq"][1][cases.family == family].mean()), 3),
        }
        for family in means["slaq"][1]
    }
    summary = {
        "cases": len(cases),
        "error_percent_of_range": {method: round(mean, 3) for method, (mean, _) in means.items()},
        "best_rival": best,
        "ratio": round(means["slaq"][0] / means[best][0], 3),
        "worst_family_ratio": max(f["ratio"] for f in families.values() if f["cases"] >= ENOUGH),
        "coverage": round(float(np.mean([f["coverage"] for f in families.values()])), 3),
        "families": families,
    }
    if as_json:
        print(json.dumps(summary))
        return
    print(
        f"{'family':24s}{'cases':>6s}" + "".join(f"{method:>13s}" for method in results) + "   ratio  cover"
    )
    for family, row in families.items():
        cells = "".join(f"{row[method]:13.3f}" for method in results)
        print(f"{family:24s}{row['cases']:6d}{cells}{row['ratio']:8.2f}{row['coverage']:7.2f}")
    cells = "".join(f"{means[method][0]:13.3f}" for method in results)
    print(
        f"{'mean over families':24s}{len(cases):6d}{cells}{summary['ratio']:8.2f}{summary['coverage']:7.2f}"
    )


if __name__ == "__main__":
    main()
