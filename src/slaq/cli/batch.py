"""Run the jobs of a file on an embedded cluster: submit all of them, and wait until all have ended."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slaq.artifacts import Kept, keep, make_room
from slaq.cli.interrupts import Interrupts
from slaq.cluster import Cluster
from slaq.config import CommandWork, FitWork, JobTable, Work
from slaq.core.errors import CommandError, SlaqError
from slaq.core.job import JobState
from slaq.core.progress import LossRange
from slaq.handle import Job
from slaq.jobs.grid import kept
from slaq.running import RunningCluster

#: Seconds between two polls of the jobs, and between two updates of the screen. Drawing takes CPU time from
#: the jobs, so it is done less often.
TICK, SHOW_EVERY = 0.1, 0.5


class Entry:
    """One job of the file: before its submission, while it runs, and after its end."""

    def __init__(self, table: JobTable) -> None:
        self.table = table
        #: None until the job is submitted.
        self.job: Job | None = None
        #: Why the job could not be submitted.
        self.fault = ""
        self.stopped = False
        #: The files that the job left; None until it has ended.
        self.kept: Kept | None = None
        #: Seconds from the start of the batch to the end of the job.
        self.ended_at = math.nan
        self._losses: list[float] = []

    @property
    def state(self) -> JobState:
        """The job's state; queued before its submission."""
        if self.job is not None:
            return self.job.state
        if self.fault:
            return JobState.FAILED
        return JobState.CANCELLED if self.stopped else JobState.QUEUED

    @property
    def reason(self) -> str:
        """One sentence on why the job waits, failed, was cancelled or was stopped; else empty."""
        return self.job.reason if self.job is not None else self.fault

    @property
    def finished(self) -> bool:
        """Whether the job has ended and its files are written."""
        return self.kept is not None

    @property
    def group(self) -> str | None:
        """The group that the job belongs to: the one that the file names, or that of its grid."""
        return self.table.group or self.table.own_group

    @property
    def diverged(self) -> bool:
        """Whether its last loss was no finite number."""
        return self.job is not None and self.job.diverged

    @property
    def losses(self) -> list[float]:
        """The losses so far; each call reads only the new observations."""
        if self.job is not None:
            self._losses += [one.loss for one in self.job.observations[len(self._losses) :]]
        return self._losses

    def as_json(self) -> dict[str, Any]:
        """Return the documented fields; None for a value that is unknown or not finite."""
        observations = [] if self.job is None else self.job.observations
        seen = LossRange(maximize=bool(self.table.options.get("maximize")))
        for one in observations:
            seen.add(one.loss)
        return {
            "id": self.table.name,
            "group": self.group,
            "parameters": kept(self.table.parameters),
            "algorithm": self.table.kind,
            "state": str(self.state),
            "reason": self.reason,
            "arrival": self.table.arrival,
            "ended": _rounded(self.ended_at, 3),
            "losses": len(observations),
            "first_loss": seen.first,
            "best_loss": seen.best,
            "last_loss": seen.last,
            "reduction": _rounded(0.0 if self.job is None else self.job.reduction, 6),
            "cpu_seconds": round(0.0 if self.job is None else self.job.cpu_seconds, 6),
            "directory": None if self.job is None else str(self.job.directory),
            "result": None if self.kept is None else self.kept.file,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job as shown at one moment."""

    name: str
    kind: str
    state: JobState
    losses: Sequence[float]
    reduction: float
    #: The loss forecast for the end of the epoch; NaN without a forecast.
    expected: float
    cores: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The whole batch as shown at one moment."""

    rows: Sequence[Row]
    #: Seconds since the start.
    seconds: float
    stopping: bool


class Batch:
    """Runs the jobs of a file on a cluster."""

    def __init__(self, tables: Sequence[JobTable], cluster: RunningCluster) -> None:
        self.entries = [Entry(table) for table in tables]
        self._cluster = cluster
        self._began = time.monotonic()
        self._stopping = False

    def run(self, interrupts: Interrupts, show: Callable[[Moment], None]) -> None:
        """Run every job to its end and show the progress; cancel all jobs at the first interrupt."""
        self._submit(interrupts)
        shown = -math.inf
        while not all(entry.finished for entry in self.entries):
            if interrupts.count and not self._stopping:
                self._stop()
            self._keep_ended()
            if self.seconds - shown >= SHOW_EVERY:
                shown = self.seconds
                show(self._moment())
            time.sleep(TICK)
        show(self._moment())

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def _stop(self) -> None:
        self._stopping = True
        for entry in self.entries:
            entry.stopped = True
            if entry.job is not None:
                entry.job.cancel()

    def _submit(self, interrupts: Interrupts) -> None:
        """Submit every job, in the order of the file, unless interrupted; the cluster holds back what must wait."""
        for entry in self.entries:
            if interrupts.count:
                return
            try:
                entry.job = submit(self._cluster, entry.table, since=self.seconds)
                make_room(entry.job.directory)
            except (SlaqError, OSError, TypeError, ValueError, AttributeError) as error:
                # The errors that are not slaq's come from a program that cannot be pickled.
                entry.fault = f"the job could not be submitted: {error}"

    def _keep_ended(self) -> None:
        for entry in self.entries:
            if entry.finished or not entry.state.ended:
                continue
            entry.ended_at = self.seconds
            entry.kept = Kept() if entry.job is None else keep(entry.job, entry.table, entry.as_json)

    def _moment(self) -> Moment:
        decisions = self._cluster.history.decisions()
        expected = (
            dict(zip(decisions[-1].ids, decisions[-1].expected.tolist(), strict=True)) if decisions else {}
        )
        rows = [
            Row(
                name=entry.table.name,
                kind=entry.table.kind,
                state=entry.state,
                losses=entry.losses,
                reduction=0.0 if entry.job is None else entry.job.reduction,
                expected=math.nan if entry.state.ended else expected.get(entry.table.name, math.nan),
                cores=0.0 if entry.job is None else entry.job.cores,
                reason=entry.reason,
            )
            for entry in self.entries
        ]
        return Moment(rows=rows, seconds=self.seconds, stopping=self._stopping)


def submit(cluster: RunningCluster, table: JobTable, *, since: float = 0.0) -> Job:
    """Submit a job of the file so many seconds after the start of the batch, from which arrivals count."""
    arrival = max(table.arrival - since, 0.0)
    work, options = table.work, {**table.options, "name": table.name, "arrival": arrival}
    options["group"] = table.group or table.own_group
    there = {job.id for job in cluster.jobs()}
    for name in options.get("after", ()):
        if name not in there:
            raise CommandError(
                f"job {name!r}, which it comes after, could not be submitted", "correct that one"
            )
    # It has ended, as far as others are concerned.
    options["after_any"] = [name for name in options.get("after_any", ()) if name in there]
    if not isinstance(cluster, Cluster):
        return _submit_to_spark(cluster, work, options)
    if isinstance(work, CommandWork):
        return cluster.submit_command(work.argv, **options)
    assert not isinstance(work, FitWork)
    return cluster.submit(work.program, work.data, **options)


def _submit_to_spark(cluster: RunningCluster, work: Work, options: dict[str, Any]) -> Job:
    from slaq.spark import SparkCluster

    assert isinstance(cluster, SparkCluster)
    if isinstance(work, FitWork):
        return cluster.submit(work.fit, **options)
    assert not isinstance(work, CommandWork)
    return cluster.submit_program(work.program, work.data, **options)


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
