"""Forecast error ten iterations ahead on real runs of the nine algorithms, relative to the true loss."""

import argparse
import json

import numpy as np

from slaq.cli.demo_jobs import KINDS
from slaq.core.arrays import Floats
from slaq.core.forecast import forecast
from slaq.jobs.inline import InlineContext

AHEAD = 10


def losses(name: str, seed: int, size: float) -> Floats:
    """Train one job of the demo here and now; return its losses."""
    kind = next(kind for kind in KINDS if kind.name == name)
    rng = np.random.default_rng(seed)
    ctx = InlineContext(kind.data(rng, size))
    kind.program(rng)(ctx)
    return np.array(ctx.losses)


def error(curve: Floats, method: str) -> float:
    """Return the mean relative error over all places from the fifth loss on."""
    places = range(5, len(curve) - AHEAD + 1)
    off = [abs(forecast(curve[:k], AHEAD, method=method).mean[0] / curve[k - 1 + AHEAD] - 1) for k in places]
    return float(np.mean(off))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=float, default=0.05, help="rows, relative to the demo's")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        curves = [losses(kind.name, seed, options.size) for seed in range(options.seeds)]
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
