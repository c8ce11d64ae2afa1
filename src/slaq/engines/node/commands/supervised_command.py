"""One command from its start to the end of its process tree: its losses, and the CPU they took."""

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from slaq.core.demand import Demand
from slaq.core.events import DemandChanged, EndForeseen, LearningRateChanged, LossObserved
from slaq.core.job import Observation
from slaq.engines.node.commands.launch import Child
from slaq.engines.node.commands.records import Launch, LossSourceFailed, Record
from slaq.engines.node.reports import Item, NewDemand, NewRate, NewTotal, Reading

#: Readings of the tree's CPU time that are kept, to tell what a loss took that was reported between two of them.
SAMPLES = 64


@dataclass(slots=True)
class SupervisedCommand:
    """A command that was started: what was read of it, and how far its end has come."""

    launch: Launch
    #: Tells its start from others, for the process that reads what it says.
    number: int
    #: Where in its log this start begins.
    log_start: int
    #: (time, CPU seconds of the tree), at least one.
    samples: deque[tuple[float, float]]
    #: Number, time and CPU seconds of the last loss.
    iteration: int
    seen_at: float
    seen_cpu: float = 0.0
    #: Its first process, once there is one; it waits at its gate until it is read, or until that moment.
    child: Child | None = None
    release_at: float | None = None
    silent: bool = False
    #: What it last said it can use.
    demand: Demand | None = None
    #: How many iterations it last said it will make in all.
    total: int | None = None
    #: Set when its first process has ended.
    status: int | None = None
    stopped: bool = False
    #: Once the tree is to end: when it is killed.
    kill_at: float | None = None
    #: Once nothing is left of the tree: until when more of what it wrote is waited for, and whether all was read.
    read_until: float | None = None
    #: Until when at most, however much there is.
    read_at_most: float = math.inf
    all_read: bool = False
    fault: str = ""
    news: list[Record] = field(default_factory=list)

    @property
    def tree(self) -> str:
        """The mark of its processes."""
        return self.launch.tree

    def take(self, items: Iterable[Item], now: float, cpu_seconds: float) -> None:
        """Take in what was read, given the CPU seconds of the tree so far."""
        self.samples.append((now, cpu_seconds))
        ahead = time.time() - time.monotonic()
        for item in items:
            # A clock that was set meanwhile must not lead to times out of order.
            at = now if item.at is None else min(max(item.at - ahead, self.seen_at), now)
            self._take(item, at)

    def fail_source(self, reason: str) -> None:
        """Say once why losses cannot be read."""
        if not self.silent:
            self.silent = True
            self.news.append(LossSourceFailed(job_id=self.launch.job_id, reason=reason))

    def release(self) -> None:
        """Let the command run; do nothing if it runs already."""
        if self.release_at is not None and self.child is not None:
            self.release_at = None
            # Its process may have been killed at the gate.
            with suppress(OSError):
                self.child.release()

    def _take(self, item: Item, at: float) -> None:
        job_id = self.launch.job_id
        if isinstance(item, NewRate):
            self.news.append(LearningRateChanged(job_id=job_id, at=at, learning_rate=item.learning_rate))
        elif isinstance(item, NewDemand):
            # A job that says the same again says nothing new.
            if item.demand != self.demand:
                self.demand = item.demand
                self.news.append(DemandChanged(job_id=job_id, at=at, demand=item.demand))
        elif isinstance(item, NewTotal):
            if item.iterations != self.total:
                self.total = item.iterations
                self.news.append(EndForeseen(job_id=job_id, at=at, iterations=item.iterations))
        else:
            self._observe(item, at)

    def _observe(self, item: Reading, at: float) -> None:
        iteration = self.iteration + 1 if item.iteration is None else item.iteration
        if iteration <= self.iteration:
            return
        cpu = _interpolated(self.samples, at)
        observation = Observation(
            iteration=iteration,
            loss=item.loss,
            cpu_seconds=max(cpu - self.seen_cpu, 0.0),
            wall_seconds=at - self.seen_at,
        )
        self.iteration, self.seen_at, self.seen_cpu = iteration, at, cpu
        self.news.append(
            LossObserved(
                job_id=self.launch.job_id, at=at, observation=observation, metrics=dict(item.metrics)
            )
        )


def begin(launch: Launch, number: int) -> SupervisedCommand:
    """Return a command that has no process yet."""
    now, log = time.monotonic(), launch.spec.log
    return SupervisedCommand(
        launch=launch,
        number=number,
        log_start=log.stat().st_size if log.exists() else 0,
        samples=deque([(now, 0.0)], maxlen=SAMPLES),
        iteration=launch.spec.first_iteration - 1,
        seen_at=now,
    )


def _interpolated(samples: deque[tuple[float, float]], at: float) -> float:
    """Return the CPU seconds at a moment, between the two readings around it."""
    place = bisect_left(samples, (at, math.inf))
    if place == 0:
        return samples[0][1]
    if place == len(samples):
        return samples[-1][1]
    (t0, c0), (t1, c1) = samples[place - 1], samples[place]
    return c0 + (c1 - c0) * (at - t0) / (t1 - t0)
