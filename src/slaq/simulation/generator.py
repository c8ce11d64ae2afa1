"""Generated workloads: Poisson arrivals, log-normal costs, curves shaped like those of the paper's algorithms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.demand import Demand
from slaq.core.errors import UnknownNameError
from slaq.core.job import JobSpec
from slaq.simulation.workload import SimulatedJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadShape:
    """The distribution of arrivals, costs and limits of jobs.

    The defaults resemble the paper's load (§6.2.1): with 640 cores and fair sharing, generated jobs reach 90%
    of their loss reduction after some 70 s and 95% after some 100 s, on the mean of several seeds.
    """

    #: Mean seconds between two arrivals.
    mean_arrival: float = 15.0
    #: Median CPU seconds of a job from start to end.
    median_cpu_seconds: float = 8100.0
    #: Standard deviation of the logarithm of those CPU seconds.
    sigma: float = 0.6
    #: The most cores that any job can use; others are limited to a half, a quarter or an eighth of it.
    max_cores: int = 640


def generate(
    count: int,
    rng: np.random.Generator,
    shape: WorkloadShape | None = None,
    algorithms: Sequence[str] | None = None,
) -> Workload:
    """Return `count` jobs; the same state of `rng` gives the same workload.

    Algorithms are drawn evenly from those named, by default all of ALGORITHMS.
    """
    names = list(ALGORITHMS) if algorithms is None else list(algorithms)
    for name in names:
        if name not in ALGORITHMS:
            raise UnknownNameError("algorithm", name, ALGORITHMS)
    chosen = [names[index] for index in rng.integers(len(names), size=count)]
    curves = [CurveShape(label=name, losses=ALGORITHMS[name].losses(rng)) for name in chosen]
    return assemble(curves, rng, shape or WorkloadShape())


@dataclass(frozen=True, slots=True)
class CurveShape:
    """The losses of one run, beginning before its first iteration, and the name of its algorithm."""

    label: str
    losses: Floats


def assemble(curves: Sequence[CurveShape], rng: np.random.Generator, shape: WorkloadShape) -> Workload:
    """Return a workload of these curves, in this order, with arrivals and costs drawn from the shape."""
    arrivals = _arrivals(len(curves), rng, shape)
    cpu_seconds = shape.median_cpu_seconds * rng.lognormal(0.0, shape.sigma, len(curves))
    max_cores = _max_cores(len(curves), rng, shape)
    return Workload(
        tuple(
            SimulatedJob(
                spec=JobSpec(
                    id=f"{curve.label.lower()}-{number}",
                    arrival=float(arrival),
                    demand=Demand(most=float(cores)),
                ),
                losses=curve.losses,
                cpu_seconds_per_iteration=float(cost) / (len(curve.losses) - 1),
                algorithm=curve.label,
            )
            for number, (curve, arrival, cost, cores) in enumerate(
                zip(curves, arrivals, cpu_seconds, max_cores, strict=True), start=1
            )
        )
    )


def _arrivals(count: int, rng: np.random.Generator, shape: WorkloadShape) -> Floats:
    """Return the moments of a Poisson process, the first at 0."""
    waits = rng.exponential(shape.mean_arrival, count)
    moments: Floats = np.round(np.cumsum(waits) - waits[:1], 3)
    return moments


def _max_cores(count: int, rng: np.random.Generator, shape: WorkloadShape) -> Integers:
    limits: Integers = np.maximum(shape.max_cores // 2 ** rng.integers(0, 4, count), 1)
    return limits


@dataclass(frozen=True, slots=True)
class AlgorithmCurves:
    """The shape of one algorithm's loss curves."""

    #: Fewest and most iterations.
    iterations: tuple[int, int]
    #: From iteration numbers 0, 1, ... to a loss that falls from 1 towards 0.
    shape: Callable[[Floats, np.random.Generator], Floats]

    def losses(self, rng: np.random.Generator) -> Floats:
        """Return one curve of random length, scale and offset."""
        low, high = np.log(self.iterations)
        length = round(float(np.exp(rng.uniform(low, high))))
        curve = self.shape(np.arange(length + 1.0), rng)
        scale = 10.0 ** rng.uniform(-2.0, 4.0)
        losses: Floats = scale * (curve + rng.uniform(0.0, 2.0))
        return losses


def _sublinear(power: tuple[float, float], rate: tuple[float, float]) -> Callable[..., Floats]:
    """Return the family 1 / (1 + rate k)^power: first-order methods, O(1/k) to O(1/k²) (§4.2.2)."""

    def shape(k: Floats, rng: np.random.Generator) -> Floats:
        steepness = np.exp(rng.uniform(*np.log(rate)))
        curve: Floats = (1.0 + steepness * k) ** -rng.uniform(*power)
        return curve

    return shape


def _boosting(k: Floats, rng: np.random.Generator) -> Floats:
    """Return a fast geometric fall plus a slow 1/k fall: shallow trees fit the easy part first."""
    easy = rng.uniform(0.4, 0.8)
    shrinkage = rng.uniform(0.05, 0.25)
    curve: Floats = easy * (1.0 - shrinkage) ** k + (1.0 - easy) / (1.0 + 0.3 * shrinkage * k)
    return curve


def _quasi_newton(k: Floats, rng: np.random.Generator) -> Floats:
    """Return mu^k in uneven steps: L-BFGS converges linearly or better, with stalls in between.

    Each step multiplies the loss by mu to a random power of mean 1; a failed line search leaves a small rise.
    mu is chosen so that the run ends nearly converged for any length.
    """
    mu = np.exp(-rng.uniform(5.0, 12.0) / len(k))
    leaps = rng.gamma(0.7, 1.0 / 0.7, len(k) - 1)
    curve = np.append(1.0, mu ** np.cumsum(leaps))
    bumps = np.where(rng.random(len(k)) < 0.04, rng.uniform(0.0, 0.08, len(k)), 0.0)
    bumps[0] = 0.0
    result: Floats = curve * (1.0 + bumps)
    return result


def _online(k: Floats, rng: np.random.Generator) -> Floats:
    """Return a 1/k^p fall with the noise of mini-batches, about 1% of the curve's range."""
    curve = _sublinear((0.6, 1.0), (0.1, 0.6))(k, rng)
    noise = rng.normal(0.0, 0.01, len(k))
    noise[0] = 0.0
    result: Floats = curve + noise
    return result


#: The paper's Table 1, by acronym.
ALGORITHMS: Mapping[str, AlgorithmCurves] = {
    "K-Means": AlgorithmCurves((30, 80), _sublinear((1.5, 2.5), (0.2, 1.0))),
    "LogReg": AlgorithmCurves((80, 300), _sublinear((0.8, 1.2), (0.1, 1.0))),
    "SVM": AlgorithmCurves((80, 300), _sublinear((0.9, 1.5), (0.2, 1.5))),
    "SVMPoly": AlgorithmCurves((80, 250), _sublinear((0.7, 1.2), (0.1, 0.8))),
    "GBT": AlgorithmCurves((50, 200), _boosting),
    "GBTReg": AlgorithmCurves((50, 200), _boosting),
    "MLPC": AlgorithmCurves((60, 250), _quasi_newton),
    "LDA": AlgorithmCurves((40, 150), _online),
    "LinReg": AlgorithmCurves((30, 120), _quasi_newton),
}
