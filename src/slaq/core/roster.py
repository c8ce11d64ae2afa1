"""The jobs that are under way as arrays: what each asked for, what it has reported, what it holds."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core import snapshot
from slaq.core.allocation import Allocation
from slaq.core.arrays import Floats, Integers
from slaq.core.errors import JobOptionError, SnapshotError, UnknownJobError
from slaq.core.events import CurveBegan, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.forecaster import Forecaster, Rows
from slaq.core.job import JobSpec, Kind
from slaq.core.runtime import RuntimeModel

#: More units than any job can be given.
UNLIMITED = 2**40
#: A loss this large, or one that is not a number, is no loss to learn from.
DIVERGED = 1e100
#: A job that reports more losses than this between two epochs has its forecasts count two as one: they then
#: look as far ahead as decisions do, and cost the same however fast it iterates.
NEWS = 8
#: Rows made at first.
FEWEST_ROWS = 64
#: The share of its whole reduction that a job with a deadline wants where it does not say.
WANTED = 0.95
#: How fast the units a job usually holds follow those it is given.
USUAL_RATE = 0.2


class Roster(Rows):
    """One row per job under way; rows of jobs that ended are used again.

    A job is active unless it is paused. Fed with events, the roster keeps the forecaster and the runtime model,
    which have the same rows, up to date.
    """

    def __init__(self, forecaster: Forecaster, size: int = 0) -> None:
        self.forecaster = forecaster
        self.runtime = RuntimeModel(size)
        #: Rows by job id, paused jobs included.
        self.ids: dict[str, int] = {}
        #: Numbers by the name of the owner, from 0 in the order of their first jobs.
        self.owners: dict[str, int] = {}
        #: What each owner is owed from rounding, in the order of `owners`.
        self.owner_credit: list[float] = []
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
        self.owner = np.zeros(size, dtype=np.int64)
        #: Seconds on the scheduler's clock; infinite where there is none.
        self.deadline = np.zeros(size)
        #: The share of the whole reduction wanted; NaN where none is.
        self.wanted = np.zeros(size)
        #: It holds nothing and is no candidate until it is resumed.
        self.paused = np.zeros(size, dtype=bool)
        # What it has reported.
        self.observed = np.zeros(size, dtype=np.int64)
        self.first = np.zeros(size)
        self.last = np.zeros(size)
        self.best = np.zeros(size)
        self.worst = np.zeros(size)
        #: The largest fall from one loss to the next: the paper's normaliser (§4.1).
        self.largest_fall = np.zeros(size)
        #: How many iterations its forecasts count as one, and those of them begun: how many, their sum.
        self.stride = np.zeros(size, dtype=np.int64)
        self.begun = np.zeros(size, dtype=np.int64)
        self.begun_sum = np.zeros(size)
        #: Its last loss was no number to learn from; it is held at its floor until one is.
        self.diverged = np.zeros(size, dtype=bool)
        # What it holds and has had: units now, since when, unit seconds since its last loss and in all.
        self.units = np.zeros(size, dtype=np.int64)
        self.since = np.zeros(size)
        self.held = np.zeros(size)
        self.attained = np.zeros(size)
        self.credit = np.zeros(size)
        #: Units as a mean over the last epochs: what it can count on where jobs take turns.
        self.usual_units = np.zeros(size)

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
        if spec.owner not in self.owners:
            self.owners[spec.owner] = len(self.owners)
            self.owner_credit.append(0.0)
        self.owner[row] = self.owners[spec.owner]
        self.deadline[row] = np.inf if spec.deadline is None else spec.deadline
        implied = np.nan if spec.deadline is None else WANTED
        self.wanted[row] = implied if spec.wanted is None else spec.wanted
        self.stride[row] = 1
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
            elif isinstance(event, CurveBegan):
                self._take_in(reported)
                reported = []
                self._begin_curve(event.job_id)
            elif isinstance(event, JobEnded):
                self._take_in(reported)
                reported = []
                self._dismiss(event.job_id)
        self._take_in(reported)

    def hold(self, rows: Integers, allocation: Allocation, now: float) -> None:
        """Note what the jobs of these rows, which are all that are active, hold from now on."""
        if self.paused.any():
            halted = (self.paused & (self.units > 0)).nonzero()[0]
            self._pass_time(halted, np.full(len(halted), now))
            self.units[halted] = 0
        self._pass_time(rows, np.full(len(rows), now))
        usual, units = self.usual_units[rows], allocation.units
        new = usual == 0.0
        usual += USUAL_RATE * (units - usual)
        usual[new] = units[new]
        self.usual_units[rows] = usual
        self.units[rows] = units
        self.credit[rows] = allocation.credit
        if len(allocation.owner_credit):
            self.owner_credit = allocation.owner_credit.tolist()

    def rows(self) -> Integers:
        """Return the rows of all active jobs, in the order of `ids`."""
        rows = np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))
        return rows[~self.paused[rows]] if self.paused.any() else rows

    def active_ids(self) -> tuple[str, ...]:
        """Return the ids of all active jobs, in the order of `rows`."""
        if not self.paused.any():
            return tuple(self.ids)
        return tuple(job_id for job_id, row in self.ids.items() if not self.paused[row])

    def pause(self, job_id: str) -> None:
        """Take a job out of the competition: from the next decision on it holds nothing, and keeps its curve."""
        self.paused[self._row(job_id)] = True

    def resume(self, job_id: str) -> None:
        """Let a paused job compete again, with the curve and the credit it had."""
        self.paused[self._row(job_id)] = False

    def stand_still(self, now: float) -> None:
        """Take note that nothing has run until now, nor holds anything: after the engine was lost."""
        rows = np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))
        self.units[rows] = 0
        self.since[rows] = now

    def reweigh(self, job_id: str, weight: float) -> None:
        """Change a job's weight from the next decision on."""
        if not 0.0 < weight < np.inf:
            raise JobOptionError("weight", weight, "a number above 0")
        self.weight[self._row(job_id)] = weight

    def relimit(self, job_id: str, max_units: int | None) -> None:
        """Change the units a job may hold at most, from the next decision on; None for no limit."""
        if max_units is not None and max_units < 1:
            raise JobOptionError("max_units", max_units, "1 or more")
        self.max_units[self._row(job_id)] = UNLIMITED if max_units is None else max_units

    def dump(self) -> bytes:
        """Return all that is known, in a form that `restore` reads back exactly."""
        rows = np.array(sorted(self.ids.values()), dtype=np.int64)
        about = {
            "forecaster": type(self.forecaster).__name__,
            "size": len(self.order),
            "submitted": self._submitted,
            "ids": list(self.ids),
            "owners": list(self.owners),
            "owner_credit": self.owner_credit,
        }
        places = np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))
        arrays = {name: array[rows] for name, array in self._tables()}
        return snapshot.pack(
            about, arrays | {"rows": rows, "places": places, "free": np.array(self._free, dtype=np.int64)}
        )

    def restore(self, dumped: bytes) -> None:
        """Become what was dumped, all of it or, where that cannot be, nothing; this roster has no jobs yet."""
        about, arrays = snapshot.unpack(dumped)
        if about["forecaster"] != type(self.forecaster).__name__:
            raise SnapshotError(f"its forecasts are those of {about['forecaster']}")
        rows, places, free = (arrays.pop(name) for name in ("rows", "places", "free"))
        known = {name: (array.dtype, array.shape[1:]) for name, array in self._tables()}
        if known != {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}:
            raise SnapshotError("it was made by another version of slaq")
        for part in (self, self.forecaster, self.runtime):
            part.resize(about["size"])
        for name, array in self._tables():
            array[rows] = arrays[name]
        self.ids = dict(zip(about["ids"], places.tolist(), strict=True))
        self.owners = {name: number for number, name in enumerate(about["owners"])}
        self.owner_credit = about["owner_credit"]
        self._free = free.tolist()
        self._submitted = about["submitted"]

    def _tables(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield every array of this roster and its models, with a name of its own."""
        named = (("roster", self), ("forecaster", self.forecaster), ("runtime", self.runtime))
        for part, holder in named:
            for name, array in holder.arrays().items():
                yield f"{part}.{name}", array

    def _row(self, job_id: str) -> int:
        if job_id not in self.ids:
            raise UnknownJobError(job_id)
        return self.ids[job_id]

    def _take_in(self, reported: Iterable[LossObserved]) -> None:
        """Feed reported losses to the models, all jobs at once."""
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
        if table:
            row, *columns = np.array(table).T
            self.observe(row.astype(np.int64), *columns)

    def observe(self, rows: Integers, at: Floats, losses: Floats, cpu: Floats, wall: Floats) -> None:
        """Take in losses with their times and costs; those of one row stand in the order they came."""
        if not len(rows):
            return
        if len(rows) > 1:
            by_row = np.argsort(rows, kind="stable")
            rows = rows[by_row]
            at, losses, cpu, wall = (column[by_row] for column in (at, losses, cpu, wall))
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        each, counts = rows[starts], np.diff(starts, append=len(rows))
        self._pass_time(each, at[starts + counts - 1])
        cpu, wall = np.add.reduceat(cpu, starts), np.add.reduceat(wall, starts)
        worked = wall > 0
        self.runtime.observe(
            each[worked], *(a[worked] / counts[worked] for a in (cpu, wall, self.held[each]))
        )
        self.held[each] = 0.0
        finite = np.abs(losses) < DIVERGED
        self.diverged[each] = ~finite[starts + counts - 1]
        if finite.all():
            self._follow(each, losses, starts, counts)
        elif finite.any():
            rows, losses = rows[finite], losses[finite]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            self._follow(rows[starts], losses, starts, np.diff(starts, append=len(rows)))

    def _follow(self, rows: Integers, losses: Floats, starts: Integers, counts: Integers) -> None:
        """Take in the finite losses of each row: `counts[i]` from `starts[i]` on for `rows[i]`."""
        first, last = losses[starts], losses[starts + counts - 1]
        fresh = self.observed[rows] == 0
        for seen in (self.first, self.last, self.best, self.worst):
            seen[rows[fresh]] = first[fresh]
        falls = -np.diff(losses, prepend=0.0)
        falls[starts] = self.last[rows] - first
        self.largest_fall[rows] = np.maximum(self.largest_fall[rows], np.maximum.reduceat(falls, starts))
        self.best[rows] = np.minimum(self.best[rows], np.minimum.reduceat(losses, starts))
        self.worst[rows] = np.maximum(self.worst[rows], np.maximum.reduceat(losses, starts))
        self.last[rows] = last
        self.observed[rows] += counts
        self.widen(rows[counts > NEWS * self.stride[rows]])
        blocks, full = self._blocks(rows, losses, starts, counts)
        told = full > 0
        self.forecaster.observe(rows[told], blocks[told], full[told])

    def widen(self, rows: Integers) -> None:
        """Let these rows' forecasts count twice as many iterations as one."""
        if len(rows):
            self.stride[rows] *= 2
            self.forecaster.coarsen(rows)

    def _blocks(
        self, rows: Integers, losses: Floats, starts: Integers, counts: Integers
    ) -> tuple[Floats, Integers]:
        """Return the means of every full stride of losses, one row each, and how many there are.

        What does not fill a stride is kept for the next time.
        """
        stride, begun = self.stride[rows], self.begun[rows]
        if counts.max() == 1 and stride.max() == 1:
            return losses[:, None], counts
        full = (begun + counts) // stride
        place = np.arange(len(losses)) - np.repeat(starts, counts) + np.repeat(begun, counts)
        block = place // np.repeat(stride, counts)
        sums = np.zeros((len(rows), int(full.max()) + 1))
        np.add.at(sums, (np.repeat(np.arange(len(rows)), counts), block), losses)
        sums[:, 0] += self.begun_sum[rows]
        each = np.arange(len(rows))
        self.begun[rows] = begun + counts - full * stride
        self.begun_sum[rows] = np.where(self.begun[rows] > 0, sums[each, full], 0.0)
        return sums[:, : max(int(full.max()), 1)] / stride[:, None], full

    def _pass_time(self, rows: Integers, now: Floats) -> None:
        passed = self.units[rows] * np.maximum(now - self.since[rows], 0.0)
        self.held[rows] += passed
        self.attained[rows] += passed
        self.since[rows] = now

    def _begin_curve(self, job_id: str) -> None:
        """Forget what was learned from a job's losses and their costs; what it asked for and holds stays."""
        row = self.ids.get(job_id)
        if row is None:
            return
        begun = np.array([row])
        self.observed[row] = self.begun[row] = 0
        self.largest_fall[row] = self.begun_sum[row] = self.held[row] = 0.0
        self.stride[row] = 1
        self.diverged[row] = False
        self.forecaster.clear(begun)
        self.runtime.clear(begun)

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
