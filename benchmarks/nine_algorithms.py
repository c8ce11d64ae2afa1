"""Forecast error ten iterations ahead on real runs of the nine algorithms, relative to the true loss."""

import argparse
import json

import numpy as np

from benchmarks.recorded_curves import AHEAD, RecordedCurve, every_place, forecasts
from slaq.cli.demo.jobs import KINDS
from slaq.core.forecast import METHODS
from slaq.jobs.inline import InlineContext

#: Fewest losses known.
EARLIEST = 5


def train(name: str, seed: int, size: float) -> RecordedCurve:
    """Train one job of the demo here and now; return its curve."""
    kind = next(kind for kind in KINDS if kind.name == name)
    rng = np.random.default_rng(seed)
    ctx = InlineContext(kind.data(rng, size))
    kind.program(rng)(ctx)
    return RecordedCurve(source="demo", family=name, losses=np.array(ctx.losses))


def error(curve: RecordedCurve, method: str) -> float:
    """Return the mean relative error over all places."""
    cases = every_place([curve], earliest=EARLIEST)
    said = forecasts(METHODS[method], [curve], cases, (AHEAD,))[:, 0]
    return float(np.mean(np.abs(said / cases.truth - 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=float, default=0.05, help="rows, relative to the demo's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        curves = [train(kind.name, seed, options.size) for seed in range(options.seeds)]
        found[kind.name] = {
            method: float(np.mean([error(curve, method) for curve in curves]))
            for method in ("slaq", "weighted-fit", "strawman", "last")
        }
        if not options.json:
            print(
                f"{kind.name:8s}",
                "  ".join(f"{m} {100 * e:6.2f}%" for m, e in found[kind.name].items()),
                flush=True,
            )
    mean = {method: float(np.mean([row[method] for row in found.values()])) for method in found["kmeans"]}
    print(json.dumps({"mean": mean, "algorithms": found}) if options.json else f"mean     {mean}")


if __name__ == "__main__":
    main()
