"""Ten ordinary scripts on this machine: slaq as it comes against a queue in the shell.

The scripts of examples/scripts train with ten frameworks and kinds of loops, and none of them mentions slaq. They
are submitted in one go, in a seeded order that is the same in every way: a queue in the shell of as many at a time
as there are cores, with one thread each; all at once, with one thread each; slaq with fair sharing; slaq as it
comes, without any option. All ways of one order follow each other. Then each script runs alone, in the shell with
nothing said of threads and under slaq, in turns: what slaq costs where there is nothing to share.

    python -m replication --only real_scripts --python PATH-OF-AN-INTERPRETER-WITH-THE-FRAMEWORKS [--quick]
"""

import math
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
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
from replication.intervals import estimate, listed, percent, sentences, shown, table
from replication.quiet import busy_share, noise
from replication.script_ways import Bench, Script, Way
from slaq.core.quality import first_and_best, time_to
from slaq.engines.processes import cores_here

FOLDER = Path(__file__).parents[1] / "examples" / "scripts"
HEADING = "Ordinary scripts"
QUEUE, AT_ONCE, FAIR, SLAQ, BARE = "queue", "all at once", "slaq, fair", "slaq", "bare"
WAYS = (QUEUE, AT_ONCE, FAIR, SLAQ)
#: The orders of submission, and those of a quick run.
ORDERS, QUICK_ORDERS = 3, 1
#: How often each script runs alone in each way; in a quick run the first script does, once.
ALONE = 4
#: The share of a script's reduction whose time is measured.
SHARE = 0.9

_LOSS = r"\bloss[=: ]+([-+.\deE]+|nan|inf)"
#: By script: the modules that it needs, and where it prints its loss.
KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "scikit_learn": (("sklearn",), _LOSS),
    "lightgbm_regression": (("lightgbm", "sklearn"), r"training's l2: ([-+.\deE]+)"),
    "xgboost_classifier": (("xgboost", "sklearn"), r"train-logloss:([-+.\deE]+)"),
    "catboost_classifier": (("catboost", "sklearn"), r"learn: ([-+.\deE]+)"),
    "pytorch_tqdm": (("torch", "tqdm", "sklearn"), _LOSS),
    "keras_network": (("keras", "torch", "sklearn"), r"- loss: ([-+.\deE]+)"),
    "huggingface_trainer": (("transformers", "accelerate", "torch"), r"'loss': '?([-+.\deE]+|nan)"),
    "dataloader_workers": (("torch", "sklearn"), r"train_loss=([-+.\deE]+)"),
    "learning_rate_step": (("torch",), _LOSS),
    "diverging": (("torch",), _LOSS),
}
#: The scripts of a quick run, of which those run whose modules are there.
QUICK_KINDS = ("scikit_learn", "lightgbm_regression", "xgboost_classifier")


def scripts(names: Sequence[str]) -> list[Script]:
    """Return the scripts of these names."""
    return [
        Script(path=FOLDER / f"{name}.py", needs=KINDS[name][0], pattern=re.compile(KINDS[name][1]))
        for name in names
    ]


def run(settings: Settings) -> Results:
    """Run the scripts in all ways and orders."""
    known, missing = runnable(scripts(QUICK_KINDS if settings.quick else tuple(KINDS)), settings.python)
    if not known:
        raise SkippedError("it needs an environment with the frameworks of its scripts: give --python PATH")
    ways = (QUEUE, SLAQ) if settings.quick else WAYS
    seeds = settings.seeds[: QUICK_ORDERS if settings.quick else ORDERS]
    orders = []
    for index, seed in enumerate(seeds):
        order = [known[place] for place in np.random.default_rng(seed).permutation(len(known))]
        found, busy = {}, {}
        # In turns, so that a machine that warms up favours none.
        for place, way in enumerate(ways if index % 2 == 0 else ways[::-1]):
            busy[way] = busy_share()
            with tempfile.TemporaryDirectory(prefix="slaq-scripts-") as folder:
                bench = Bench(python=settings.python, folder=Path(folder), cores=cores_here())
                found[way] = _run(bench, way, order)
            settings.progress(0.7 * (index + (place + 1) / len(ways)) / len(seeds))
        orders.append({"seed": seed, "order": [one.name for one in order], "busy": busy, "ways": found})
    measure_times(orders)
    return {
        "cores": cores_here(),
        "scripts": [one.name for one in known],
        "missing": missing,
        "orders": orders,
        "alone": _alone(settings, known),
    }


def _alone(settings: Settings, known: Sequence[Script]) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Return the seconds that each script takes alone, and those between its first loss and its last, in turns."""
    chosen, times = (known[:1], 1) if settings.quick else (known, ALONE)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for index, script in enumerate(chosen):
        found[script.name] = {BARE: [], SLAQ: []}
        for turn in range(times):
            for way in (BARE, SLAQ) if turn % 2 == 0 else (SLAQ, BARE):
                with tempfile.TemporaryDirectory(prefix="slaq-scripts-") as folder:
                    bench = Bench(python=settings.python, folder=Path(folder), cores=cores_here())
                    done = (
                        bench.in_shell([script], at_once=1, threads=None)
                        if way == BARE
                        else bench.under_slaq([script], policy="total-quality")
                    )
                losses, ended = done.runs[script.name].losses, done.runs[script.name].ended
                training = losses[-1][0] - losses[0][0] if losses else math.nan
                found[script.name][way].append(
                    {"whole": math.inf if ended is None else ended, "training": training}
                )
        settings.progress(0.7 + 0.3 * (index + 1) / len(chosen))
    return found


def speed_alone(runs: Mapping[str, Sequence[Mapping[str, float]]], name: str) -> float:
    """Return the speed of a script under slaq relative to the bare script, by the fastest run of each."""
    return min(run[name] for run in runs[BARE]) / min(run[name] for run in runs[SLAQ])


def runnable(wanted: Sequence[Script], python: Path) -> tuple[list[Script], list[str]]:
    """Return the scripts whose modules the interpreter has, and the names of the others."""
    modules = sorted({module for script in wanted for module in script.needs})
    ask = "import importlib.util, sys; print(*[m for m in sys.argv[1:] if importlib.util.find_spec(m)])"
    answer = subprocess.run([python, "-c", ask, *modules], capture_output=True, text=True, check=True)
    there = set(answer.stdout.split())
    known = [script for script in wanted if there.issuperset(script.needs)]
    return known, [script.name for script in wanted if script not in known]


def _run(bench: Bench, way: str, order: Sequence[Script]) -> dict[str, Any]:
    """Run the scripts in one way; return what came of each, and of all."""
    match way:
        case "queue":
            return _plain(bench.in_shell(order, at_once=bench.cores))
        case "all at once":
            return _plain(bench.in_shell(order, at_once=len(order)))
        case "slaq, fair":
            return _plain(bench.under_slaq(order, policy="fair"))
        case _:
            return _plain(bench.under_slaq(order, policy="total-quality"))


def _plain(way: Way) -> dict[str, Any]:
    return {
        "makespan": way.makespan,
        "cpu": way.cpu_seconds,
        "runs": {name: {"ended": run.ended, "losses": run.losses} for name, run in way.runs.items()},
    }


def measure_times(orders: Sequence[dict[str, Any]]) -> None:
    """Replace all losses by the times to the share; the best loss of a script is the best that any way found."""
    ways = [way for order in orders for way in order["ways"].values()]
    best: dict[str, float] = {}
    for way in ways:
        for name, run in way["runs"].items():
            _, lowest = first_and_best(np.array([loss for _, loss in run["losses"]], dtype=np.float64))
            best[name] = min(best.get(name, math.inf), math.inf if math.isnan(lowest) else lowest)
    for way in ways:
        for name, run in way["runs"].items():
            times, losses = np.array(run.pop("losses"), dtype=np.float64).reshape(-1, 2).T
            # A script without losses counts its end.
            run["to_90"] = time_to(times, losses, SHARE, best[name]) if len(losses) else run["ended"]
        way["to_90"] = float(np.mean([run["to_90"] for run in way["runs"].values()]))


def ratios(orders: Sequence[Mapping[str, Any]], way: str, name: str) -> dict[str, float]:
    """Return a measure of one way relative to the queue, over the orders."""
    return estimate(order["ways"][way][name] / order["ways"][QUEUE][name] for order in orders)


def sections(results: Results) -> list[Section]:
    """Say what scripts gain and lose under slaq."""
    orders = results["orders"]
    ways = [way for way in WAYS if way in orders[0]["ways"]]
    busy = [share for order in orders for share in order["busy"].values()]
    missing = results["missing"]
    return [
        Section(
            heading=HEADING,
            title="unmodified scripts of ten kinds, submitted at once, against a queue in the shell",
            ours="\n\n".join(_tables(results, ways)),
            made=f"The {len(results['scripts'])} scripts of examples/scripts on {results['cores']} cores, in "
            f"{len(orders)} orders of submission. The queue is `xargs -P {results['cores']}`, with one thread for "
            "each script; all at once is the same with as many at a time as there are scripts; slaq is "
            "`slaq serve`, given the scripts without any option. All ways are measured by what the scripts print; "
            "a script that prints no loss counts its end. CPU time is that of the scripts and of what runs them. "
            "Speeds alone are by the fastest of the runs of each way, because whatever else the machine does slows "
            "threads that wait for each other several times.",
            falls_short=sentences(
                f"Left out because a framework is missing: {listed(missing)}." if missing else "", noise(busy)
            ),
            readme=(
                Comparison(
                    what="ten ordinary scripts in a real run, mean time to 90%, against a shell queue",
                    paper="–",
                    ours=percent(_change(orders, "to_90")),
                ),
                Comparison(
                    what="the same scripts, time until all have ended / CPU time",
                    paper="–",
                    ours=f"{percent(_change(orders, 'makespan'))} / {percent(_change(orders, 'cpu'))}",
                ),
            )
            if SLAQ in ways
            else (),
        )
    ]


def _tables(results: Results, ways: Sequence[str]) -> tuple[str, ...]:
    """Return the tables of all scripts together, of each, and of each alone, with what stands above them."""
    orders = results["orders"]
    rows = [
        (
            way,
            *(
                shown(estimate(order["ways"][way][name] for order in orders))
                for name in ("to_90", "makespan", "cpu")
            ),
            *(shown(ratios(orders, way, name), 2) for name in ("to_90", "makespan", "cpu")),
        )
        for way in ways
    ]
    each = [
        (
            name,
            *(shown(estimate(order["ways"][way]["runs"][name]["to_90"] for order in orders)) for way in ways),
        )
        for name in results["scripts"]
    ]
    header = (
        "",
        "time to 90% [s]",
        "makespan [s]",
        "CPU [s]",
        "time to 90% / queue",
        "makespan / queue",
        "CPU / queue",
    )
    by_itself = [
        (name, *(f"{speed_alone(runs, part):.2f}" for part in ("training", "whole")))
        for name, runs in results["alone"].items()
    ]
    return (
        table(header, rows),
        "Seconds to 90% of each script's reduction:",
        table(("", *ways), each),
        "Speed of one script alone under slaq, relative to the bare script with all threads that it takes by "
        "itself (above 1: faster under slaq):",
        table(("", "from its first loss to its last", "from its start to its end"), by_itself),
    )


def _change(orders: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    ratio = ratios(orders, SLAQ, name)
    return ratio | {key: ratio[key] - 1.0 for key in ("mean", "low", "high")}


def key_figures(results: Results) -> list[KeyFigure]:
    """Return what must not get worse."""
    names = {"to_90": "time to 90%", "makespan": "makespan", "cpu": "CPU time"}
    crowded = [
        KeyFigure(
            name=f"{text} of ordinary scripts against a queue", value=ratios(results["orders"], SLAQ, name)
        )
        for name, text in names.items()
    ]
    speeds = [1.0 / speed_alone(runs, "whole") for runs in results["alone"].values()]
    return [*crowded, KeyFigure(name="time of ordinary scripts alone, against bare", value=estimate(speeds))]


EXPERIMENT = Experiment(
    name="real_scripts", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
