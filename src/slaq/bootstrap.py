"""The composition root: the only place where names choose classes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from slaq.core.allocation import Policy
from slaq.core.appraisal import OPTIMISM, Appraiser
from slaq.core.decision import Decision
from slaq.core.errors import UnknownNameError
from slaq.core.explanation import Rule
from slaq.core.forecast import METHODS
from slaq.core.forecaster import Forecaster
from slaq.core.outcome import JobCurve, Outcome, measure
from slaq.core.policies import Deadline, Fair, Fifo, LeastAttained, MinQuality, ShortestFirst, TotalQuality
from slaq.core.roster import Roster
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal, Listener
from slaq.engines.local.commands import CommandRunner
from slaq.engines.local.engine import LocalEngine
from slaq.engines.local.external import ExternalRunner
from slaq.engines.local.programs import Programs, Site
from slaq.engines.processes.sources import checked_pattern
from slaq.engines.units import FractionalRoster
from slaq.ports import Clock, History
from slaq.scheduler import Scheduler
from slaq.simulation.clairvoyant import ClairvoyantAppraiser
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import Capacity, SimulatedEngine
from slaq.simulation.workload import Workload
from slaq.stores.memory import MemoryStore

if TYPE_CHECKING:
    from slaq.config import Vocabulary
    from slaq.engines.spark.application import Application
    from slaq.engines.spark.engine import SparkEngine, SparkSite

_POLICIES: dict[str, Callable[[], Policy]] = {
    "total-quality": TotalQuality,
    "min-quality": MinQuality,
    "fair": Fair,
    "fifo": Fifo,
    "shortest-first": ShortestFirst,
    "least-attained": LeastAttained,
    "deadline": Deadline,
}
#: Total quality with the true curves in place of forecasts; only a simulation has those.
CLAIRVOYANT = "clairvoyant"

POLICIES: tuple[str, ...] = (*_POLICIES, CLAIRVOYANT)
#: Policies that need no knowledge of the future.
LIVE_POLICIES: tuple[str, ...] = tuple(_POLICIES)
FORECASTERS: tuple[str, ...] = tuple(METHODS)


def make_policy(name: str) -> Policy:
    """Return the policy of that name."""
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    return TotalQuality(floor=0.0) if name == CLAIRVOYANT else _POLICIES[name]()


def make_live_policy(name: str) -> Policy:
    """Return the policy of that name; one that knows the future is refused."""
    if name not in LIVE_POLICIES:
        raise UnknownNameError("policy for a live cluster", name, LIVE_POLICIES)
    return make_policy(name)


def rule_of(name: str) -> Rule:
    """Return what explanations have to know of the policy of that name."""
    by_gain = name in ("total-quality", "deadline", CLAIRVOYANT)
    return Rule(name=name, by_gain=by_gain, by_need=name == "deadline")


def make_forecaster(name: str) -> Forecaster:
    """Return a forecaster of that name, without rows yet."""
    if name not in METHODS:
        raise UnknownNameError("forecaster", name, FORECASTERS)
    return METHODS[name](0)


def jobs_vocabulary() -> "Vocabulary":
    """Return the names that a jobs file may use."""
    from slaq.algorithms import ALGORITHMS, UNSUPERVISED
    from slaq.config import Recipe, Vocabulary

    recipes = {
        name: Recipe(
            names=tuple(field.name for field in fields(algorithm)),
            make=algorithm.from_options,
            needs_targets=name not in UNSUPERVISED,
        )
        for name, algorithm in ALGORITHMS.items()
    }
    return Vocabulary(policies=LIVE_POLICIES, algorithms=recipes, check_pattern=checked_pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A simulation that has ended."""

    outcome: Outcome
    history: History


#: Told of every decision once it is in force, with all that happened before; names the jobs to stop now.
Referee = Callable[[Decision, History], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A workload under a policy on a virtual clock, and everything about it that can be chosen.

    A policy or forecaster is a name, or an object of one's own. `optimism` and `by_largest_fall` are those of
    the `Appraiser`, `cost_noise` and `rng` those of the `SimulatedEngine`.
    """

    workload: Workload
    policy: str | Policy
    capacity: Capacity
    epoch_seconds: float = 3.0
    forecaster: str | Forecaster = "slaq"
    #: None for the policy's own: nothing for the clairvoyant.
    optimism: float | None = None
    by_largest_fall: bool = False
    cost_noise: float = 0.0
    rng: np.random.Generator | None = None
    #: Who stops jobs before their end, as a user or a search algorithm does; None for nobody.
    referee: Referee | None = None

    def run(self, progress: Callable[[float], None] | None = None) -> Run:
        """Run until every job has ended; `progress` is told the share of them that have."""
        clock = VirtualClock()
        store = MemoryStore(self.workload.specs)
        engine = SimulatedEngine(
            self.workload, clock, self.capacity, cost_noise=self.cost_noise, rng=self.rng
        )
        forecaster = self.forecaster
        scheduler = Scheduler(
            engine=engine,
            store=store,
            clock=clock,
            policy=make_policy(self.policy) if isinstance(self.policy, str) else self.policy,
            appraiser=self._appraiser(),
            roster=Roster(make_forecaster(forecaster) if isinstance(forecaster, str) else forecaster),
        )
        for decision in scheduler.epochs():
            if self.referee is not None and decision is not None:
                for job_id in self.referee(decision, store):
                    engine.stop(job_id)
            if progress is not None:
                progress(store.ended / max(len(self.workload), 1))
        best = {job.spec.id: job.best_loss for job in self.workload}
        curves = [JobCurve.of(spec, store.events(spec.id), best[spec.id]) for spec in store.jobs()]
        name = self.policy if isinstance(self.policy, str) else type(self.policy).__name__
        return Run(outcome=measure(name, curves, store.decisions(), self.epoch_seconds), history=store)

    def _appraiser(self) -> Appraiser:
        if self.policy == CLAIRVOYANT:
            return ClairvoyantAppraiser(
                epoch_seconds=self.epoch_seconds, workload=self.workload, optimism=self.optimism or 0.0
            )
        return Appraiser(
            epoch_seconds=self.epoch_seconds,
            optimism=OPTIMISM if self.optimism is None else self.optimism,
            by_largest_fall=self.by_largest_fall,
        )


def simulate(
    workload: Workload,
    *,
    policy: str,
    capacity: Capacity,
    epoch_seconds: float = 3.0,
    forecaster: str = "slaq",
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run a workload under a policy on a virtual clock, until every job has ended."""
    return Simulation(
        workload=workload,
        policy=policy,
        capacity=capacity,
        epoch_seconds=epoch_seconds,
        forecaster=forecaster,
    ).run(progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A scheduler on this machine's cores, and what it is made of."""

    scheduler: Scheduler
    engine: LocalEngine
    programs: Programs
    commands: CommandRunner
    store: MemoryStore
    clock: WallClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What a service runs jobs with: commands in process trees, and jobs that run elsewhere."""

    engine: LocalEngine
    commands: CommandRunner
    external: ExternalRunner


def make_station(
    clock: Clock, listener: Listener, *, cores: int, units_per_core: int, throttle: str | None, token: str
) -> Station:
    """Return the engine of a service; `token` marks its processes."""
    journal = Journal(clock, listener)
    commands = CommandRunner(journal, units_per_core, throttle, token)
    external = ExternalRunner(journal)
    engine = LocalEngine(journal, [commands, external], cores * units_per_core)
    return Station(engine=engine, commands=commands, external=external)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOnSpark:
    """A scheduler on a Spark application, and what it is made of."""

    scheduler: Scheduler
    engine: "SparkEngine"
    store: MemoryStore
    clock: WallClock


def go_live_on_spark(
    policy: str, application: "Application", site: "SparkSite", listener: Listener
) -> LiveOnSpark:
    """Start the engine of a Spark application under a policy; the caller runs the epochs and closes the engine."""
    from slaq.engines.spark.engine import SparkEngine
    from slaq.engines.spark.roster import SlotRoster

    chosen = make_live_policy(policy)
    clock = WallClock()
    store = MemoryStore()
    engine = SparkEngine(application, site, Journal(clock, listener))
    scheduler = Scheduler(
        engine=engine,
        store=store,
        clock=clock,
        policy=chosen,
        appraiser=Appraiser(epoch_seconds=site.epoch_seconds),
        roster=SlotRoster(make_forecaster("slaq"), site.units_per_slot, engine),
    )
    return LiveOnSpark(scheduler=scheduler, engine=engine, store=store, clock=clock)


def go_live(policy: str, site: Site, listener: Listener, throttle: str | None = None) -> Live:
    """Start the engine of this machine under a policy; the caller runs the epochs and closes the engine."""
    chosen = make_live_policy(policy)
    clock = WallClock()
    store = MemoryStore()
    journal = Journal(clock, listener)
    commands = CommandRunner(journal, site.units_per_core, throttle)
    programs = Programs(site, journal)
    engine = LocalEngine(journal, [programs, commands], site.cores * site.units_per_core)
    scheduler = Scheduler(
        engine=engine,
        store=store,
        clock=clock,
        policy=chosen,
        appraiser=Appraiser(epoch_seconds=site.epoch_seconds),
        roster=FractionalRoster(make_forecaster("slaq"), site.units_per_core),
    )
    return Live(
        scheduler=scheduler,
        engine=engine,
        programs=programs,
        commands=commands,
        store=store,
        clock=clock,
    )
