"""The started jobs as arrays: what each asked for, what it has reported, and what it holds."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core import snapshot
from slaq.core.allocation import Grant
from slaq.core.arrays import Floats, Integers
from slaq.core.demand import Demand, Resource
from slaq.core.direction import turned, turned_rows
from slaq.core.errors import JobOptionError, SnapshotError, UnknownJobError
from slaq.core.events import (
    CapacityChanged,
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    Event,
    JobDelayed,
    JobEnded,
    JobLost,
    JobRetried,
    LearningRateChanged,
    LossObserved,
    LossSourceChanged,
    ThreadsChosen,
    TrainingChanged,
)
from slaq.core.forecaster import Forecaster, Rows
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.progress import is_number, losses_left
from slaq.core.quality import LASTING, without_spikes
from slaq.core.runtime import RuntimeModel

#: A job that reports more losses than this between two epochs gets a longer stride: the forecaster treats the
#: mean of several losses as one. So forecasts look as far ahead as decisions do, and cost the same for fast jobs.
NEWS = 8
#: The initial number of rows.
FEWEST_ROWS = 64
#: The default target of a job with a deadline, as a share of its whole reduction.
STOP_AT = 0.95
#: The usual CPU time to a first loss is taken from the starts of so many jobs, the last ones; before there is one,
#: it is the seconds that importing a framework takes.
MOST_STARTS, FIRST_START = 32, 2.0
#: The weight of a new grant in the mean of the cores that a job usually holds.
USUAL_RATE = 0.2


class Roster(Rows):
    """One row per started job; the rows of ended jobs are reused.

    A job is active unless it is paused. The roster updates the forecaster and the runtime model, which have the
    same rows, from events.
    """

    def __init__(self, forecaster: Forecaster, size: int = 0) -> None:
        self.forecaster = forecaster
        self.runtime = RuntimeModel(size)
        #: Rows by job id, including paused jobs.
        self.ids: dict[str, int] = {}
        #: Index by the owner's name, in the order of the owners' first jobs.
        self.owners: dict[str, int] = {}
        #: Cores owed to each owner from rounding, in the order of `owners`.
        self.owner_credit: list[float] = []
        #: The numbers of the groups, from 1 on, by owner, name and whether their numbers should rise.
        self._groups: dict[tuple[str, str, bool], int] = {}
        self._free: list[int] = []
        self._submitted = 0
        #: By job id: the demand of the owner, and the demand that the running job reported.
        self._asked: dict[str, Demand] = {}
        self._said: dict[str, Demand] = {}
        #: CPU seconds that the last jobs took to their first loss, the latest last.
        self._starts: deque[float] = deque(maxlen=MOST_STARTS)
        #: By job id, for jobs that cannot run with any number of cores: the demand.
        self.sized: dict[str, Demand] = {}
        self._make_asked(size)
        self._make_reported(size)
        self._make_held(size)

    def _make_asked(self, size: int) -> None:
        """Make the arrays of what each job asked for."""
        self.order = np.zeros(size, dtype=np.int64)
        self.competes = np.zeros(size, dtype=bool)
        #: Whether its numbers should rise; all that is kept of them here is turned, so that less is better.
        self.maximize = np.zeros(size, dtype=bool)
        self.weight = np.zeros(size)
        #: The least cores that the job holds at all times, and the most that it can use (infinite for no limit).
        self.least = np.zeros(size)
        self.most = np.zeros(size)
        #: Cores reserved by a job that does not compete; NaN for its fair share.
        self.reserved = np.zeros(size)
        #: The target loss; NaN without one.
        self.target = np.zeros(size)
        self.owner = np.zeros(size, dtype=np.int64)
        #: Seconds on the scheduler's clock; infinite without a deadline.
        self.deadline = np.zeros(size)
        #: The target as a share of the whole reduction; NaN without one.
        self.stop_at = np.zeros(size)
        #: Whether the job is ended once it has reached that share.
        self.stops = np.zeros(size, dtype=bool)
        #: The number of iterations after which the job ends, as its owner asks; NaN for no such end.
        self.limit = np.zeros(size)
        #: The number of the job's group, 0 for none, and whether the best job of that group is wanted soon.
        self.group = np.zeros(size, dtype=np.int64)
        self.searches = np.zeros(size, dtype=bool)
        #: The best loss of the jobs of its group that have completed; infinite without any.
        self.record = np.zeros(size)
        #: Whether the job is paused: it holds no cores and is not a candidate.
        self.paused = np.zeros(size, dtype=bool)

    def _make_reported(self, size: int) -> None:
        """Make the arrays of what each job has reported."""
        self.observed = np.zeros(size, dtype=np.int64)
        #: The number of the last iteration, and of the first one with a loss: numbers may be left out.
        self.iteration = np.zeros(size, dtype=np.int64)
        self.began = np.zeros(size, dtype=np.int64)
        #: How many iterations the job makes in all, as it reported or its owner asked; NaN where neither says.
        self.total = np.zeros(size)
        self.first = np.zeros(size)
        self.last = np.zeros(size)
        self.best = np.zeros(size)
        #: The last LASTING losses, the newest first; before there are so many, the first stands for the others.
        self.recent = np.zeros((size, LASTING))
        #: The largest fall from one loss to the next: the paper's normaliser (§4.1).
        self.largest_fall = np.zeros(size)
        #: Stride: iterations that the forecaster treats as one. Then the number and the sum of the losses in the
        #: stride that is not full yet.
        self.stride = np.zeros(size, dtype=np.int64)
        self.begun = np.zeros(size, dtype=np.int64)
        self.begun_sum = np.zeros(size)
        #: Whether the last loss was NaN or too large; the job holds only its guarantee until a loss is finite.
        self.diverged = np.zeros(size, dtype=bool)

    def _make_held(self, size: int) -> None:
        """Make the arrays of what each job holds and has used."""
        # Cores now, since when, core seconds since its last loss and in all.
        self.cores = np.zeros(size)
        self.since = np.zeros(size)
        self.held = np.zeros(size)
        self.attained = np.zeros(size)
        #: The cores that the job was seen to keep busy at a time; 0 if unknown.
        self.parallel = np.zeros(size)
        #: CPU seconds used before the first loss, as far as the engine tells them.
        self.used = np.zeros(size)
        #: Cores owed to the job because of rounding to units and to sizes.
        self.credit = np.zeros(size)
        self.size_credit = np.zeros(size)
        #: The mean of the job's cores over the last epochs, for forecasts of jobs that take turns.
        self.usual_cores = np.zeros(size)
        #: Epochs since the job last held cores, or since its start.
        self.waited = np.zeros(size, dtype=np.int64)

    def admit(self, spec: JobSpec, now: float) -> None:
        """Add a job that starts now."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.ids[spec.id] = row
        self.order[row] = self._submitted
        self._submitted += 1
        self.competes[row] = spec.trains
        self.maximize[row] = spec.maximize
        self.weight[row] = spec.weight
        self._asked[spec.id] = spec.demand
        self._restate(spec.id)
        self.reserved[row] = np.nan if spec.reserved is None else spec.reserved
        self.target[row] = np.nan if spec.target_loss is None else turned(spec.target_loss, spec.maximize)
        if spec.owner not in self.owners:
            self.owners[spec.owner] = len(self.owners)
            self.owner_credit.append(0.0)
        self.owner[row] = self.owners[spec.owner]
        self.deadline[row] = np.inf if spec.deadline is None else spec.deadline
        implied = np.nan if spec.deadline is None else STOP_AT
        self.stop_at[row] = implied if spec.stop_at is None else spec.stop_at
        self.stops[row] = spec.stop_at is not None
        self.limit[row] = np.nan if spec.max_iterations is None else spec.max_iterations
        self._join(row, spec)
        self.total[row] = self.limit[row]
        self.stride[row] = 1
        self.since[row] = now

    def _join(self, row: int, spec: JobSpec) -> None:
        """Put a job into its group; numbers that should fall are never compared with numbers that should rise."""
        self.searches[row] = spec.best_first
        self.record[row] = np.inf
        if spec.group:
            unused = max(self._groups.values(), default=0) + 1
            number = self._groups.setdefault((spec.owner, spec.group, spec.maximize), unused)
            self.record[row] = self.record[self.group == number].min(initial=np.inf)
            self.group[row] = number

    def absorb(self, events: Sequence[Event]) -> None:
        """Apply events in order; ignore events of jobs without a row."""
        reported: list[LossObserved] = []
        used: dict[str, CpuUsed] = {}
        for event in events:
            if (
                isinstance(
                    event, CapacityChanged | JobDelayed | JobRetried | ThreadsChosen | LossSourceChanged
                )
                or event.job_id not in self.ids
            ):
                continue
            if isinstance(event, CpuUsed):
                used[event.job_id] = event
                continue
            if isinstance(event, LossObserved):
                reported.append(event)
                continue
            if not isinstance(event, EndForeseen):
                self._take_in(reported)
                reported = []
            self._apply(event)
        self._take_in(reported)
        for job_id in used.keys() & self.ids.keys():
            self._use(job_id, used[job_id])

    def _use(self, job_id: str, event: CpuUsed) -> None:
        """Take note of what a job has used, and of how many cores it can keep busy."""
        row = self.ids[job_id]
        if not self.observed[row]:
            self.used[row] = event.cpu_seconds
        if event.parallel and event.parallel != self.parallel[row]:
            self.parallel[row] = event.parallel
            self._restate(job_id)

    def _apply(
        self,
        event: (
            LearningRateChanged
            | CurveBegan
            | DemandChanged
            | EndForeseen
            | TrainingChanged
            | JobLost
            | JobEnded
        ),
    ) -> None:
        """Apply an event other than a loss to a job that has a row."""
        row = self.ids[event.job_id]
        match event:
            case LearningRateChanged():
                self.forecaster.bend(np.array([row]))
            case CurveBegan():
                self._begin_curve(row)
            case DemandChanged():
                self._said[event.job_id] = event.demand
                self._restate(event.job_id)
            case EndForeseen():
                self.total[row] = np.fmin(event.iterations, self.limit[row])
            case TrainingChanged():
                self.competes[row] = event.trains
            case JobLost():
                pass  # What the job has learned and is owed stays; the scheduler starts the job again.
            case JobEnded():
                self._keep_record(row, event.state)
                self._dismiss(event.job_id)

    def _keep_record(self, row: int, state: JobState) -> None:
        """Keep the best loss of a job that completes for the others of its group."""
        if state is JobState.COMPLETED and self.group[row] and self.observed[row] and not self.diverged[row]:
            peers = self.group == self.group[row]
            self.record[peers] = np.minimum(self.record[peers], self.best[row])

    def hold(self, rows: Integers, grant: Grant, now: float) -> None:
        """Set what all active jobs, whose rows these are, hold from now on."""
        if self.paused.any():
            halted = (self.paused & (self.cores > 0)).nonzero()[0]
            self._pass_time(halted, np.full(len(halted), now))
            self.cores[halted] = 0.0
        self._pass_time(rows, np.full(len(rows), now))
        usual, cores = self.usual_cores[rows], grant.cores
        new = usual == 0.0
        usual += USUAL_RATE * (cores - usual)
        usual[new] = cores[new]
        self.usual_cores[rows] = usual
        self.cores[rows] = cores
        self.waited[rows] = np.where(cores > 0, 0, self.waited[rows] + 1)
        self.credit[rows] = grant.credit
        self.size_credit[rows] = grant.size_credit
        if len(grant.owner_credit):
            self.owner_credit = grant.owner_credit.tolist()

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
        """Pause a job: from the next decision on it holds no cores. Its loss history is kept."""
        self.paused[self._row(job_id)] = True

    def resume(self, job_id: str) -> None:
        """Resume a paused job with its loss history and its credit."""
        self.paused[self._row(job_id)] = False

    def stand_still(self, now: float) -> None:
        """Count no core seconds until now and set all cores to 0; called after the engine was restarted."""
        rows = np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))
        self.cores[rows] = 0.0
        self.since[rows] = now

    def reweigh(self, job_id: str, weight: float) -> None:
        """Change a job's weight from the next decision on."""
        if not 0.0 < weight < np.inf:
            raise JobOptionError("weight", weight, "a number above 0")
        self.weight[self._row(job_id)] = weight

    def relimit(self, job_id: str, max_cores: float | None) -> None:
        """Change the most cores a job may hold from the next decision on; None for no limit."""
        if max_cores is not None and not 0.0 < max_cores < np.inf:
            raise JobOptionError("max_cores", max_cores, "a number of cores above 0")
        self._row(job_id)
        self._asked[job_id] = replace(self._asked[job_id], most=max_cores)
        self._restate(job_id)

    def demand(self, job_id: str) -> Demand:
        """Return what a job can use now."""
        self._row(job_id)
        asked = self._asked[job_id]
        return self._said[job_id].bounded_by(asked) if job_id in self._said else asked

    def said(self, job_id: str) -> Demand | None:
        """Return the demand that a running job last reported; None if it reported none."""
        return self._said.get(job_id)

    def usual_start(self) -> float:
        """Return the CPU seconds that jobs usually take to their first loss."""
        return float(np.median(self._starts)) if self._starts else FIRST_START

    def extents(self, rows: Integers) -> Floats:
        """Return the range of each job's losses, by which its falls are divided; 0 where none has fallen yet.

        It is (first loss - best loss), the part of its whole reduction that the job has made. A rise above the
        first loss widens it while it lasts, which takes LASTING losses in a row: so a spike does not.
        """
        lasting = self.recent[rows].min(axis=1)
        return np.asarray(np.maximum(self.first[rows], lasting) - self.best[rows])

    def losses_left(self, rows: Integers) -> Floats:
        """Return the losses that these jobs report until their known end; NaN where it is not known."""
        total, limit = self.total[rows], self.limit[rows]
        return losses_left(self.observed[rows], self.began[rows], self.iteration[rows], total, limit)

    def dump(self) -> bytes:
        """Return the whole state as bytes that `restore` reads back exactly."""
        rows = np.array(sorted(self.ids.values()), dtype=np.int64)
        about = {
            "forecaster": type(self.forecaster).__name__,
            "size": len(self.order),
            "submitted": self._submitted,
            "ids": list(self.ids),
            "owners": list(self.owners),
            "owner_credit": self.owner_credit,
            "starts": list(self._starts),
            "groups": list(self._groups.items()),
            "asked": {job_id: asdict(demand) for job_id, demand in self._asked.items()},
            "said": {job_id: asdict(demand) for job_id, demand in self._said.items()},
        }
        places = np.fromiter(self.ids.values(), dtype=np.int64, count=len(self.ids))
        arrays = {name: array[rows] for name, array in self._tables()}
        return snapshot.pack(
            about, arrays | {"rows": rows, "places": places, "free": np.array(self._free, dtype=np.int64)}
        )

    def restore(self, dumped: bytes) -> None:
        """Restore a dumped state into this empty roster; on SnapshotError the roster stays empty."""
        about, arrays = snapshot.unpack(dumped)
        if about["forecaster"] != type(self.forecaster).__name__:
            raise SnapshotError(f"it holds forecasts of another forecaster, {about['forecaster']}")
        rows, places, free = (arrays.pop(name) for name in ("rows", "places", "free"))
        known = {name: (array.dtype, array.shape[1:]) for name, array in self._tables()}
        if known != {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}:
            raise SnapshotError("another version of slaq wrote it")
        for part in (self, self.forecaster, self.runtime):
            part.resize(about["size"])
        for name, array in self._tables():
            array[rows] = arrays[name]
        self.ids = dict(zip(about["ids"], places.tolist(), strict=True))
        self.owners = {name: number for number, name in enumerate(about["owners"])}
        self.owner_credit = about["owner_credit"]
        self._starts.extend(about["starts"])
        self._groups = {tuple(key): number for key, number in about["groups"]}
        self._free = free.tolist()
        self._submitted = about["submitted"]
        self._asked = {job_id: _demand(fields) for job_id, fields in about["asked"].items()}
        self._said = {job_id: _demand(fields) for job_id, fields in about["said"].items()}
        for job_id in self.ids:
            self._restate(job_id)

    def _tables(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield every array of this roster and its models under a unique name."""
        named = (("roster", self), ("forecaster", self.forecaster), ("runtime", self.runtime))
        for part, holder in named:
            for name, array in holder.arrays().items():
                yield f"{part}.{name}", array

    def _row(self, job_id: str) -> int:
        if job_id not in self.ids:
            raise UnknownJobError(job_id)
        return self.ids[job_id]

    def _take_in(self, reported: Iterable[LossObserved]) -> None:
        """Pass reported losses to the models, all jobs at once."""
        table = [
            (
                self.ids[e.job_id],
                e.observation.iteration,
                e.at,
                e.observation.loss,
                e.observation.cpu_seconds,
                *_time_of(e.observation),
            )
            for e in reported
            if e.job_id in self.ids
        ]
        if table:
            row, iteration, *columns = np.array(table).T
            rows, numbers = row.astype(np.int64), iteration.astype(np.int64)
            fresh = self.observed[rows] == 0
            # Of several losses of a row, the one that is written last counts.
            self.began[rows[fresh][::-1]] = numbers[fresh][::-1]
            self.iteration[rows] = numbers
            at, losses, cpu, wall, seats = columns
            self.observe(rows, at, turned_rows(losses, self.maximize[rows]), cpu, wall, seats)

    def observe(
        self,
        rows: Integers,
        at: Floats,
        losses: Floats,
        cpu: Floats,
        wall: Floats,
        seats: Floats | None = None,
    ) -> None:
        """Add losses with their times and costs; the losses of a row are in the order in which they came.

        Less is better: those of a job that maximizes are turned already. `wall` holds the seconds in which the job
        ran since its loss before, `seats` the core seconds that it had in them; NaN, or none at all, where it had
        what it was granted.
        """
        if not len(rows):
            return
        seats = np.full(len(rows), np.nan) if seats is None else seats
        if len(rows) > 1:
            by_row = np.argsort(rows, kind="stable")
            rows = rows[by_row]
            at, losses, cpu, wall, seats = (column[by_row] for column in (at, losses, cpu, wall, seats))
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        each, counts = rows[starts], np.diff(starts, append=len(rows))
        self._pass_time(each, at[starts + counts - 1])
        # What comes before the first loss is a start and no iteration.
        fresh = self.observed[each] == 0
        self._starts.extend(cpu[starts[fresh]].tolist())
        in_all = np.add.reduceat(wall, starts)
        cpu[starts[fresh]] = wall[starts[fresh]] = seats[starts[fresh]] = 0.0
        cpu, wall, seats = (np.add.reduceat(column, starts) for column in (cpu, wall, seats))
        worked = wall > 0
        held = self.held[each] * np.divide(wall, in_all, out=np.zeros_like(wall), where=worked)
        held = np.where(np.isnan(seats), held, seats)
        done = counts - fresh
        self.runtime.observe(each[worked], *(a[worked] / done[worked] for a in (cpu, wall, held)))
        self.held[each] = 0.0
        finite = is_number(losses)
        self.diverged[each] = ~finite[starts + counts - 1]
        if finite.all():
            self._follow(each, losses, starts, counts)
        elif finite.any():
            rows, losses = rows[finite], losses[finite]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            self._follow(rows[starts], losses, starts, np.diff(starts, append=len(rows)))

    def _follow(self, rows: Integers, losses: Floats, starts: Integers, counts: Integers) -> None:
        """Add the finite losses of each row: `counts[i]` losses from index `starts[i]` on for `rows[i]`."""
        first, last = losses[starts], losses[starts + counts - 1]
        fresh = self.observed[rows] == 0
        for seen in (self.first, self.last, self.best):
            seen[rows[fresh]] = first[fresh]
        self.recent[rows[fresh]] = first[fresh, None]
        falls = -np.diff(losses, prepend=0.0)
        falls[starts] = self.last[rows] - first
        self.largest_fall[rows] = np.maximum(self.largest_fall[rows], np.maximum.reduceat(falls, starts))
        self.best[rows] = np.minimum(self.best[rows], np.minimum.reduceat(losses, starts))
        one, two = (np.concatenate((losses[:1], losses[:-1])) for _ in range(2))
        two[1:] = one[:-1]
        one[starts], two[starts] = self.recent[rows, :2].T
        several = counts > 1
        two[starts[several] + 1] = self.recent[rows[several], 0]
        told_losses = without_spikes(losses, one, two, np.repeat(self.first[rows], counts))
        ago = np.arange(LASTING) - counts[:, None]
        new = losses[np.maximum(starts[:, None] - 1 - ago, 0)]
        self.recent[rows] = np.where(ago < 0, new, self.recent[rows[:, None], np.maximum(ago, 0)])
        self.last[rows] = last
        self.observed[rows] += counts
        self.widen(rows[counts > NEWS * self.stride[rows]])
        blocks, full = self._blocks(rows, told_losses, starts, counts)
        told = full > 0
        self.forecaster.observe(rows[told], blocks[told], full[told])

    def widen(self, rows: Integers) -> None:
        """Double the stride of these rows."""
        if len(rows):
            self.stride[rows] *= 2
            self.forecaster.coarsen(rows)

    def _blocks(
        self, rows: Integers, losses: Floats, starts: Integers, counts: Integers
    ) -> tuple[Floats, Integers]:
        """Return the means of all full strides of losses, one row per job, and their numbers.

        Losses that do not fill a stride are kept for the next call.
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
        passed = self.cores[rows] * np.maximum(now - self.since[rows], 0.0)
        self.held[rows] += passed
        self.attained[rows] += passed
        self.since[rows] = now

    def _restate(self, job_id: str) -> None:
        """Update a job's row to its present demand."""
        row, demand, said = self.ids[job_id], self.demand(job_id), self.said(job_id)
        self.least[row] = demand.least
        self.most[row] = np.inf if demand.most is None else demand.most
        # A job that says itself how much it can use follows its share: it keeps busy what it holds, and no more.
        if (said is None or said.most is None) and self.parallel[row]:
            self.most[row] = min(self.most[row], self.parallel[row])
        self.runtime.waste[row] = 0.0 if demand.worth is None else 1.0 / demand.worth
        self.sized.pop(job_id, None)
        if demand.sizes != "any":
            self.sized[job_id] = demand

    def _begin_curve(self, row: int) -> None:
        """Clear the loss history and the costs of a job; keep what it asked for and what it holds."""
        begun = np.array([row])
        self.observed[row] = self.begun[row] = 0
        self.total[row] = self.limit[row]
        self.largest_fall[row] = self.begun_sum[row] = self.held[row] = 0.0
        self.stride[row] = 1
        self.diverged[row] = False
        self.forecaster.clear(begun)
        waste = self.runtime.waste[row]
        self.runtime.clear(begun)
        self.runtime.waste[row] = waste

    def _dismiss(self, job_id: str) -> None:
        row = self.ids.pop(job_id)
        for demands in (self._asked, self._said, self.sized):
            demands.pop(job_id, None)
        gone, group = np.array([row]), self.group[row]
        self.clear(gone)
        if group and not (self.group == group).any():
            self._groups = {key: number for key, number in self._groups.items() if number != group}
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


def _time_of(seen: Observation) -> tuple[float, float]:
    """Return the seconds in which the job ran, and the core seconds that it had in them; NaN for its grant."""
    if seen.run_seconds is None or seen.seat_seconds is None:
        return seen.wall_seconds, np.nan
    return seen.run_seconds, seen.seat_seconds


def _demand(fields: dict[str, Any]) -> Demand:
    """Return the demand from its fields as read from JSON."""
    sizes = fields["sizes"]
    return Demand(
        **fields
        | {
            "resource": Resource(fields["resource"]),
            "sizes": sizes if isinstance(sizes, str) else tuple(sizes),
        }
    )
