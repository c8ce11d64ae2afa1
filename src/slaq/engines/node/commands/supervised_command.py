"""One command from its start to the end of its process tree: its losses, and the CPU they took."""

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from slaq.core.demand import Demand
from slaq.core.events import (
    CurveBegan,
    DemandChanged,
    EndForeseen,
    JobDelayed,
    LearningRateChanged,
    LossObserved,
    LossSourceChanged,
    ThreadsChosen,
    TrainingChanged,
)
from slaq.core.job import Observation
from slaq.engines.node.commands.launch import Child
from slaq.engines.node.commands.records import Launch, LossSourceFailed, Record
from slaq.engines.node.commands.threads import Threads
from slaq.engines.node.commands.turn_keeper import TreeUsage
from slaq.engines.node.reports import Item, NewDemand, NewRate, NewSource, NewTotal, Reading

#: Readings of what the tree has had that are kept, to tell what a loss took that was reported between two of them.
SAMPLES = 64
#: CPU seconds without a loss after which a command is held as other work until one comes.
SILENT_CPU = 60.0
#: How many of the last times count at which it was told how many cores a command keeps busy: twenty seconds.
WIDTHS = 10


@dataclass(slots=True)
class SupervisedCommand:
    """A command that was started: what was read of it, and how far its end has come."""

    launch: Launch
    #: Tells its start from others, for the process that reads what it says.
    number: int
    #: Where in its log this start begins.
    log_start: int
    #: What the tree had had at some moments, at least one.
    samples: deque[TreeUsage]
    #: Number of the last loss, and what the tree had had by then.
    iteration: int
    seen: TreeUsage
    #: Its first process, once there is one; it waits at its gate for its first turn, and until it is read, but
    #: for its reader no longer than to that moment.
    child: Child | None = None
    release_at: float | None = None
    #: Whether it is read; when it began; why it waits to begin.
    ready: bool = False
    began_at: float | None = None
    waits: str = ""
    #: The cores that it was seen to keep busy at the last moments that were told; at first, its threads.
    widths: deque[int] = field(default_factory=lambda: deque(maxlen=WIDTHS))
    #: Bytes of memory that the tree takes up, and the most it took.
    memory: int = 0
    peak: int = 0
    silent: bool = False
    #: What it last said it can use.
    demand: Demand | None = None
    #: How many iterations it last said it will make in all.
    total: int | None = None
    #: Where its losses come from, whether there were any, and whether it is held as other work for want of them.
    source: NewSource = field(default_factory=NewSource)
    observed: bool = False
    other_work: bool = False
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

    def take(self, items: Iterable[Item], usage: TreeUsage) -> None:
        """Take in what was read, given what the tree has had so far."""
        self.samples.append(usage)
        ahead = time.time() - time.monotonic()
        for item in items:
            # A clock that was set meanwhile must not lead to times out of order.
            at = usage.at if item.at is None else min(max(item.at - ahead, self.seen.at), usage.at)
            self._take(item, at)

    def widest(self, cores: int) -> int:
        """Return the most cores that it kept busy of late, given how many it does now.

        A script that loads its libraries on one core, or looks how good its model is, trains on all cores a moment
        later: what it is granted must be there by then.
        """
        self.widths.append(cores)
        return max(self.widths)

    def measure(self, usage: TreeUsage) -> None:
        """Take in what the tree has had so far."""
        self.samples.append(usage)
        waited = usage.cpu_seconds >= SILENT_CPU and not self.observed and self.kill_at is None
        if waited and not self.other_work and self.launch.spec.trains:
            trouble = self.source.trouble or no_loss_in(usage.cpu_seconds)
            self._tell_source(replace(self.source, trouble=trouble), usage.at)

    def fail_source(self, reason: str) -> None:
        """Say once why losses cannot be read."""
        if not self.silent:
            self.silent = True
            if self.launch.spec.trains:
                self._tell_source(replace(self.source, trouble=reason), time.monotonic())
            self.news.append(LossSourceFailed(job_id=self.launch.job_id, reason=reason))

    def wait_for(self, reason: str) -> None:
        """Say why it waits to begin, in words that go on from the job's name; empty once it waits no longer."""
        if reason != self.waits:
            self.waits = reason
            self.news.append(
                JobDelayed(job_id=self.launch.job_id, at=time.monotonic(), reason=reason, waits=True)
            )

    def release(self, threads: Threads) -> None:
        """Let the command run with so many threads; do nothing if it runs already."""
        if self.release_at is not None and self.child is not None:
            self.release_at, self.began_at = None, time.monotonic()
            self.wait_for("")
            # Its process may have been killed at the gate.
            with suppress(OSError):
                self.child.release(threads.variables(self.launch.env))
            self.news.append(
                ThreadsChosen(
                    job_id=self.launch.job_id,
                    at=self.began_at,
                    threads=threads.count,
                    reason=threads.reason,
                )
            )

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
        elif isinstance(item, NewSource):
            if self.launch.spec.trains:
                self._tell_source(item, at)
        else:
            self._observe(item, at)

    def _tell_source(self, source: NewSource, at: float) -> None:
        """Tell where losses come from, or what is wrong; a command without any is held as other work."""
        job_id, before = self.launch.job_id, self.source
        if source != before:
            self.source = source
            self.news.append(
                LossSourceChanged(
                    job_id=job_id,
                    at=at,
                    series=source.series,
                    place=source.place,
                    others=source.others,
                    trouble=source.trouble,
                )
            )
            moved = (source.series, source.place) != (before.series, before.place)
            if moved and source.series and before.series and self.observed:
                # What comes is another curve.
                self.news.append(CurveBegan(job_id=job_id, at=at))
        if source.trouble and not self.observed and not self.other_work and self.kill_at is None:
            self.other_work = True
            self.news.append(TrainingChanged(job_id=job_id, at=at, trains=False))

    def _notice(self, at: float) -> None:
        """Take note of a loss: what was wrong is so no longer."""
        spec, first, self.observed = self.launch.spec, not self.observed, True
        if first and spec.trains and not self.source.series:
            if spec.loss_pattern is not None:
                self._tell_source(NewSource(series="loss", place="the output, by its pattern"), at)
            elif spec.loss_file is not None:
                self._tell_source(NewSource(series=spec.loss_column, place=str(spec.loss_file)), at)
        if self.source.trouble:
            self._tell_source(replace(self.source, trouble=""), at)
        if self.other_work or (first and spec.again and spec.trains):
            self.other_work = False
            self.news.append(TrainingChanged(job_id=self.launch.job_id, at=at, trains=True))

    def _observe(self, item: Reading, at: float) -> None:
        iteration = self.iteration + 1 if item.iteration is None else item.iteration
        before, usage = self.seen, _interpolated(self.samples, at)
        if iteration < self.launch.spec.first_iteration:
            # An earlier start has told it: it is no news, but the job is heard, and no later loss took this time.
            self.seen = usage
            self._notice(at)
        if iteration <= self.iteration:
            return
        self._notice(at)
        observation = Observation(
            iteration=iteration,
            loss=item.loss,
            cpu_seconds=max(usage.cpu_seconds - before.cpu_seconds, 0.0),
            wall_seconds=max(usage.at - before.at, 0.0),
            run_seconds=max(usage.run_seconds - before.run_seconds, 0.0),
            seat_seconds=max(usage.seat_seconds - before.seat_seconds, 0.0),
        )
        self.iteration, self.seen = iteration, usage
        self.news.append(
            LossObserved(
                job_id=self.launch.job_id, at=at, observation=observation, metrics=dict(item.metrics)
            )
        )


def no_loss_in(cpu_seconds: float) -> str:
    """Return what to tell the owner of a command that works and tells no loss."""
    return (
        f"no loss in {cpu_seconds:.0f} CPU seconds, so the job holds its fair share as other work until one comes; "
        "print 'loss: 0.5', call slaq.report(loss), name what to read with --loss-pattern or --loss-file, or "
        "submit it with --no-trains"
    )


def begin(launch: Launch, number: int) -> SupervisedCommand:
    """Return a command that has no process yet."""
    now, log = time.monotonic(), launch.spec.log
    return SupervisedCommand(
        launch=launch,
        number=number,
        log_start=log.stat().st_size if log.exists() else 0,
        samples=deque([TreeUsage(now)], maxlen=SAMPLES),
        iteration=launch.spec.first_iteration - 1,
        seen=TreeUsage(now),
    )


def _interpolated(samples: deque[TreeUsage], at: float) -> TreeUsage:
    """Return what the tree had had at a moment, between the two samples around it."""
    place = bisect_left(samples, at, key=lambda usage: usage.at)
    if place == 0 or place == len(samples):
        return replace(samples[min(place, len(samples) - 1)], at=at)
    before, after = samples[place - 1], samples[place]
    part = (at - before.at) / (after.at - before.at)

    def between(low: float, high: float) -> float:
        return low + (high - low) * part

    return TreeUsage(
        at,
        between(before.cpu_seconds, after.cpu_seconds),
        between(before.run_seconds, after.run_seconds),
        between(before.seat_seconds, after.seat_seconds),
    )
