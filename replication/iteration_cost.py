"""Figure 10b: what an iteration costs with more workers and larger models, and how the runtime model follows.

A network trains by plain gradient descent on the local engine, its model from 10 KB to 10 MB, on the same rows in
the same partitions, with one to eight workers. CPU seconds per iteration say whether the work itself grows with the
number of workers; they can be measured with more workers than cores. Seconds per iteration, with no more workers
than cores, say whether c*S/N (the paper's §4.2.1) foretells how long an iteration takes, and how well slaq's
runtime model does, which has learned from the same iterations as a scheduler would.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import Experiment, Picture, Results, Section, Settings
from replication.intervals import Estimate, estimate, listed, percent, sentences, shown, table
from replication.quiet import busy_share, noise
from slaq import Cluster, Context
from slaq.algorithms.gradient_descent import total
from slaq.algorithms.mlp import initial, loss_and_gradient
from slaq.cli.demo.jobs import classes
from slaq.core.arrays import Floats
from slaq.core.job import Observation
from slaq.core.runtime import RuntimeModel
from slaq.engines.processes import cores_here
from slaq.reports.style import BLUE, INK, MUTED

ROWS, FEATURES, CLASSES = 1000, 40, 10
PARTITIONS = 8
WORKERS = (1, 2, 4, 8)
#: Bytes of the model by name, and the iterations that are measured.
SIZES = {"10 KB": (10_000, 60), "100 KB": (100_000, 40), "1 MB": (1_000_000, 12), "10 MB": (10_000_000, 4)}
#: First observations of a job that are passed over: its processes are warming up.
WARM_UP = 1
#: A relation is said to hold as long as it is off by less than this.
TOLERANCE = 0.1
OFF = f"{100 * TOLERANCE:.0f}%"
PENS = {"10 KB": "#56b4e9", "100 KB": "#0072b2", "1 MB": "#e69f00", "10 MB": "#d55e00"}


def layer_sizes(model_bytes: int) -> tuple[int, int, int]:
    """Return the layers of a network whose weights take about that many bytes."""
    hidden = max(1, round((model_bytes / 8 - CLASSES) / (FEATURES + 1 + CLASSES)))
    return FEATURES, hidden, CLASSES


class Training:
    """Gradient descent on a network of these layers, for so many iterations."""

    def __init__(self, sizes: tuple[int, ...], iterations: int) -> None:
        self.sizes = sizes
        self.iterations = iterations

    def __call__(self, ctx: Context) -> None:
        point, known = initial(self.sizes, 0), np.arange(CLASSES)
        before = time.process_time()
        for _ in range(self.iterations + 1):
            loss, gradient = total(ctx.map(loss_and_gradient, point, self.sizes, "tanh", known))
            before, now = time.process_time(), before
            ctx.report(loss / ctx.data.num_rows, driver_seconds=before - now)
            point = point - 0.01 * gradient / ctx.data.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One job, without its warming up."""

    iterations: list[Observation]
    #: CPU seconds of an iteration that the driver used, at the median.
    driver_seconds: float


def run(settings: Settings) -> Results:
    """Measure every size with every number of workers, once per seed."""
    workers = WORKERS[:2] if settings.quick else WORKERS
    sizes = {name: SIZES[name] for name in (("10 KB", "1 MB") if settings.quick else SIZES)}
    seen: dict[tuple[str, int], list[Measured]] = {}
    busy = []
    rounds = [(seed, count) for seed in settings.seeds for count in workers]
    for place, (seed, count) in enumerate(rounds):
        data = classes(ROWS, FEATURES, CLASSES)(np.random.default_rng(seed), 1.0)
        busy.append(busy_share(0.1 if settings.quick else 1.0))
        with Cluster(count, "fair") as cluster:
            for name, (model_bytes, iterations) in sizes.items():
                many = WARM_UP + (3 if settings.quick else iterations)
                job = cluster.submit(
                    Training(layer_sizes(model_bytes), many),
                    data,
                    partitions=PARTITIONS,
                    name=name.replace(" ", "-"),
                )
                job.result()
                driver = [beside["driver_seconds"] for beside in job.metrics]
                seen.setdefault((name, count), []).append(
                    Measured(
                        iterations=job.observations[1 + WARM_UP :],
                        driver_seconds=float(np.median(driver[1 + WARM_UP :])),
                    )
                )
        settings.progress((place + 1) / len(rounds))
    real = [count for count in workers if count <= cores_here()]
    return {
        "rows": ROWS,
        "partitions": PARTITIONS,
        "workers": workers,
        "real_workers": real,
        "busy": busy,
        "models": {name: summary(name, seen, workers, real) for name in sizes},
    }


def summary(
    name: str,
    seen: Mapping[tuple[str, int], list[Measured]],
    workers: Sequence[int],
    real: Sequence[int],
) -> dict[str, Any]:
    """Return estimates over seeds for one model: costs by number of workers, and how far predictions are off."""
    cpu = {count: _medians(seen[name, count], "cpu_seconds") for count in workers}
    wall = {count: _medians(seen[name, count], "wall_seconds") for count in real}
    driver = np.array([each.driver_seconds for each in seen[name, real[-1]]])
    iterations = {count: [one for part in seen[name, count] for one in part.iterations] for count in real}
    learned = predicted(fitted(iterations), workers)
    return {
        "cpu_seconds": [estimate(cpu[count]) for count in workers],
        "cpu_growth": [estimate(cpu[count] / cpu[1] - 1) for count in workers],
        "driver_share": estimate(driver / cpu[real[-1]]),
        "wall_seconds": [estimate(wall[count]) for count in real],
        # How much longer than predicted: by c*S/N with c as seen with one worker, and by the runtime model.
        "proportional_off": [estimate(wall[count] / (cpu[1] / count) - 1) for count in real],
        "proportional": [float(cpu[1].mean()) / count for count in workers],
        "learned": learned,
        "learned_off": [estimate(wall[count] / said - 1) for count, said in zip(real, learned, strict=False)],
    }


def _medians(parts: list[Measured], field: str) -> Floats:
    """Return the median over iterations, for every seed."""
    return np.array([np.median([getattr(one, field) for one in part.iterations]) for part in parts])


def fitted(seen: Mapping[int, list[Observation]]) -> RuntimeModel:
    """Return the runtime model of one job that held each number of workers in turn."""
    model = RuntimeModel(1)
    row = np.zeros(1, dtype=np.int64)
    for turn in zip(*seen.values(), strict=True):
        for count, one in zip(seen, turn, strict=True):
            cpu, wall = np.array([one.cpu_seconds]), np.array([one.wall_seconds])
            model.observe(row, cpu, wall, count * wall)
    return model


def predicted(model: RuntimeModel, workers: Sequence[int]) -> list[float]:
    """Return the seconds per iteration that the model expects with each number of workers."""
    row = np.zeros(1, dtype=np.int64)
    said: list[float] = model.seconds(row, model.cpu[row], np.array(workers, dtype=float))[0].tolist()
    return said


def sections(results: Results) -> list[Section]:
    """Return Figure 10b."""
    models, real = results["models"], results["real_workers"]
    missed = _off(models, "learned_off")
    grows = _off(models, "cpu_growth")
    return [
        Section(
            heading="Figure 10b",
            title="CPU time per iteration against workers and model size, on the local engine",
            paper=(
                "For models of 10 KB to 10 MB the CPU time of an iteration is the same with 1 to 8 workers of 32 "
                "cores each, so an iteration takes c·S/N."
            ),
            ours=f"{_table(results)}\n\n{_reading(results)}",
            made=(
                f"Gradient descent on a network of one hidden layer, {results['rows']:,} rows in "
                f"{results['partitions']} partitions; medians over iterations, intervals over seeds, for each of "
                "which the numbers of workers take turns. The runtime model has seen the same iterations, one with "
                "each number of workers in turn, so its figures are of a fit and not of a forecast."
            ),
            falls_short=sentences(
                f"CPU time per iteration does depend on the number of workers for {listed(grows)}; in the paper "
                "it does not for any size."
                if grows
                else "",
                f"The runtime model is off by more than {OFF} for {listed(missed)}." if missed else "",
                f"A worker is one core here and 32 in the paper; on {real[-1]} cores nothing can be said about how "
                f"long an iteration takes with more than {real[-1]} workers.",
                noise(results["busy"]),
            ),
            pictures=(
                Picture(
                    name="figure-10b",
                    alt="CPU time per iteration against workers, and how far off two predictions are.",
                    draw=lambda figure: draw(figure, results),
                ),
                Picture(
                    name="figure-10b-seconds",
                    alt="Seconds per iteration against workers for each model size: measured, c·S/N, and slaq's.",
                    draw=lambda figure: draw_seconds(figure, results),
                    height=2.6,
                ),
            ),
        )
    ]


def _off(models: Mapping[str, Any], key: str) -> list[str]:
    """Return the models for which a relation does not hold at the most workers."""
    return [name for name, each in models.items() if abs(each[key][-1]["mean"]) > TOLERANCE]


def _table(results: Results) -> str:
    most, most_real = results["workers"][-1], results["real_workers"][-1]
    header = (
        "model",
        "CPU, 1 worker (ms)",
        f"CPU with {most} workers, against 1",
        "the driver's part of it",
        f"an iteration with {most_real} workers (ms)",
        "longer than c·S/N by",
        "longer than the runtime model says by",
    )
    rows = [
        (
            name,
            shown(_milliseconds(each["cpu_seconds"][0]), 1),
            percent(each["cpu_growth"][-1]),
            percent(each["driver_share"]),
            shown(_milliseconds(each["wall_seconds"][-1]), 1),
            percent(each["proportional_off"][-1]),
            percent(each["learned_off"][-1]),
        )
        for name, each in results["models"].items()
    ]
    return table(header, rows)


def _reading(results: Results) -> str:
    models, most, most_real = results["models"], results["workers"][-1], results["real_workers"][-1]
    grows, late = _off(models, "cpu_growth"), _off(models, "proportional_off")
    return sentences(
        f"CPU time changes by more than {OFF} from 1 to {most} workers for {listed(grows)}."
        if grows
        else f"CPU time is the same with 1 and {most} workers, within {OFF}, for every size.",
        f"With {most_real} workers c·S/N is off by more than {OFF} for {listed(late)}."
        if late
        else f"With {most_real} workers c·S/N holds, within {OFF}, for every size.",
        "What the driver does, sending the model out and adding gradients up, is not shortened by workers; the "
        "runtime model learns it as a serial part.",
    )


def _milliseconds(value: Estimate) -> dict[str, float]:
    return {key: each if key == "n" else 1000.0 * each for key, each in value.items()}


def draw(figure: Figure, results: Results) -> None:
    """Draw CPU time by workers for every size, and how far off both predictions are by size."""
    left, right = figure.subplots(1, 2)
    workers = results["workers"]
    for name, each in results["models"].items():
        means = np.array([1000.0 * part["mean"] for part in each["cpu_seconds"]])
        spans = [1000.0 * (part["high"] - part["mean"]) for part in each["cpu_seconds"]]
        left.errorbar(
            workers, means, yerr=spans, color=PENS[name], marker="o", ms=4, capsize=2, label=name
        )  # fmt: skip
    left.set_yscale("log")
    left.set_xscale("log", base=2)
    left.set_xticks(workers, [str(count) for count in workers])
    left.set_xlabel("workers")
    left.set_ylabel("CPU milliseconds per iteration")
    left.legend(loc="upper right", title="model", ncols=2)
    # Room for the legend; an interval that is wider than the chart is cut.
    drawn = [1000.0 * part["mean"] for each in results["models"].values() for part in each["cpu_seconds"]]
    left.set_ylim(min(drawn) / 3, max(drawn) * 25)
    places = np.arange(len(results["models"]))
    for key, name, color, marker in (
        ("proportional_off", "c·S/N", MUTED, "s"),
        ("learned_off", "slaq's runtime model", BLUE, "o"),
    ):
        last = [each[key][-1] for each in results["models"].values()]
        means = np.array([100.0 * part["mean"] for part in last])
        spans = [100.0 * (part["high"] - part["mean"]) for part in last]
        right.errorbar(
            places, means, yerr=spans, linestyle="", color=color, marker=marker, ms=5, capsize=2, label=name
        )
    right.axhline(0.0, color=MUTED, linewidth=0.8)
    right.set_xticks(places, list(results["models"]))
    right.margins(x=0.15)
    right.set_xlabel("model")
    right.set_ylabel(f"% longer than said, {results['real_workers'][-1]} workers")
    low, high = right.get_ylim()
    right.set_ylim(low, high + 0.35 * (high - low))
    right.legend(loc="upper right")


def draw_seconds(figure: Figure, results: Results) -> None:
    """Draw, for every size, how long an iteration takes and what was said, further than can be measured."""
    workers, real = results["workers"], results["real_workers"]
    panels = figure.subplots(1, len(results["models"]), sharex=True, squeeze=False)[0]
    for axes, (name, each) in zip(panels, results["models"].items(), strict=True):
        means = [1000.0 * part["mean"] for part in each["wall_seconds"]]
        axes.plot(
            workers, 1000.0 * np.array(each["proportional"]), color=MUTED, linestyle="--", label="c·S/N"
        )
        axes.plot(workers, 1000.0 * np.array(each["learned"]), color=BLUE, label="slaq's runtime model")
        axes.plot(real, means, linestyle="", marker="o", ms=5, color=INK, label="measured")
        axes.set_title(name)
        axes.set_ylim(bottom=0.0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(workers, [str(count) for count in workers])
        axes.set_xlabel("workers")
    panels[0].set_ylabel("milliseconds per iteration")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)


EXPERIMENT = Experiment(name="iteration_cost", headings=("Figure 10b",), run=run, sections=sections)
