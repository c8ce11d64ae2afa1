"""The active jobs as arrays: what each asked for, what it has reported, what it holds."""

from collections.abc import Iterable, Sequence

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.events import Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.forecaster import Forecaster, Rows
from slaq.core.job import JobSpec, Kind
from slaq.core.runtime import RuntimeModel

#: More units than any job can be given.
UNLIMITED = 2**40
#: Rows made at first.
FEWEST_ROWS = 64


class Roster(Rows):
    """One row per active job; rows of jobs that ended are used again.

    Fed with events, it keeps the forecaster and the runtime model, which have the same rows, up to date.
    """

    def __init__(self, forecaster: Forecaster, size: int = 0) -> None:
        self.forecaster = forecaster
        self.runtime = RuntimeModel(size)
        self.ids: dict[str, int] = {}
        self._free: list[int] = []
        self._submitted = 0
        # What the job asked for.
        self.order = np.zeros(size, dtype=np.int64)
        self.competes = np.zeros(size, dtype=bool)
        self.weight = np.zeros(size)
        self.min_units = np.zeros(size, dtype=np.int64)
        self.max_units = np.zeros(size, dtype=np.int64)
        self.reserved_units = np.zeros(size, dtype=np.int64)
        #: NaN where none was given.
        self.target = np.zeros(size)
        # What it has reported.
        self.observed = np.zeros(size, dtype=np.int64)
        self.first = np.zeros(size)
        self.last = np.zeros(size)
        self.best = np.zeros(size)
        self.worst = np.zeros(size)
        #: The largest fall from one loss to the next: the paper's normaliser (§4.1).
        self.largest_fall = np.zeros(size)
        #: Its last loss was not finite.
        self.diverged = np.zeros(size, dtype=bool)
        # What it holds and has had: units now, since when, unit seconds since its last loss and in all.
        self.units = np.zeros(size, dtype=np.int64)
        self.since = np.zeros(size)
        self.held = np.zeros(size)
        self.attained = np.zeros(size)
        self.credit = np.zeros(size)

    def admit(self, spec: JobSpec, now: float) -> None:
        """Give a job a row."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.ids[spec.id] = row
        self.order[row] = self._submitted
        self._submitted += 1
        self.competes[row] = spec.kind is Kind.ML
        self.weight[row] = spec.weight
        self.min_units[row] = spec.min_units
        self.max_units[row] = UNLIMITED if spec.max_units is None else spec.max_units
        self.reserved_units[row] = -1 if spec.reserved_units is None else spec.reserved_units
        self.target[row] = np.nan if spec.target_loss is None else spec.target_loss
        self.since[row] = now

    def absorb(self, events: Sequence[Event]) -> None:
        """Take in what has happened; events of jobs without a row are passed over."""
        reported: list[LossObserved] = []
        for event in events:
            if isinstance(event, LossObserved):
                if event.job_id in self.ids:
                    reported.append(event)
            elif isinstance(event, LearningRateChanged):
                if event.job_id in self.ids:
                    self._take_in(reported)
                    reported = []
                    self.forecaster.bend(np.array([self.ids[event.job_id]]))
            elif isinstance(event, JobEnded):
                self._take_in(reported)
                reported = []
                self._dismiss(event.job_id)
        self._take_in(reported)

    def hold(self, rows: Integers, units: Integers, credit: Floats, now: float) -> None:
        """Note what the jobs of these rows, which are all there are, hold from now on."""
        self._pass_time(rows, np.full(len(rows), now))
        self.units[rows] = units
        self.credit[rows] = credit

    def rows(self) -> Integers:
        """Return the rows of all active jobs, in the order of `ids`."""
        return np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))

    def _take_in(self, reported: Iterable[LossObserved]) -> None:
        """Feed the losses to the models, in as few passes as the job with most news needs."""
        table = [
            (
                self.ids[e.job_id],
                e.at,
                e.observation.loss,
                e.observation.cpu_seconds,
                e.observation.wall_seconds,
            )
            for e in reported
            if e.job_id in self.ids
        ]
        if not table:
            return
        columns = np.array(table)
        rows = columns[:, 0].astype(np.int64)
        by_row = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[by_row], prepend=-1))
        counts = np.diff(starts, append=len(rows))
        for turn in range(counts.max()):
            news = by_row[starts[counts > turn] + turn]
            self.observe(rows[news], *columns[news, 1:].T)

    def observe(self, rows: Integers, at: Floats, losses: Floats, cpu: Floats, wall: Floats) -> None:
        """Take in one loss of each row with its time and cost; no row is named twice."""
        self._pass_time(rows, at)
        worked = wall > 0
        self.runtime.observe(rows[worked], cpu[worked], wall[worked], self.held[rows[worked]])
        self.held[rows] = 0.0
        finite = np.isfinite(losses)
        self.diverged[rows] = ~finite
        rows, losses = rows[finite], losses[finite]
        fresh = self.observed[rows] == 0
        for seen in (self.first, self.last, self.best, self.worst):
            seen[rows[fresh]] = losses[fresh]
        self.largest_fall[rows] = np.maximum(self.largest_fall[rows], self.last[rows] - losses)
        self.best[rows] = np.minimum(self.best[rows], losses)
        self.worst[rows] = np.maximum(self.worst[rows], losses)
        self.last[rows] = losses
        self.observed[rows] += 1
        self.forecaster.observe(rows, losses)

    def _pass_time(self, rows: Integers, now: Floats) -> None:
        passed = self.units[rows] * np.maximum(now - self.since[rows], 0.0)
        self.held[rows] += passed
        self.attained[rows] += passed
        self.since[rows] = now

    def _dismiss(self, job_id: str) -> None:
        row = self.ids.pop(job_id, None)
        if row is None:
            return
        gone = np.array([row])
        self.clear(gone)
        self.forecaster.clear(gone)
        self.runtime.clear(gone)
        self._free.append(row)

    def _grow(self) -> None:
        size = len(self.order)
        larger = max(2 * size, FEWEST_ROWS)
        self.resize(larger)
        self.forecaster.resize(larger)
        self.runtime.resize(larger)
        self._free.extend(range(larger - 1, size - 1, -1))
