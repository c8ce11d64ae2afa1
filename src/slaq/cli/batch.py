"""Runs the jobs of a file on an embedded cluster: each at its arrival, until all have ended or are stopped."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slaq.cli.interrupts import Interrupts
from slaq.cluster import Cluster
from slaq.config import CommandWork, FitWork, JobTable
from slaq.core.errors import SlaqError
from slaq.core.job import JobState
from slaq.handle import Job
from slaq.keeping import Kept, keep, make_room
from slaq.running import RunningCluster

#: Seconds between two looks at the jobs, and between two moments that are shown: drawing costs CPU time that
#: the jobs could use.
TICK, SHOW_EVERY = 0.1, 0.5


class Entry:
    """One job of the file on its way."""

    def __init__(self, table: JobTable) -> None:
        self.table = table
        #: None until its arrival.
        self.job: Job | None = None
        #: Why it could not even be submitted.
        self.fault = ""
        self.stopped = False
        #: What it left, once it has ended.
        self.kept: Kept | None = None
        #: Seconds from the start of the batch to its end.
        self.ended_at = math.nan
        self._losses: list[float] = []

    @property
    def state(self) -> JobState:
        """Where it stands in its life."""
        if self.job is not None:
            return self.job.state
        if self.fault:
            return JobState.FAILED
        return JobState.CANCELLED if self.stopped else JobState.QUEUED

    @property
    def reason(self) -> str:
        """Why it ended, where that was not by itself; one sentence."""
        return self.job.reason if self.job is not None else self.fault

    @property
    def finished(self) -> bool:
        """Whether it has ended and what it left is kept."""
        return self.kept is not None

    @property
    def losses(self) -> list[float]:
        """Its losses so far; only the new ones are looked at."""
        if self.job is not None:
            self._losses += [one.loss for one in self.job.observations[len(self._losses) :]]
        return self._losses

    def as_json(self) -> dict[str, Any]:
        """Return the documented fields; None for what is not known or not finite."""
        observations = [] if self.job is None else self.job.observations
        finite = [one.loss for one in observations if math.isfinite(one.loss)]
        last = observations[-1].loss if observations else math.nan
        return {
            "id": self.table.name,
            "algorithm": self.table.kind,
            "state": str(self.state),
            "reason": self.reason,
            "arrival": self.table.arrival,
            "ended": _rounded(self.ended_at, 3),
            "losses": len(observations),
            "first_loss": finite[0] if finite else None,
            "best_loss": min(finite) if finite else None,
            "last_loss": last if math.isfinite(last) else None,
            "reduction": _rounded(0.0 if self.job is None else self.job.reduction, 6),
            "cpu_seconds": round(sum(one.cpu_seconds for one in observations), 6),
            "directory": None if self.job is None else str(self.job.directory),
            "result": None if self.kept is None else self.kept.file,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is shown of one job at a moment."""

    name: str
    kind: str
    state: JobState
    losses: Sequence[float]
    reduction: float
    #: The loss forecast for the end of the epoch; NaN where there is no forecast.
    expected: float
    units: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is shown of the whole batch at a moment."""

    rows: Sequence[Row]
    #: Since the start.
    seconds: float
    stopping: bool


class Batch:
    """The jobs of a file, and the cluster they run on."""

    def __init__(self, tables: Sequence[JobTable], cluster: RunningCluster) -> None:
        self.entries = [Entry(table) for table in tables]
        self._cluster = cluster
        self._began = time.monotonic()
        self._stopping = False

    def run(self, interrupts: Interrupts, show: Callable[[Moment], None]) -> None:
        """Run every job to its end, showing each moment; the first interrupt stops them all."""
        shown = -math.inf
        while not all(entry.finished for entry in self.entries):
            if interrupts.count and not self._stopping:
                self._stop()
            self._submit_due()
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

    def _submit_due(self) -> None:
        for entry in self.entries:
            if entry.state is JobState.QUEUED and entry.job is None and entry.table.arrival <= self.seconds:
                try:
                    entry.job = submit(self._cluster, entry.table)
                    make_room(entry.job.directory)
                except (SlaqError, OSError, TypeError, ValueError, AttributeError) as error:
                    # Besides our own errors: a program that cannot be sent to another process.
                    entry.fault = f"it could not be submitted: {error}"

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
                units=0 if entry.job is None else entry.job.units,
                reason=entry.reason,
            )
            for entry in self.entries
        ]
        return Moment(rows=rows, seconds=self.seconds, stopping=self._stopping)


def submit(cluster: RunningCluster, table: JobTable) -> Job:
    """Submit a job of the file."""
    asked: dict[str, Any] = {
        "name": table.name,
        "weight": table.weight,
        "min_units": table.min_units,
        "max_units": table.max_units,
        "target": table.target_loss,
        "stop_at": table.stop_at,
        "max_iterations": table.max_iterations,
        "time_budget": table.time_budget,
    }
    if table.max_restarts is not None:
        asked["max_restarts"] = table.max_restarts
    work = table.work
    if not isinstance(cluster, Cluster):
        return _submit_to_spark(cluster, table, asked)
    if isinstance(work, CommandWork):
        if work.loss_column is not None:
            asked["loss_column"] = work.loss_column
        return cluster.submit_command(
            work.argv,
            cwd=work.cwd,
            env=work.env,
            loss_pattern=work.loss_pattern,
            loss_file=work.loss_file,
            trains=work.trains,
            **asked,
        )
    assert not isinstance(work, FitWork)
    return cluster.submit(
        work.program, work.data, partitions=table.partitions, task_timeout=table.task_timeout, **asked
    )


def _submit_to_spark(cluster: RunningCluster, table: JobTable, asked: dict[str, Any]) -> Job:
    from slaq.spark import SparkCluster

    assert isinstance(cluster, SparkCluster)
    if isinstance(table.work, FitWork):
        return cluster.submit(table.work.fit, trains=table.work.trains, **asked)
    assert not isinstance(table.work, CommandWork)
    return cluster.submit_program(table.work.program, table.work.data, partitions=table.partitions, **asked)


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
