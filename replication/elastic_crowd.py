"""Elastic jobs that share a machine: fixed workers under two policies, and elastic ones in exact and in scale mode.

Each seed draws jobs that learn scikit-learn's digits with `slaq.elastic`, with their own widths, learning rates and
lengths, which arrive one after another on the cores of this machine. The same jobs run in four ways, in turns. All
is measured by what the jobs write down after each pass: the loss over all that they learn from, and the accuracy on
what they do not.

    python -m replication --only elastic_crowd
"""

import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.elastic_simulation import HEADING, missed
from replication.elastic_ways import HERE, PROGRAMS
from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
    SkippedError,
)
from replication.intervals import changes, estimate, number, percent, sentences, shown, table
from replication.quiet import busy_share, noise
from slaq import Cluster
from slaq.core.quality import time_to
from slaq.engines.processes import cores_here
from slaq.handle import Job
from slaq.reports.style import BLUE, MUTED, few_ticks

EPOCH_SECONDS = 0.5
SHARE = 0.9
BATCH = 64
FAIR, FIXED, ELASTIC, SCALED = (
    "fair, 1 worker",
    "slaq, 1 worker",
    "slaq, elastic exact",
    "slaq, elastic scale",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the jobs are scheduled, and how many workers they may hold."""

    policy: str
    mode: str
    #: None for as many as there are cores.
    workers: int | None


WAYS: Mapping[str, Way] = {
    FAIR: Way(policy="fair", mode="exact", workers=1),
    FIXED: Way(policy="total-quality", mode="exact", workers=1),
    ELASTIC: Way(policy="total-quality", mode="exact", workers=None),
    SCALED: Way(policy="total-quality", mode="scale", workers=None),
}
#: The seeds of a full run: one takes four minutes.
SEEDS = 1
MEASURES = {
    "to_90": "time to 90% [s]",
    "ended": "completion [s]",
    "makespan": "makespan [s]",
    "speed": "samples / s",
    "accuracy": "accuracy at the end, %",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many jobs arrive how fast, and how long they take."""

    jobs: int
    mean_arrival: float
    #: Passes of a job, by the width of its network: about ten seconds of one core.
    passes: Mapping[int, int]


FULL = Crowd(jobs=8, mean_arrival=2.5, passes={16: 40, 32: 28, 64: 12})
QUICK = Crowd(jobs=2, mean_arrival=0.1, passes={8: 3, 16: 2})
QUICK_WAYS = (FIXED, ELASTIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One job to be."""

    name: str
    #: Seconds after the first.
    arrival: float
    width: int
    rate: float
    passes: int
    seed: int


def plan(crowd: Crowd, seed: int) -> list[Planned]:
    """Return a seed's jobs in the order of their arrival."""
    rng = np.random.default_rng([seed, 4])
    waits = rng.exponential(crowd.mean_arrival, crowd.jobs)
    widths = [list(crowd.passes)[place % len(crowd.passes)] for place in rng.permutation(crowd.jobs)]
    return [
        Planned(
            name=f"digits-{place}",
            arrival=float(arrival),
            width=width,
            rate=float(np.exp(rng.uniform(*np.log((0.003, 0.05))))),
            passes=max(1, round(crowd.passes[width] * float(rng.uniform(0.7, 1.3)))),
            seed=place,
        )
        for place, (arrival, width) in enumerate(zip(np.cumsum(waits) - waits[0], widths, strict=True))
    ]


def run(settings: Settings) -> Results:
    """Train every seed's jobs in all ways, and simulate."""
    for module, extra in (("torch", "torch"), ("sklearn", "sklearn")):
        if find_spec(module) is None:
            raise SkippedError(f"it needs {module}: pip install slaq[{extra}]")
    crowd, ways = (QUICK, QUICK_WAYS) if settings.quick else (FULL, tuple(WAYS))
    seeds = settings.seeds[: 1 if settings.quick else SEEDS]
    rounds, busy = [], list[float | None]()
    for place, seed in enumerate(seeds):
        jobs = plan(crowd, seed)
        found = {}
        for turn, name in enumerate(ways if place % 2 == 0 else ways[::-1]):
            busy.append(busy_share(0.1 if settings.quick else 1.0))
            found[name] = train(WAYS[name], jobs)
            settings.progress((place + (turn + 1) / len(ways)) / len(seeds))
        measure(found)
        rounds.append({"seed": seed, "ways": {name: found[name] for name in ways}})
    return {
        "cores": cores_here(),
        "jobs": [asdict(job) for job in plan(crowd, seeds[0])],
        "mean_arrival": crowd.mean_arrival,
        "epoch_seconds": EPOCH_SECONDS,
        "busy": busy,
        "rounds": rounds,
    }


def train(way: Way, jobs: Sequence[Planned]) -> dict[str, Any]:
    """Submit each job at its arrival, wait for all, and return what they wrote down, by job."""
    with tempfile.TemporaryDirectory(prefix="slaq-crowd-") as folder:
        arrived: dict[str, tuple[float, Job]] = {}
        with Cluster(cores_here(), way.policy, epoch_seconds=EPOCH_SECONDS) as cluster:
            began = time.time()
            for job in jobs:
                time.sleep(max(0.0, began + job.arrival - time.time()))
                arrived[job.name] = time.time(), _submit(cluster, way, job, Path(folder))
            cluster.wait()
            for _, handle in arrived.values():
                handle.result()
            cpu = sum(one.cpu_seconds for _, handle in arrived.values() for one in handle.observations)
        found: dict[str, Any] = {"runs": {}, "cpu": cpu}
        for name, (at, _) in arrived.items():
            lines = [json.loads(line) for line in Path(folder, name).read_text().splitlines()]
            found["runs"][name] = {
                "curve": [(line["at"] - at, line["loss"]) for line in lines],
                "accuracy": 100.0 * lines[-1]["accuracy"],
                "samples": lines[-1]["samples"],
                "shared": lines[-1]["shared"] / lines[-1]["samples"],
                "ended_at": lines[-1]["at"] - began,
            }
        return found


def _submit(cluster: Cluster, way: Way, job: Planned, folder: Path) -> Job:
    words: list[str | Path] = [sys.executable, PROGRAMS / "digits.py", folder / job.name, "--mode", way.mode]
    for name in ("width", "rate", "passes", "seed"):
        words += [f"--{name}", str(getattr(job, name))]
    environment = {"PYTHONPATH": str(HERE.parent)}
    return cluster.submit_command(
        [*words, "--batch", str(BATCH)], name=job.name, max_cores=way.workers, env=environment
    )


def measure(found: Mapping[str, Any]) -> None:
    """Add what each way achieved; the best loss of a job is the best that any way found."""
    names = next(iter(found.values()))["runs"]
    best = {
        name: min(loss for way in found.values() for _, loss in way["runs"][name]["curve"]) for name in names
    }
    for way in found.values():
        runs = way["runs"]
        for name, one in runs.items():
            times, losses = np.array(one["curve"], dtype=np.float64).T
            one["to_90"] = time_to(times, losses, SHARE, best[name])
            one["ended"] = float(times[-1])
        way["to_90"] = float(np.mean([one["to_90"] for one in runs.values()]))
        way["ended"] = float(np.mean([one["ended"] for one in runs.values()]))
        way["makespan"] = max(one["ended_at"] for one in runs.values())
        way["speed"] = sum(one["samples"] for one in runs.values()) / way["makespan"]
        way["accuracy"] = float(np.mean([one["accuracy"] for one in runs.values()]))
        way["shared"] = float(np.mean([one["shared"] for one in runs.values()]))


def change_of(results: Results, way: str, name: str, against: str = FIXED) -> dict[str, float]:
    """Return the change of a measure against another way, paired by seed."""
    rounds = results["rounds"]
    return changes(
        [each["ways"][way][name] for each in rounds], [each["ways"][against][name] for each in rounds]
    )


def sections(results: Results) -> list[Section]:
    """Say what elastic jobs gain on this machine."""
    rounds, cores = results["rounds"], results["cores"]
    names = list(rounds[0]["ways"])
    rows = []
    for way in names:
        cells = [
            shown(estimate(each["ways"][way][name] for each in rounds), 1 if name != "speed" else 0)
            for name in MEASURES
        ]
        against = percent(change_of(results, way, "to_90")) if way != FIXED else "–"
        shared = number(100 * estimate(each["ways"][way]["shared"] for each in rounds)["mean"])
        rows.append((way, *cells, f"{shared}%", against))
    header = ("", *MEASURES.values(), "samples learned on two or more workers", "time to 90%, change")
    present = [way for way in (ELASTIC, SCALED) if way in names]
    return [
        Section(
            heading=HEADING,
            title=f"jobs that share this machine's {cores} cores",
            ours=table(header, rows),
            made=_made(results),
            falls_short=sentences(
                *(
                    missed(f"{way} on {cores} cores", change_of(results, way, "to_90"), -0.10, 0.0)
                    for way in present
                ),
                "Two cores are soon full: while there are two jobs, a worker more for one is a core less for "
                "another.",
                noise(results["busy"]),
            ),
            pictures=(
                Picture(
                    name="elastic-crowd",
                    alt="Mean share of the loss reduction made, by seconds since arrival, in each way.",
                    draw=lambda figure: draw(figure, rounds),
                ),
            ),
            readme=tuple(
                Comparison(
                    what=f"time to 90% of elastic PyTorch jobs in a real run on {cores} cores "
                    f"({way.split()[-1]} mode), against one worker each, both under total quality",
                    paper="–",
                    ours=percent(change_of(results, way, "to_90")),
                )
                for way in present
            ),
        )
    ]


def _made(results: Results) -> str:
    return (
        f"{len(results['jobs'])} jobs per seed, arriving every {results['mean_arrival']:g} s on average, on a "
        f"`slaq` cluster of {results['cores']} cores with an epoch of {results['epoch_seconds']:g} s; "
        f"{'one seed' if len(results['rounds']) == 1 else 'several seeds'}. Each learns scikit-learn's digits "
        "with a small convolutional "
        f"network, SGD with momentum and a batch of {BATCH}, in ten to fifteen seconds of one core, Python's start "
        'included. In scale mode the batch follows the workers, and the rate the batch (`rate="auto"`). Changes '
        "are against total quality with one worker each, paired by seed. A job's best loss is the best that any "
        "way found."
    )


def draw(figure: Figure, rounds: Sequence[Mapping[str, Any]]) -> None:
    """Draw the share of the reduction made by time since arrival, as the mean over all jobs and seeds."""
    axes = figure.subplots()
    styles = {FAIR: (MUTED, ":"), FIXED: ("#1c2126", "--"), ELASTIC: (BLUE, "-"), SCALED: ("#c2703d", "-.")}
    latest = max(
        one["ended"] for each in rounds for way in each["ways"].values() for one in way["runs"].values()
    )
    grid = np.linspace(0.0, latest, 300)
    for name in rounds[0]["ways"]:
        made = []
        for each in rounds:
            for job, one in each["ways"][name]["runs"].items():
                best = min(loss for way in each["ways"].values() for _, loss in way["runs"][job]["curve"])
                times, losses = np.array(one["curve"], dtype=np.float64).T
                lowest = np.minimum.accumulate(losses)
                share = (lowest[0] - lowest) / (lowest[0] - best)
                place = np.searchsorted(times, grid, side="right") - 1
                made.append(np.where(place >= 0, share[np.maximum(place, 0)], 0.0))
        color, dash = styles[name]
        axes.plot(grid, 100.0 * np.mean(made, axis=0), color=color, ls=dash, label=name)
    axes.set(xlabel="seconds since arrival", ylabel="loss reduction made (%)", ylim=(0, 102))
    few_ticks(axes)
    axes.legend(loc="lower right")


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the changes against fixed workers."""
    present = [way for way in (ELASTIC, SCALED) if way in results["rounds"][0]["ways"]]
    return [
        KeyFigure(name=f"time to 90%, {way}, against one worker", value=change_of(results, way, "to_90"))
        for way in present
        if math.isfinite(change_of(results, way, "to_90")["mean"])
    ]


EXPERIMENT = Experiment(
    name="elastic_crowd", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
