"""Twenty variants of one real script on this machine: best-first against a queue in the shell.

The script of examples/searching trains a small neural network with scikit-learn, prints its loss on held-out data
pass by pass, and does not mention slaq. All variants are submitted in one go, in a seeded order that is the same in
every way: to a queue in the shell, as many at a time as there are cores with one thread each, or to slaq as one
search. Losses are the same in every way, so that the variant which is the best in the end is known.

    python -m replication --only real_search --python PATH-OF-AN-INTERPRETER-WITH-SCIKIT-LEARN [--quick]
"""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Results,
    Section,
    Settings,
    SkippedError,
)
from replication.intervals import estimate, percent, sentences, shown, table
from replication.quiet import busy_share, noise
from replication.real_scripts import runnable
from replication.script_ways import Bench, Script, Way
from slaq.engines.processes import cores_here
from slaq.jobs.options import ServiceCommandOptions

SCRIPT = Path(__file__).parents[1] / "examples" / "searching" / "network.py"
HEADING = "A search with a real script"
QUEUE, SLAQ = "queue", "slaq, best-first"
WAYS = (QUEUE, SLAQ)
RATES, UNITS, EPOCHS = (0.0003, 0.001, 0.003, 0.01, 0.03), (16, 32, 64, 128), 40
QUICK_RATES, QUICK_UNITS, QUICK_EPOCHS = (0.001, 0.01), (16, 32), 3
#: The orders of submission, and those of a quick run.
ORDERS, QUICK_ORDERS = 3, 1
#: The best variant counts as found once it is so near to its best loss, in parts of its range.
NEAR = 0.01


def variants(rates: Sequence[float], units: Sequence[int], epochs: int) -> list[Script]:
    """Return the script with each combination."""
    return [
        Script(
            path=SCRIPT,
            needs=("sklearn",),
            pattern=re.compile(r"loss ([\d.]+)"),
            arguments=("--rate", f"{rate:g}", "--units", str(width), "--epochs", str(epochs)),
        )
        for rate, width in product(rates, units)
    ]


def run(settings: Settings) -> Results:
    """Run the variants in all ways and orders."""
    quick = settings.quick
    wanted = variants(QUICK_RATES, QUICK_UNITS, QUICK_EPOCHS) if quick else variants(RATES, UNITS, EPOCHS)
    known, _ = runnable(wanted, settings.python)
    if not known:
        raise SkippedError("it needs an environment with scikit-learn: give --python PATH")
    orders = []
    seeds = settings.seeds[: QUICK_ORDERS if quick else ORDERS]
    for index, seed in enumerate(seeds):
        order = [known[place] for place in np.random.default_rng(seed).permutation(len(known))]
        found, busy = {}, {}
        for place, way in enumerate(WAYS if index % 2 == 0 else WAYS[::-1]):
            busy[way] = busy_share()
            found[way] = one(settings.python, way, order)
            settings.progress((index + (place + 1) / len(WAYS)) / len(seeds))
        orders.append({"seed": seed, "busy": busy, "ways": found})
    return summary(orders, len(known))


def one(python: Path, way: str, order: Sequence[Script]) -> dict[str, Any]:
    """Run the variants in one way; return what came of each, and of all."""
    with tempfile.TemporaryDirectory(prefix="slaq-search-") as folder:
        bench = Bench(python=python, folder=Path(folder), cores=cores_here())
        if way == QUEUE:
            return _plain(bench.in_shell(order, at_once=bench.cores))
        options: ServiceCommandOptions = {"group": "network", "policy": "best-first"}
        return _plain(bench.under_slaq(order, policy="total-quality", options=options))


def _plain(way: Way) -> dict[str, Any]:
    return {
        "makespan": way.makespan,
        "cpu": way.cpu_seconds,
        "losses": {name: run.losses for name, run in way.runs.items()},
    }


def summary(orders: Sequence[dict[str, Any]], count: int) -> Results:
    """Return the results: of each way, when the best variant was near its end, without the losses."""
    curves: dict[str, list[float]] = {}
    for order in orders:
        for way in order["ways"].values():
            for name, losses in way["losses"].items():
                curves[name] = max(curves.get(name, []), [loss for _, loss in losses], key=len)
    best = min(curves, key=lambda name: min(curves[name], default=math.inf))
    end = min(curves[best])
    wanted = end + NEAR * (curves[best][0] - end)
    for order in orders:
        for way in order["ways"].values():
            told = way.pop("losses")
            way["found"] = next((at for at, loss in told[best] if loss <= wanted), math.nan)
            way["any_found"] = min(
                (at for one in told.values() for at, loss in one if loss <= wanted), default=math.nan
            )
    return {"cores": cores_here(), "variants": count, "best": best, "orders": orders}


def ratios(orders: Sequence[Mapping[str, Any]], way: str, name: str) -> dict[str, float]:
    """Return a measure of one way relative to the queue, over the orders."""
    return estimate(order["ways"][way][name] / order["ways"][QUEUE][name] for order in orders)


def sections(results: Results) -> list[Section]:
    """Say how soon the best variant is found."""
    orders = results["orders"]
    names = ("found", "any_found", "makespan", "cpu")
    rows = [
        (
            way,
            *(shown(estimate(order["ways"][way][name] for order in orders)) for name in names),
            *(shown(ratios(orders, way, name), 2) for name in ("found", "makespan")),
        )
        for way in WAYS
    ]
    header = (
        *("", "best variant within 1% of its end [s]", "any variant as good [s]", "all ended [s]", "CPU [s]"),
        *("found / queue", "all ended / queue"),
    )
    busy = [share for order in orders for share in order["busy"].values()]
    return [
        Section(
            heading=HEADING,
            title="Twenty variants of one unmodified script: when the best one is found",
            ours=table(header, rows),
            made=f"{results['variants']} variants of examples/searching/network.py on {results['cores']} cores, "
            f"submitted in one go in {len(orders)} random orders. The queue is `xargs -P {results['cores']}`, one "
            "thread for each; slaq is a service under total-quality, given them as jobs of one group with the "
            "policy best-first, without any other option. All ways are measured by what the script "
            "prints. A variant is found once it is within 1% of its range of its best loss.",
            falls_short=sentences(noise(busy)),
            readme=(
                Comparison(
                    what="twenty variants of a real script, time until the best is found, against a shell queue",
                    paper="–",
                    ours=percent(_change(orders)),
                ),
            ),
        )
    ]


def _change(orders: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    ratio = ratios(orders, SLAQ, "found")
    return ratio | {key: ratio[key] - 1.0 for key in ("mean", "low", "high")}


def key_figures(results: Results) -> list[KeyFigure]:
    """Return what must not get worse."""
    value = ratios(results["orders"], SLAQ, "found")
    return [KeyFigure(name="time to the best of a real search against a queue", value=value)]


EXPERIMENT = Experiment(
    name="real_search", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
