"""The jobs of a real run: the nine algorithms in random sizes, with Poisson arrivals, and one that is watched."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from replication.experiment import Settings
from replication.training_sets import mnist
from slaq import Context, Dataset
from slaq.algorithms.gradient_descent import penalised
from slaq.algorithms.logistic_regression import loss_and_gradient
from slaq.cli.demo.jobs import KINDS, USUAL_CORES, PlannedJob, classes
from slaq.core.arrays import Floats

#: The name of the job that is watched.
PROBE = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many jobs arrive how fast, and how large they are."""

    jobs: int
    #: Mean seconds between two arrivals.
    mean_arrival: float
    #: Rows of their data, relative to those of `slaq demo`, on two cores.
    size: float
    #: Rows that the probe trains on, and its iterations.
    probe_rows: int
    probe_iterations: int


FULL = Crowd(jobs=16, mean_arrival=2.2, size=0.6, probe_rows=12_000, probe_iterations=150)
QUICK = Crowd(jobs=4, mean_arrival=0.2, size=0.02, probe_rows=600, probe_iterations=30)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Logistic regression as a plain loop, which tells its accuracy on other rows with every loss."""

    rate: float
    iterations: int
    held_out: Dataset

    def __call__(self, ctx: Context) -> None:
        known = np.unique(np.asarray(self.held_out.y))
        point = np.zeros((ctx.data.num_features + 1, len(known)))
        for _ in range(self.iterations + 1):
            parts = ctx.map(loss_and_gradient, point, known, True)
            loss, gradient = penalised(parts, point, ctx.data.num_rows, 1e-4)
            ctx.report(loss, accuracy=self.accuracy(point, known))
            point = point - self.rate * gradient

    def accuracy(self, point: Floats, known: Any) -> float:
        """Return the share of the rows held out whose class is the likeliest one."""
        said = known[(self.held_out.x @ point[:-1] + point[-1]).argmax(axis=1)]
        return float(np.mean(said == self.held_out.y))


def probe(
    crowd: Crowd, cores: int, rng: np.random.Generator, settings: Settings
) -> tuple[Probe, Dataset, str]:
    """Return Figure 3's job, the rows it trains on, and where they come from."""
    rows = crowd.probe_rows * cores // USUAL_CORES
    many = rows + rows // 4
    digits = None if settings.data is None else settings.data / "mnist" / "mnist.npz"
    if digits is not None and digits.is_file():
        images, labels = mnist(digits)
        chosen = rng.permutation(len(labels))[:many]
        # Centred, so that the mean image does not bound the step.
        x, y, origin, rate = images[chosen] - images.mean(axis=0), labels[chosen], "MNIST", 0.75
    else:
        made = classes(many, 100, 10)(rng, 1.0)
        x, y, origin, rate = made.x, made.y, "ten overlapping classes, made up", 2.0
    held_out = Dataset(x[rows:], y[rows:])
    program = Probe(rate=rate, iterations=crowd.probe_iterations, held_out=held_out)
    return program, Dataset(x[:rows], y[:rows]), origin


def plan(crowd: Crowd, cores: int, seed: int, settings: Settings) -> tuple[list[PlannedJob], str]:
    """Return a seed's jobs in the order of their arrival, and where the probe's data comes from."""
    rng = np.random.default_rng(seed)
    waits = rng.exponential(crowd.mean_arrival, crowd.jobs)
    arrivals = np.cumsum(waits) - waits[0]
    kinds = [KINDS[place % len(KINDS)] for place in rng.permutation(crowd.jobs)]
    jobs = []
    for place, (kind, arrival) in enumerate(zip(kinds, arrivals.tolist(), strict=True)):
        size = crowd.size * cores / USUAL_CORES * float(rng.lognormal(0.0, 0.3))
        program = kind.program(rng)
        jobs.append(
            PlannedJob(
                name=f"{kind.name}-{place}", arrival=arrival, program=program, data=kind.data(rng, size)
            )
        )
    middle = crowd.jobs // 2
    program, data, origin = probe(crowd, cores, rng, settings)
    jobs[middle] = replace(jobs[middle], name=PROBE, program=program, data=data)
    return jobs, origin
