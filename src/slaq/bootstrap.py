"""The composition root: the only place where names choose classes."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from typing_extensions import override

from slaq.core.admission import Admission, MemoryRoom, MostJobs
from slaq.core.allocation import Policy
from slaq.core.appraisal import FINISH, OPTIMISM, Appraiser, usual_units_per_core
from slaq.core.decision import Decision
from slaq.core.errors import UnknownNameError
from slaq.core.events import Event
from slaq.core.explanation import PolicyRule
from slaq.core.forecast import METHODS
from slaq.core.forecaster import Forecaster
from slaq.core.outcome import JobCurve, Outcome, measure
from slaq.core.policies import (
    BestFirst,
    Deadline,
    Fair,
    Fifo,
    LeastAttained,
    MinQuality,
    ShortestFirst,
    TotalQuality,
    searching,
)
from slaq.core.roster import Roster
from slaq.engines.clock import WallClock
from slaq.engines.journal import Ending, Journal, Listener
from slaq.engines.local.engine import LocalEngine
from slaq.engines.memory import memory_here
from slaq.engines.node.commands.runner import CommandJob, CommandRunner
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.node import LocalNode, make_node
from slaq.engines.node.site import Site
from slaq.engines.processes import cores_here, raise_descriptor_limit
from slaq.plugins import Registry
from slaq.ports import Clock, History, LiveEngine
from slaq.scheduler import Scheduler
from slaq.simulation.clairvoyant import ClairvoyantAppraiser
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import Capacity, SimulatedEngine
from slaq.simulation.workload import Workload
from slaq.stores.memory import MemoryStore

if TYPE_CHECKING:
    from slaq.config import Vocabulary
    from slaq.config.service import ServiceSettings
    from slaq.service.parts import Parts
    from slaq.service.service import Service
    from slaq.stores.sqlite import SqliteStore

_LIVE: dict[str, Callable[[], Policy]] = {
    "total-quality": TotalQuality,
    "min-quality": MinQuality,
    "fair": Fair,
    "fifo": Fifo,
    "shortest-first": ShortestFirst,
    "least-attained": LeastAttained,
    "deadline": Deadline,
    "best-first": BestFirst,
}
#: Total quality with the true curves in place of forecasts; only a simulation has those.
CLAIRVOYANT = "clairvoyant"
#: The policies that slaq brings, and those of them that need no knowledge of the future.
POLICIES: tuple[str, ...] = (*_LIVE, CLAIRVOYANT)
LIVE_POLICIES: tuple[str, ...] = tuple(_LIVE)
FORECASTERS: tuple[str, ...] = tuple(METHODS)

_live_policies: Registry[[], Policy] = Registry(
    kind="policy for a live cluster", group="slaq.policies", protocol=Policy, own=_LIVE
)
_policies: Registry[[], Policy] = Registry(
    kind="policy",
    group="slaq.policies",
    protocol=Policy,
    own={**_LIVE, CLAIRVOYANT: partial(TotalQuality, floor=0.0)},
)


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies, those that installed packages add included."""
    return _policies.names()


def live_policy_names() -> tuple[str, ...]:
    """Return the names of the policies that need no knowledge of the future, those of packages included."""
    return _live_policies.names()


def make_policy(name: str) -> Policy:
    """Return the policy of that name."""
    return _policies.make(name)


def make_live_policy(name: str) -> Policy:
    """Return the policy of that name; one that knows the future is refused."""
    return _live_policies.make(name)


def name_of_policy(policy: str | Policy) -> str:
    """Return what to call a policy: its name, or the name of its class."""
    return policy if isinstance(policy, str) else type(policy).__name__


def rule_of(name: str) -> PolicyRule:
    """Return what explanations have to know of the policy of that name."""
    policy = make_policy(name)
    return PolicyRule(name=name, by_gain=policy.by_gain, by_need=policy.by_need)


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
    return Vocabulary(
        policies=live_policy_names(),
        engines=engine_names(),
        algorithms=recipes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A simulation that has ended."""

    outcome: Outcome
    history: History


#: Called after every decision; returns the ids of jobs to stop.
Referee = Callable[[Decision, History], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A workload under a policy on a virtual clock, and everything about it that can be chosen.

    A policy or forecaster is a name, or an object of one's own. `optimism`, `by_largest_fall` and `finish` are
    those of the `Appraiser`, `cost_noise`, `rng` and `tells_ends` those of the `SimulatedEngine`.
    """

    workload: Workload
    policy: str | Policy
    capacity: Capacity
    epoch_seconds: float = 3.0
    forecaster: str | Forecaster = "slaq"
    #: None for the policy's own: nothing for the clairvoyant.
    optimism: float | None = None
    by_largest_fall: bool = False
    finish: float = FINISH
    cost_noise: float = 0.0
    rng: np.random.Generator | None = None
    tells_ends: bool = True
    #: Optional callback that stops jobs early.
    referee: Referee | None = None

    def run(self, progress: Callable[[float], None] | None = None) -> Run:
        """Run until every job has ended; `progress` is told the share of them that have."""
        clock = VirtualClock()
        store = MemoryStore(self.workload.specs)
        engine = SimulatedEngine(
            self.workload,
            clock,
            self.capacity,
            cost_noise=self.cost_noise,
            rng=self.rng,
            tells_ends=self.tells_ends,
        )
        forecaster = self.forecaster
        scheduler = Scheduler(
            engine=engine,
            store=store,
            clock=clock,
            policy=searching(make_policy(self.policy) if isinstance(self.policy, str) else self.policy),
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
        name = name_of_policy(self.policy)
        return Run(outcome=measure(name, curves, store.decisions(), self.epoch_seconds), history=store)

    def _appraiser(self) -> Appraiser:
        if self.policy == CLAIRVOYANT:
            return ClairvoyantAppraiser(
                epoch_seconds=self.epoch_seconds,
                workload=self.workload,
                optimism=self.optimism or 0.0,
                finish=self.finish,
            )
        return Appraiser(
            epoch_seconds=self.epoch_seconds,
            optimism=OPTIMISM if self.optimism is None else self.optimism,
            by_largest_fall=self.by_largest_fall,
            finish=self.finish,
        )


def simulate(
    workload: Workload,
    *,
    policy: str | Policy,
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


class LivePolicies:
    """The policies that a service can decide by."""

    def make(self, name: str) -> Policy:
        """Return the policy of that name; raises where there is none."""
        return make_live_policy(name)

    def rule(self, name: str) -> PolicyRule:
        """Return what explanations have to know of the policy of that name."""
        return rule_of(name)


@dataclass(frozen=True, slots=True)
class _WakeAtEnds(Listener):
    """Wakes the clock, and so the scheduler, when a job has ended."""

    clock: Clock

    @override
    def happened(self, event: Event, ending: Ending | None) -> None:
        if ending is not None:
            self.clock.wake()


def open_service(settings: "ServiceSettings") -> "Service":
    """Open the service of a home: its store, the engine of this machine, and the kinds of jobs."""
    from slaq.config.ownership import check_ownership
    from slaq.service.service import Service
    from slaq.stores.sqlite import SqliteStore

    check_ownership(settings)
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o711)
    settings.jobs.mkdir(exist_ok=True, mode=0o711)
    # Again, because somebody may have been there first.
    check_ownership(settings)
    store = SqliteStore(settings.database, cores_per_unit=1.0 / _units_per_core(settings))
    with ExitStack() as undo:
        undo.callback(store.close)
        parts = _service_parts(settings, store)
        undo.callback(parts.engine.close)
        service = Service(settings, parts)
        # From here on the service itself closes the engine and the store.
        undo.pop_all()
    return service


def _service_parts(settings: "ServiceSettings", store: "SqliteStore") -> "Parts":
    from slaq.kinds import machine
    from slaq.kinds.command import CommandKind
    from slaq.kinds.external import ExternalKind
    from slaq.kinds.notifying import ShellNotifier
    from slaq.kinds.processes import ProcessJobs, mark_processes
    from slaq.kinds.program import ProgramKind
    from slaq.kinds.removal import RemovedFolders
    from slaq.service.kinds import Kinds
    from slaq.service.parts import Parts

    # Never before what is stored: a clock that was set back must not make time run backwards.
    clock = WallClock(max(time.time(), store.last_time()))
    secret = mark_processes(store)
    site = Site(
        cores=settings.cores or cores_here(),
        epoch_seconds=settings.epoch_seconds,
        directory=settings.jobs,
        throttle=settings.throttle,
        token=secret,
    )
    journal = Journal(clock, _WakeAtEnds(clock))
    commands = CommandRunner(journal, site.throttle, site.token, site.directory, settings.grace)
    external = ExternalRunner(journal)
    engine = LocalEngine(LocalNode(site, journal, {CommandJob: commands, ExternalJob: external}))
    processes = ProcessJobs(
        folder=settings.jobs,
        give=engine.prepare,
        cores=site.cores,
        open_files=raise_descriptor_limit(),
    )
    return Parts(
        store=store,
        clock=clock,
        engine=engine,
        kinds=Kinds.of(
            CommandKind(processes),
            ProgramKind(processes),
            ExternalKind(folder=settings.jobs, give=engine.prepare, runner=external),
        ),
        policies=LivePolicies(),
        roster=Roster(make_forecaster("slaq")),
        units_per_core=_units_per_core(settings),
        notifier=ShellNotifier(secret),
        admission=machine.rules(),
        enforcement=lambda: commands.way,
        threads=(commands,),
        delete_removed=lambda stop: RemovedFolders(settings.jobs).delete(stop=stop),
    )


def _units_per_core(settings: "ServiceSettings") -> int:
    """Return into how many units the decisions of a service cut a core."""
    return settings.units_per_core or usual_units_per_core(settings.cores or cores_here())


E_co = TypeVar("E_co", bound=LiveEngine, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live(Generic[E_co]):
    """A scheduler on a running engine, and what it is made of."""

    scheduler: Scheduler
    engine: E_co
    store: MemoryStore
    clock: WallClock


def go_live(
    policy: str | Policy,
    start_engine: Callable[[Journal], E_co],
    listener: Listener,
    *,
    epoch_seconds: float,
    units_per_core: int,
    concurrent: int | None = None,
) -> Live[E_co]:
    """Start an engine under a policy; the caller runs the epochs and closes the engine.

    `concurrent` is the number of jobs that may run at a time; None for no limit.
    """
    chosen = make_live_policy(policy) if isinstance(policy, str) else policy
    clock, made_at = WallClock(), time.time()
    store = MemoryStore()
    engine, memory = start_engine(Journal(clock, listener)), memory_here()
    scheduler = Scheduler(
        engine=engine,
        store=store,
        clock=clock,
        policy=searching(chosen),
        appraiser=Appraiser(epoch_seconds=epoch_seconds, units_per_core=units_per_core),
        roster=Roster(make_forecaster("slaq")),
        admission=Admission(
            rules=(
                MemoryRoom(lambda: memory),
                *(() if concurrent is None else (MostJobs(lambda: concurrent),)),
            ),
            written=lambda moment: f"{datetime.fromtimestamp(made_at + moment):%F %T}",
        ),
    )
    return Live(scheduler=scheduler, engine=engine, store=store, clock=clock)


def _local_engine(site: Site, journal: Journal) -> LiveEngine:
    return LocalEngine(make_node(site, journal))


_engines: Registry[[Site, Journal], LiveEngine] = Registry(
    kind="engine", group="slaq.engines", protocol=LiveEngine, own={"local": _local_engine}
)


def engine_names() -> tuple[str, ...]:
    """Return the names of the engines that a jobs file may use, those that installed packages add included."""
    own, *added = _engines.names()
    return tuple(dict.fromkeys((own, "spark", *added)))


def make_engine(name: str, site: Site, journal: Journal) -> LiveEngine:
    """Start the engine of that name for `slaq.Cluster`; Spark has a cluster of its own."""
    return _engines.make(name, site, journal)
