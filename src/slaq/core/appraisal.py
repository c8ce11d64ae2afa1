"""Compute the candidates from the roster: the gain of each active job by units in the coming epoch.

Units exist only from here to the grant. Everywhere else, amounts are cores.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from slaq.core.allocation import Allocation, Candidates, Grant
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.deadlines import needed_cores
from slaq.core.decision import Decision
from slaq.core.direction import turned_rows
from slaq.core.finals import search_columns
from slaq.core.forecaster import ForecastTable
from slaq.core.gain import HORIZONS, KNOTS, concave, delayed_gains, finishing_gains, read_at, unit_grid
from slaq.core.quality import LASTING
from slaq.core.roster import Roster
from slaq.core.sizes import unit_sizes
from slaq.core.trajectories import START_POWER, reductions, strides_to_shares

#: The share of the lower half of the 80% interval that is added to a job's forecast fall. Without it, a job
#: that is wrongly forecast as flat would get no cores to show that its loss still falls.
OPTIMISM = 0.3
#: A job that has used more than jobs usually do until their first loss is expected to need so much of it again.
LATE = 0.5
#: A job counts as converged after this share of its remaining fall.
CONVERGED = 0.95
#: More units than any job can be given.
UNLIMITED = 2**40
#: A job is expected to gain at most this many times the range of its losses so far.
MOST = 4.0
#: A job that is to end counts as much as one whose normalised loss is higher by this much, until it has ended.
FINISH = 0.006
#: Jobs whose gains are computed together: few enough that their tables fit into the processor's cache.
BLOCK = 2048
_AROUND = np.array([-1, 0, 1])
#: The approximate number of units in all: few enough for fast decisions, enough for fine shares of a small
#: machine.
UNITS = 64
# The rounding error of float arithmetic on a whole number of units.
_DUST = 1e-9
# CPU seconds by which a job is put behind the one submitted before it, to break a tie.
_MOMENT = 1e-6


def usual_units_per_core(cores: float) -> int:
    """Return the units per core: several on a small machine, one on a large one."""
    return max(1, round(UNITS / cores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What is known of the ends of the jobs."""

    #: Losses until the end of each job; NaN where it is not known.
    left: Floats
    #: The jobs whose gains hold the worth of their end, as indices, and their gains without it: (jobs, points).
    near: Integers
    without: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """The candidates of one epoch, and the forecasts that they were computed from, in the jobs' own losses.

    Those of a job that maximizes are turned, so that less is better.
    """

    rows: Integers
    #: Units to hand out.
    capacity: int
    candidates: Candidates
    #: At horizon 0 and at each of HORIZONS; zero for jobs without a loss.
    forecasts: ForecastTable
    #: Whether the job has reported a loss.
    heard: Booleans
    diverged: Booleans
    #: Whether the job's number should rise, and its forecasts are turned.
    maximize: Booleans
    #: The share of its whole reduction that the job has made.
    reduction: Floats
    #: Core seconds per iteration; assumed for jobs without an observation.
    cpu: Floats
    #: What any number of the job's workers is worth at most (`Demand.worth`); infinite where n are worth n.
    worth: Floats
    #: Strides of iterations in the coming epoch at each point of the candidates' grid: (jobs, points).
    iterations: Floats
    ends: Ends

    def grant(self, allocation: Allocation, size_credit: Floats) -> Grant:
        """Return the allocation in cores; `size_credit` holds the units owed to jobs because of their sizes."""
        unit = self.candidates.unit
        return Grant(
            ids=allocation.ids,
            cores=np.asarray(allocation.units * unit, dtype=np.float64),
            credit=allocation.credit * unit,
            size_credit=size_credit * unit,
            owner_credit=allocation.owner_credit * unit,
        )


@dataclass(frozen=True, kw_only=True)
class Appraiser:
    """Computes gains from the roster.

    A job's gain is its forecast fall divided by the range of its losses so far. With `by_largest_fall` it is
    divided by the largest fall in one iteration instead, as in the paper (§4.1).
    """

    epoch_seconds: float
    #: Units per core.
    units_per_core: int = 1
    optimism: float = OPTIMISM
    by_largest_fall: bool = False
    #: What the end of a job is worth, where it is known, in normalised loss.
    finish: float = FINISH

    def appraise(self, roster: Roster, cores: float, now: float) -> Appraisal:
        """Return the candidates with their gains for the epoch that begins now on `cores` cores."""
        rows = roster.rows()
        capacity = int(cores * self.units_per_core + _DUST)
        most = self._most_units(roster, rows)
        grid = unit_grid(max(min(capacity, int(most.max(initial=1))), 1))
        iterations, cpu = self._iterations(roster, rows, grid, capacity)
        # Forecasts count strides of iterations.
        iterations /= roster.stride[rows, None]
        forecasts = self.forecasts(roster, rows)
        fall = forecasts.fall
        gain, ends = self._gains(roster, rows, forecasts, iterations, cpu, grid)
        gain[~roster.competes[rows] | roster.diverged[rows]] = 0.0
        nearly = np.argmax(fall[:, 1:] >= CONVERGED * fall[:, -1:], axis=1)
        candidates = Candidates(
            ids=roster.active_ids(),
            unit=1.0 / self.units_per_core,
            order=roster.order[rows],
            competes=roster.competes[rows],
            weight=roster.weight[rows],
            min_units=np.minimum(self._whole(roster.least[rows]), most),
            max_units=most,
            reserved_units=self._whole(np.nan_to_num(roster.reserved[rows], nan=-1.0)).clip(-1),
            held=np.rint(roster.cores[rows] * self.units_per_core).astype(np.int64),
            loss=_normalised(roster, rows, forecasts),
            grid=grid,
            gain=gain,
            attained=roster.attained[rows],
            remaining=np.array(HORIZONS)[nearly] * roster.stride[rows] * cpu,
            credit=roster.credit[rows] * self.units_per_core,
            owners=tuple(roster.owners),
            owner=roster.owner[rows],
            owner_credit=np.array(roster.owner_credit) * self.units_per_core,
            seconds_left=roster.deadline[rows] - now,
            needed=needed_cores(roster, rows, forecasts, cpu, np.minimum(roster.most[rows], cores), now)
            * self.units_per_core,
            **search_columns(roster, rows, forecasts),
            sizes=self._sizes(roster, rows, capacity),
            size_credit=roster.size_credit[rows] * self.units_per_core,
            work=ends.left * cpu,
        )
        return Appraisal(
            rows=rows,
            capacity=capacity,
            candidates=candidates,
            forecasts=forecasts,
            heard=roster.observed[rows] > 0,
            diverged=roster.diverged[rows],
            maximize=roster.maximize[rows],
            reduction=reductions(roster, rows, forecasts),
            cpu=cpu,
            worth=roster.runtime.worth(rows),
            iterations=iterations,
            ends=ends,
        )

    def _most_units(self, roster: Roster, rows: Integers) -> Integers:
        """Return the most units each job can use: at least one."""
        units = np.rint(np.minimum(roster.most[rows] * self.units_per_core, UNLIMITED))
        return np.asarray(np.maximum(units, 1.0), dtype=np.int64)

    def _whole(self, cores: Floats) -> Integers:
        """Return cores as units, rounded up."""
        return np.asarray(np.ceil(cores * self.units_per_core - _DUST), dtype=np.int64)

    def _sizes(self, roster: Roster, rows: Integers, capacity: int) -> dict[int, Integers]:
        """Return the unit counts that jobs can run with, by their index in `rows`."""
        if not roster.sized:
            return {}
        place = {row: index for index, row in enumerate(rows.tolist())}
        unit = 1.0 / self.units_per_core
        found = {
            place[roster.ids[job_id]]: unit_sizes(demand, unit, capacity)
            for job_id, demand in roster.sized.items()
            if roster.ids[job_id] in place
        }
        return {index: sizes for index, sizes in found.items() if sizes is not None}

    def _iterations(
        self, roster: Roster, rows: Integers, grid: Integers, capacity: int
    ) -> tuple[Floats, Floats]:
        """Return the iterations of an epoch at every point of the grid, and CPU seconds per iteration."""
        known = roster.runtime.known(rows)
        cpu = roster.runtime.cpu[rows]
        # A job without a finished iteration is assumed to cost as much as the others, or the CPU time it has held
        # since its first loss if that is more.
        like_others = (
            np.median(cpu[known])
            if known.any()
            else max(capacity, 1) / max(len(rows), 1) * self.epoch_seconds / self.units_per_core
        )
        cpu = np.where(known, cpu, np.maximum(like_others, roster.held[rows]))
        # Of a job that is to start nothing is known: it is taken to need one core for an epoch for each iteration.
        starting = self._starting(roster, rows)
        cpu = np.where(starting, np.maximum(like_others, self.epoch_seconds), cpu)
        cores = np.minimum(grid / self.units_per_core, roster.most[rows, None])
        seconds = roster.runtime.seconds(rows, cpu, cores)
        return self.epoch_seconds / np.maximum(seconds, 1e-12), cpu

    def _starting(self, roster: Roster, rows: Integers) -> Booleans:
        """Return which jobs are still to tell their first loss, where that takes time."""
        silent = roster.competes[rows] & (roster.observed[rows] == 0)
        return np.asarray(silent & (roster.usual_start() > 0))

    def _delay(self, roster: Roster, rows: Integers, cpu: Floats) -> Floats:
        """Return the CPU time that each job still needs until its first loss, in iterations.

        Of jobs that need the same, the one that was submitted first needs a moment less: so they are started one
        after the other, and not all at once.
        """
        delay = np.zeros(len(rows))
        starting = self._starting(roster, rows).nonzero()[0]
        if len(starting):
            used = roster.used[rows[starting]]
            place = roster.order[rows[starting]].argsort().argsort()
            left = np.maximum(roster.usual_start() - used, LATE * used) + _MOMENT * place
            delay[starting] = left / cpu[starting]
        return delay

    def _gains(
        self,
        roster: Roster,
        rows: Integers,
        forecasts: ForecastTable,
        iterations: Floats,
        cpu: Floats,
        grid: Integers,
    ) -> tuple[Floats, Ends]:
        """Return the concave gains after these strides of iterations, and the ends that they reckon with."""
        stride = roster.stride[rows]
        delay = self._delay(roster, rows, cpu) / stride
        left = self._to_end(roster, rows, forecasts, cpu)
        near = (left < KNOTS[-1] * stride).nonzero()[0]
        strides = left[near] / stride[near]
        gain, without = (np.empty((len(grid), many)).T for many in (len(rows), len(near)))
        for start in range(0, len(rows), BLOCK):
            block = slice(start, start + BLOCK)
            ending = slice(*near.searchsorted((start, start + BLOCK)))
            falls = self._believed(roster, rows[block], forecasts.take(block))
            found = delayed_gains(falls, iterations[block], delay[block])
            each = near[ending] - start
            if len(each):
                without[ending] = found[each]
                found[each] = finishing_gains(
                    falls[each], iterations[block][each], without[ending], strides[ending], self.finish
                )
            gain[block] = concave(found, grid)
        return gain, Ends(left=left, near=near, without=without)

    def _to_end(self, roster: Roster, rows: Integers, forecasts: ForecastTable, cpu: Floats) -> Floats:
        """Return the losses until each job ends, above 0; NaN where its end is not known.

        A job that has done all its iterations, or whose iteration takes long, is expected to need as much again as
        it has had since its last loss, and an iteration at least. One that goes on after them has no known end.
        """
        past = roster.iteration[rows] > roster.total[rows]
        left = np.where(past, np.nan, roster.losses_left(rows))
        stops = roster.stops[rows].nonzero()[0]
        if len(stops):
            aimed = rows[stops]
            shares = roster.stop_at[aimed, None]
            foreseen = (
                strides_to_shares(roster, aimed, forecasts.take(stops), shares)[:, 0] * roster.stride[aimed]
            )
            left[stops] = np.fmin(left[stops], np.where(foreseen < np.inf, foreseen, np.nan))
        left = np.maximum(left, np.maximum(roster.held[rows] / cpu, 1.0))
        return np.where(roster.observed[rows] < 2, np.nan, left)

    def _believed(self, roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
        """Return the normalised falls, with the optimism added, at each of HORIZONS."""
        hoped = forecasts.fall + self.optimism * np.maximum(forecasts.below - forecasts.below[:, :1], 0.0)
        target = roster.target[rows]
        aimed = (~np.isnan(target)).nonzero()[0]
        if len(aimed):
            reached = np.minimum(forecasts.level, roster.best[rows])[aimed]
            hoped[aimed] = np.minimum(hoped[aimed], np.maximum(reached - target[aimed], 0.0)[:, None])
        extent = self.extent(roster, rows)
        # A job whose losses are all equal is assumed to gain nothing.
        normalised = np.minimum(hoped[:, 1:], MOST * extent[:, None])
        normalised /= np.where(extent > 0, extent, 1.0)[:, None]
        # A job that has risen from the start has no range until the rise has lasted.
        told = roster.observed[rows]
        fresh = ((told < 2) | ((extent <= 0) & (told <= LASTING))).nonzero()[0]
        normalised[fresh] = 1.0 - (1.0 + np.array(HORIZONS)) ** -START_POWER
        return normalised

    def extent(self, roster: Roster, rows: Integers) -> Floats:
        """Return the loss range that each job's fall is divided by."""
        if self.by_largest_fall:
            return np.asarray(roster.largest_fall[rows])
        return roster.extents(rows)

    def forecasts(self, roster: Roster, rows: Integers) -> ForecastTable:
        """Return the forecasts at horizon 0 and at each of HORIZONS; zero for jobs without a loss."""
        level = np.zeros(len(rows))
        fall, below, above = np.zeros((3, len(rows), len(HORIZONS) + 1))
        heard = roster.observed[rows] > 0
        known = roster.forecaster.forecasts(rows[heard], (0.0, *HORIZONS))
        level[heard], fall[heard] = known.level, known.fall
        below[heard], above[heard] = known.below, known.above
        return ForecastTable(level=level, fall=fall, below=below, above=above)


def _normalised(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the loss of each job between 1, its first, and 0, its target or where it is forecast to end."""
    level = forecasts.level
    target = roster.target[rows]
    asymptote = np.where(np.isnan(target), level - forecasts.fall[:, -1], target)
    extent = roster.first[rows] - asymptote
    begun = (roster.observed[rows] >= 2) & (extent > 0)
    return np.divide(level - asymptote, extent, out=np.ones_like(level), where=begun).clip(0.0, 1.0)


def explain(
    appraisal: Appraisal, allocation: Allocation, epoch: int, time: float, seconds: float
) -> Decision:
    """Return the decision together with the numbers that it was made from."""
    candidates, units, unit = appraisal.candidates, allocation.units, appraisal.candidates.unit
    done = at_units(candidates.grid, appraisal.iterations, units[:, None])[:, 0]
    # The gain with one unit less, with the granted units, and with one unit more.
    around = np.maximum(units[:, None] + _AROUND, 0)
    less, gained, more = at_units(candidates.grid, candidates.gain, around).T
    finish, near = np.zeros_like(gained), appraisal.ends.near
    without = at_units(candidates.grid, appraisal.ends.without, units[near, None])[:, 0]
    finish[near] = np.maximum(gained[near] - without, 0.0)

    forecasts = appraisal.forecasts
    fall, below, above = read_at((forecasts.fall, forecasts.below, forecasts.above), done)
    mean = np.where(appraisal.heard, forecasts.level - fall, np.nan)
    ends = [turned_rows(end, appraisal.maximize) for end in (mean - below, mean + above)]
    return Decision(
        epoch=epoch,
        time=time,
        capacity=appraisal.capacity * unit,
        unit=unit,
        ids=candidates.ids,
        cores=np.asarray(units * unit, dtype=np.float64),
        loss=candidates.loss,
        gain=gained,
        marginal=more - gained,
        expected=turned_rows(mean, appraisal.maximize),
        expected_low=np.minimum(*ends),
        expected_high=np.maximum(*ends),
        diverged=appraisal.diverged,
        seconds=seconds,
        level=turned_rows(forecasts.level, appraisal.maximize),
        maximize=appraisal.maximize,
        last=gained - less,
        weight=candidates.weight,
        fair_share=allocation.fair_share * unit,
        sure=np.asarray(allocation.sure * unit, dtype=np.float64),
        most=np.where(candidates.max_units >= UNLIMITED, np.inf, candidates.max_units * unit),
        reduction=appraisal.reduction,
        competes=candidates.competes,
        owner=candidates.owner,
        owners=candidates.owners,
        owner_share=allocation.owner_share * unit,
        to_end=appraisal.ends.left,
        finish=finish,
        **_finals(appraisal, allocation),
    )


def _finals(appraisal: Appraisal, allocation: Allocation) -> dict[str, Any]:
    """Return what the jobs of searches are forecast to end at, if there are any, in their own loss."""
    if not len(allocation.best_high):
        return {}
    c, maximize = appraisal.candidates, appraisal.maximize
    searching = ~np.isnan(allocation.best_high)
    columns = (c.final_low, c.final_high, allocation.best_high)
    low, high, best = (
        turned_rows(np.where(searching & np.isfinite(column), column, np.nan), maximize) for column in columns
    )
    interval = {"final_low": np.fmin(low, high), "final_high": np.fmax(low, high)}
    return {**interval, "best_final": best, "searching": searching}


def at_units(grid: Integers, table: Floats, units: Integers) -> Floats:
    """Return each row of the table, tabulated over the grid, at the unit counts in that row of `units`.

    Linear between points of the grid, constant beyond the last.
    """
    place = np.clip(np.searchsorted(grid, units, side="right") - 1, 0, max(len(grid) - 2, 0))
    each = np.arange(len(units))[:, None]
    share = np.minimum((units - grid[place]) / (grid[place + 1] - grid[place]), 1.0)
    start = table[each, place]
    return np.asarray(start + share * (table[each, place + 1] - start))
