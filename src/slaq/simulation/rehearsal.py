"""Decisions about generated jobs, to measure the cost of a decision and of the paper's algorithm."""

import heapq
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Grant, Policy
from slaq.core.appraisal import Appraiser
from slaq.core.arrays import Floats
from slaq.core.decision import Decision
from slaq.core.demand import Demand
from slaq.core.events import Event
from slaq.core.extras import needs
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec
from slaq.core.one_thread import in_one_thread
from slaq.core.roster import Roster
from slaq.ports import Store
from slaq.scheduler import Scheduler
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.workload import Workload

EPOCH_SECONDS = 3.0
#: Jobs whose histories are generated; further jobs are copies of them with different costs.
ORIGINALS = 1000
#: How often the paper's algorithm is measured.
TURNS = 3
#: The fewest and the most losses of a generated history.
YOUNGEST, OLDEST = 5, 90


class _NoStore(Store):
    """Keeps nothing."""

    @override
    def queued(self) -> Sequence[JobSpec]:
        return ()

    @override
    def started(self, job_id: str, now: float) -> None:
        pass

    @override
    def append(self, events: Sequence[Event]) -> None:
        pass

    @override
    def record(self, decision: Decision, grant: Grant) -> None:
        pass


@dataclass(slots=True)
class Rehearsal:
    """A scheduler with jobs in mid-run, for repeated decisions."""

    scheduler: Scheduler
    units: int
    rng: np.random.Generator
    now: float = 0.0

    @property
    def roster(self) -> Roster:
        """The jobs."""
        return self.scheduler.roster

    def decide(self) -> Decision:
        """Make one full decision: add a loss per job, then do what a scheduler does in an epoch."""
        began = time.process_time()
        roster = self.roster
        rows = roster.rows()
        self.now += EPOCH_SECONDS
        fallen = roster.last[rows] - 0.02 * (roster.last[rows] - 0.9 * roster.best[rows])
        losses = fallen * (1 + 0.001 * self.rng.standard_normal(len(rows)))
        took = np.full(len(rows), EPOCH_SECONDS)
        roster.observe(rows, np.full(len(rows), self.now), losses, roster.runtime.cpu[rows], took)
        return self.scheduler.decide(self.now, began)

    def histories(self, count: int) -> list[Floats]:
        """Return the losses in the windows of the first jobs."""
        forecaster = self.roster.forecaster
        assert isinstance(forecaster, CurveForecaster)
        rows = self.roster.rows()[:count]
        return [forecaster.window[row, -int(forecaster.count[row]) :].copy() for row in rows]


def rehearse(jobs: int, units: int, policy: Policy, rng: np.random.Generator) -> Rehearsal:
    """Return a roster of `jobs` jobs in mid-run, of different ages, shapes and costs."""
    forecaster = CurveForecaster()
    roster = Roster(forecaster)
    for number in range(jobs):
        demand = Demand(most=float(rng.integers(8, 513)))
        roster.admit(JobSpec(id=f"job-{number}", demand=demand), 0.0)
    rows = roster.rows()
    originals = rows[:ORIGINALS]
    ages = rng.integers(YOUNGEST, OLDEST + 1, len(originals))
    power, rate = rng.uniform(0.4, 2.0, len(originals)), rng.uniform(0.85, 0.99, len(originals))
    sublinear = rng.random(len(originals)) < 0.5
    for age in range(OLDEST + 1):
        alive = ages >= age
        shape = np.where(sublinear, (1.0 + age) ** -power, rate**age)[alive]
        losses = 0.1 + shape * (1 + 0.005 * rng.standard_normal(alive.sum()))
        nothing = np.zeros(len(losses))
        roster.observe(originals[alive], nothing, losses, nothing, nothing)
    copies = originals[np.arange(jobs) % len(originals)]
    kept = {
        name: roster.arrays()[name]
        for name in ("observed", "first", "last", "best", "recent", "largest_fall")
    }
    for array in (*kept.values(), *forecaster.arrays().values()):
        array[rows] = array[copies]
    roster.runtime.cpu[rows] = rng.lognormal(np.log(3.0 * units / jobs), 0.6, jobs)
    roster.runtime.seen[rows] = 10
    # Every other job has told how many iterations it makes.
    roster.iteration[rows] = roster.observed[rows] - 1
    roster.total[rows] = np.where(rows % 2, roster.iteration[rows] + rng.integers(1, 300, jobs), np.nan)
    clock = VirtualClock()
    scheduler = Scheduler(
        engine=SimulatedEngine(Workload(()), clock, units),
        store=_NoStore(),
        clock=clock,
        policy=policy,
        appraiser=Appraiser(epoch_seconds=EPOCH_SECONDS),
        roster=roster,
    )
    return Rehearsal(scheduler=scheduler, units=units, rng=rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The cost of the same decision with one curve_fit per job and a heap that hands out single units."""

    seconds: float
    #: The measured fits and units, from which the cost of all is scaled.
    fits: int
    units: int


@in_one_thread
def paper_reference(rehearsal: Rehearsal, histories: Sequence[Floats], most_units: int = 20_000) -> Reference:
    """Measure the paper's algorithm: §4.2.2 with scipy for these histories, then Algorithm 1 as printed.

    Each part is done TURNS times, and the median counts.
    """
    jobs, units = len(rehearsal.roster.ids), rehearsal.units
    cost = rehearsal.roster.runtime.cpu[rehearsal.roster.rows()]
    handed_out = min(units, most_units)
    # Fitted once before, so that no turn loads a library.
    curves = [_best_fit(losses) for losses in histories[:1]]
    turns = []
    for _ in range(TURNS):
        began = time.process_time()
        curves = [_best_fit(losses) for losses in histories]
        fitted = time.process_time()
        queue: list[tuple[float, int, int]] = []
        for job in range(jobs):
            heapq.heappush(queue, (_one_more(curves[job % len(curves)], cost[job], 1), job, 1))
        started = time.process_time()
        for _ in range(handed_out):
            _, job, held = heapq.heappop(queue)
            heapq.heappush(queue, (_one_more(curves[job % len(curves)], cost[job], held + 1), job, held + 1))
        handed = time.process_time()
        turns.append((fitted - began, started - fitted, handed - started))
    fitting, starting, handing = np.median(turns, axis=0).tolist()
    seconds = fitting * jobs / len(histories) + starting + handing * units / handed_out
    return Reference(seconds=seconds, fits=len(histories), units=handed_out)


def _one_more(curve: Callable[[float], float], cpu: float, units: int) -> float:
    """Return minus the fall predicted from one more unit; the heap serves the smallest."""
    return curve((units + 1) * EPOCH_SECONDS / cpu) - curve(units * EPOCH_SECONDS / cpu)


def _best_fit(losses: Floats) -> Callable[[float], float]:
    """Return the better of the paper's two families, fitted with exponentially decaying weights."""
    with needs("scipy"):
        from scipy.optimize import OptimizeWarning, curve_fit

    k = np.arange(1.0, len(losses) + 1)
    sigma = 0.8 ** (-0.5 * (len(losses) - k))
    low, extent = losses.min(), max(float(np.ptp(losses)), 1e-12)
    scaled = (losses - low) / extent

    def sublinear(k: Floats, a: float, b: float, c: float, d: float) -> Floats:
        return 1.0 / (a * k * k + b * k + c) + d

    def linear(k: Floats, mu: float, b: float, c: float) -> Floats:
        return np.asarray(mu ** (k - b) + c)

    best: tuple[float, Callable[[float], float]] = (np.inf, lambda _: float(losses[-1]))
    for family, start, low_end, high_end in (
        (sublinear, (0.01, 0.1, 1.0, -0.1), (0, 0, 1e-6, -3.0), (np.inf, np.inf, np.inf, 1.0)),
        (linear, (0.9, 1.0, -0.1), (1e-6, -np.inf, -3.0), (1 - 1e-9, np.inf, 1.0)),
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OptimizeWarning)
                found, _ = curve_fit(
                    family, k, scaled, p0=start, sigma=sigma, bounds=(low_end, high_end), maxfev=500
                )
        except RuntimeError:  # no convergence: use the other family, or the last loss
            continue
        miss = float(np.sum(((family(k, *found) - scaled) / sigma) ** 2))
        if miss < best[0]:
            last = float(k[-1])

            def curve(h: float, family: Any = family, found: Floats = found, last: float = last) -> float:
                return float(family(last + h, *found) * extent + low)

            best = (miss, curve)
    return best[1]
