"""One command from its start to the end of its process tree: its losses, and the CPU they took."""

import math
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slaq.core.demand import Demand
from slaq.core.errors import LossSourceError
from slaq.core.events import DemandChanged, LearningRateChanged, LossObserved
from slaq.core.job import Observation
from slaq.engines.node.commands.launch import Child
from slaq.engines.node.commands.loss_sources import LossFile, LossPattern, LossSource, Reported
from slaq.engines.node.commands.records import Launch, LossSourceFailed, Record, RunAs
from slaq.engines.node.reports import Item, NewDemand, NewRate, Reading

#: Readings of the tree's CPU time that are kept, to tell what a loss took that was reported between two of them.
SAMPLES = 64


@dataclass(slots=True)
class SupervisedCommand:
    """A command that was started: where its losses come from, what was read, and how far its end has come."""

    launch: Launch
    reports: LossSource
    #: Where in its log this start begins.
    log_start: int
    #: (time, CPU seconds of the tree), at least one.
    samples: deque[tuple[float, float]]
    #: Number, time and CPU seconds of the last loss.
    iteration: int
    seen_at: float
    seen_cpu: float = 0.0
    #: The pattern or the file that its owner named, as long as losses can be read from it.
    source: LossSource | None = None
    #: Its first process, once there is one.
    child: Child | None = None
    silent: bool = False
    #: What it last said it can use.
    demand: Demand | None = None
    #: Set when its first process has ended.
    status: int | None = None
    stopped: bool = False
    #: Once the tree is to end: when it is killed.
    kill_at: float | None = None
    fault: str = ""
    news: list[Record] = field(default_factory=list)

    @property
    def tree(self) -> str:
        """The mark of its processes."""
        return self.launch.tree

    def listen(self, now: float, cpu_seconds: Callable[[], float], *, final: bool = False) -> bool:
        """Take in what the sources have; return whether there was anything. The function reads the tree's CPU."""
        found = self._poll(self.reports, final=final)
        spec = self.launch.spec
        if spec.loss_pattern is not None or spec.loss_file is not None:
            # Where the owner said where the losses are, reports of losses do not count; all others do.
            found = [item for item in found if not isinstance(item, Reading)]
            if self.source is not None:
                found += self._poll(self.source, final=final)
        if found:
            self.samples.append((now, cpu_seconds()))
        ahead = time.time() - time.monotonic()
        for item in found:
            # A clock that was set meanwhile must not lead to times out of order.
            at = now if item.at is None else min(max(item.at - ahead, self.seen_at), now)
            self._take(item, at)
        return bool(found)

    def fail_source(self, error: LossSourceError) -> None:
        """Read no more losses from what its owner named, and say why once."""
        if self.source is not None:
            self.source.close()
            self.source = None
        if not self.silent:
            self.silent = True
            self.news.append(LossSourceFailed(job_id=self.launch.job_id, reason=str(error)))

    def close(self) -> None:
        """Let go of the files."""
        self.reports.close()
        if self.source is not None:
            self.source.close()

    def _poll(self, source: LossSource, *, final: bool) -> list[Item]:
        try:
            # A file that its owner names is read with its owner's rights, not with ours.
            with as_user(self.launch.spec.run_as if source is self.source else None):
                return list(source.poll(final=final))
        except LossSourceError as error:
            self.fail_source(error)
        except OSError as error:
            self.fail_source(LossSourceError(f"the losses cannot be read ({error})", "check the disk"))
        return []

    def _take(self, item: Item, at: float) -> None:
        job_id = self.launch.job_id
        if isinstance(item, NewRate):
            self.news.append(LearningRateChanged(job_id=job_id, at=at, learning_rate=item.learning_rate))
        elif isinstance(item, NewDemand):
            # A job that says the same again says nothing new.
            if item.demand != self.demand:
                self.demand = item.demand
                self.news.append(DemandChanged(job_id=job_id, at=at, demand=item.demand))
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


def begin(launch: Launch) -> SupervisedCommand:
    """Return a command that has no process yet; raises OSError where its reports cannot be read."""
    now, log = time.monotonic(), launch.spec.log
    try:
        reports = Reported(launch.reports)
    except LossSourceError as error:
        raise OSError(str(error)) from None
    command = SupervisedCommand(
        launch=launch,
        reports=reports,
        log_start=log.stat().st_size if log.exists() else 0,
        samples=deque([(now, 0.0)], maxlen=SAMPLES),
        iteration=launch.spec.first_iteration - 1,
        seen_at=now,
    )
    try:
        command.source = _source(launch)
    except LossSourceError as error:
        command.fail_source(error)
    return command


@contextmanager
def as_user(user: RunAs | None) -> Iterator[None]:
    """Act with someone else's rights in the body."""
    if user is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups(user.groups)
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(os.getgid())
        os.setgroups(groups)


def _source(launch: Launch) -> LossSource | None:
    spec = launch.spec
    if spec.loss_pattern is not None:
        return LossPattern(spec.loss_pattern, spec.log)
    if spec.loss_file is not None:
        with as_user(spec.run_as):
            return LossFile(launch.cwd / spec.loss_file, spec.loss_column)
    return None


def _interpolated(samples: deque[tuple[float, float]], at: float) -> float:
    """Return the CPU seconds at a moment, between the two readings around it."""
    place = bisect_left(samples, (at, math.inf))
    if place == 0:
        return samples[0][1]
    if place == len(samples):
        return samples[-1][1]
    (t0, c0), (t1, c1) = samples[place - 1], samples[place]
    return c0 + (c1 - c0) * (at - t0) / (t1 - t0)
