"""From the roster to candidates: what each active job would gain by units in the coming epoch."""

from dataclasses import dataclass

import numpy as np

from slaq.core.allocation import Allocation, Candidates
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.courses import START_POWER
from slaq.core.deadlines import needed_units
from slaq.core.decision import Decision
from slaq.core.forecaster import Outlook
from slaq.core.gain import HORIZONS, concave, gains, unit_grid
from slaq.core.roster import Roster

#: How much a job's gain is raised by the chance that it falls faster than forecast, in parts of the lower
#: half of the 80% interval: a job thought flat must be able to prove otherwise.
OPTIMISM = 0.3
#: The share of what is left to fall after which a job counts as converged.
CONVERGED = 0.95
_AROUND = np.array([-1, 0, 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Appraisal:
    """The candidates of one epoch, and the forecasts in the jobs' own losses behind them."""

    rows: Integers
    capacity: int
    candidates: Candidates
    #: At no and at every one of HORIZONS; zero where no loss is known.
    outlook: Outlook
    #: Whether any loss is known.
    heard: Booleans
    diverged: Booleans
    #: Unit seconds per iteration, as far as known.
    cpu: Floats
    #: Iterations of the coming epoch, in strides, at each point of the candidates' grid: (jobs, points).
    iterations: Floats


@dataclass(frozen=True, kw_only=True)
class Appraiser:
    """Turns what is known of the jobs into gains.

    A job's gain is its forecast fall over the range of losses it has seen. `by_largest_fall` divides by its
    largest fall in one iteration instead, as the paper does (§4.1).
    """

    epoch_seconds: float
    optimism: float = OPTIMISM
    by_largest_fall: bool = False

    def appraise(self, roster: Roster, capacity: int, now: float) -> Appraisal:
        """Return the candidates with their gains for the epoch that begins now."""
        rows = roster.rows()
        limit = min(capacity, int(roster.max_units[rows].max(initial=1)))
        grid = unit_grid(max(limit, 1))
        iterations, cpu = self._iterations(roster, rows, grid, capacity)
        # Forecasts count strides of iterations.
        iterations /= roster.stride[rows, None]
        outlook = self.outlook(roster, rows)
        level, fall = outlook.level, outlook.fall
        fall_now = self._believed(roster, rows, outlook)
        gain = concave(gains(fall_now, iterations), grid)
        gain[~roster.competes[rows] | roster.diverged[rows]] = 0.0
        remaining = fall[:, -1]
        asymptote = np.where(np.isnan(roster.target[rows]), level - remaining, roster.target[rows])
        extent = roster.first[rows] - asymptote
        begun = (roster.observed[rows] >= 2) & (extent > 0)
        loss = np.divide(level - asymptote, extent, out=np.ones_like(level), where=begun).clip(0.0, 1.0)
        nearly = np.argmax(fall[:, 1:] >= CONVERGED * remaining[:, None], axis=1)
        candidates = Candidates(
            ids=roster.active_ids(),
            order=roster.order[rows],
            competes=roster.competes[rows],
            weight=roster.weight[rows],
            min_units=roster.min_units[rows],
            max_units=roster.max_units[rows],
            reserved_units=roster.reserved_units[rows],
            loss=loss,
            grid=grid,
            gain=gain,
            attained=roster.attained[rows],
            remaining=np.array(HORIZONS)[nearly] * roster.stride[rows] * cpu,
            credit=roster.credit[rows],
            owners=tuple(roster.owners),
            owner=roster.owner[rows],
            owner_credit=np.array(roster.owner_credit),
            seconds_left=roster.deadline[rows] - now,
            needed=needed_units(
                roster, rows, outlook, cpu, np.minimum(roster.max_units[rows], capacity), now
            ),
        )
        return Appraisal(
            rows=rows,
            capacity=capacity,
            candidates=candidates,
            outlook=outlook,
            heard=roster.observed[rows] > 0,
            diverged=roster.diverged[rows],
            cpu=cpu,
            iterations=iterations,
        )

    def _iterations(
        self, roster: Roster, rows: Integers, grid: Integers, capacity: int
    ) -> tuple[Floats, Floats]:
        """Return the iterations of an epoch at every point of the grid, and CPU seconds per iteration."""
        known = roster.runtime.known(rows)
        cpu = roster.runtime.cpu[rows]
        # A job that has not finished an iteration yet is taken to be like the others, unless it has had more.
        like_others = (
            np.median(cpu[known])
            if known.any()
            else max(capacity, 1) / max(len(rows), 1) * self.epoch_seconds
        )
        cpu = np.where(known, cpu, np.maximum(like_others, roster.held[rows]))
        units = np.minimum(grid, roster.max_units[rows, None]).astype(float)
        seconds = roster.runtime.seconds(rows, cpu, units)
        return self.epoch_seconds / np.maximum(seconds, 1e-12), cpu

    def _believed(self, roster: Roster, rows: Integers, outlook: Outlook) -> Floats:
        """Return the falls to go by, normalised, at every one of HORIZONS."""
        hoped = outlook.fall + self.optimism * np.maximum(outlook.below - outlook.below[:, :1], 0.0)
        target = roster.target[rows]
        reached = np.minimum(outlook.level, roster.best[rows])
        wanted = np.where(np.isnan(target), np.inf, np.maximum(reached - target, 0.0))
        hoped = np.minimum(hoped, wanted[:, None])
        extent = self.extent(roster, rows)[:, None]
        # A job that has reported losses without any change among them has nothing to gain, as far as is known.
        normalised = np.divide(hoped[:, 1:], extent, out=np.zeros_like(hoped[:, 1:]), where=extent > 0)
        start = 1.0 - (1.0 + np.array(HORIZONS)) ** -START_POWER
        return np.where(roster.observed[rows, None] < 2, start, normalised)

    def extent(self, roster: Roster, rows: Integers) -> Floats:
        """Return what a fall is compared with."""
        if self.by_largest_fall:
            return np.asarray(roster.largest_fall[rows])
        return np.asarray(roster.worst[rows] - roster.best[rows])

    def outlook(self, roster: Roster, rows: Integers) -> Outlook:
        """Return the outlook at no and at every one of HORIZONS; zero where no loss is known."""
        level = np.zeros(len(rows))
        fall, below, above = np.zeros((3, len(rows), len(HORIZONS) + 1))
        heard = roster.observed[rows] > 0
        known = roster.forecaster.outlook(rows[heard], (0.0, *HORIZONS))
        level[heard], fall[heard] = known.level, known.fall
        below[heard], above[heard] = known.below, known.above
        return Outlook(level=level, fall=fall, below=below, above=above)


def explain(
    appraisal: Appraisal, allocation: Allocation, epoch: int, time: float, seconds: float
) -> Decision:
    """Return the decision with the numbers it was made from."""
    candidates, units = appraisal.candidates, allocation.units
    done = at_units(candidates.grid, appraisal.iterations, units[:, None])[:, 0]
    # With one unit less, as it is, and with one more.
    around = np.maximum(units[:, None] + _AROUND, 0)
    less, gained, more = at_units(candidates.grid, candidates.gain, around).T

    # Falls and half-intervals after that many iterations, all in one pass.
    outlook = appraisal.outlook
    tables = np.stack((outlook.fall, outlook.below, outlook.above)).reshape(-1, len(HORIZONS) + 1)
    ahead = gains(tables[:, 1:] - tables[:, :1], np.tile(done, 3)[:, None])[:, 0] + tables[:, 0]
    fall, below, above = ahead.reshape(3, -1)
    mean = np.where(appraisal.heard, outlook.level - fall, np.nan)
    return Decision(
        epoch=epoch,
        time=time,
        capacity=appraisal.capacity,
        ids=candidates.ids,
        units=units,
        loss=candidates.loss,
        gain=gained,
        marginal=more - gained,
        expected=mean,
        expected_low=mean - below,
        expected_high=mean + above,
        diverged=appraisal.diverged,
        seconds=seconds,
        level=outlook.level,
        last=gained - less,
        weight=candidates.weight,
        fair_share=allocation.fair_share,
        sure=allocation.sure,
        most=candidates.max_units,
        competes=candidates.competes,
        owner=candidates.owner,
        owners=candidates.owners,
        owner_share=allocation.owner_share,
    )


def at_units(grid: Integers, table: Floats, units: Integers) -> Floats:
    """Return each row of the table, given over the grid, at that row's several units; as many columns as of these.

    Linear between points of the grid, flat beyond.
    """
    place = np.clip(np.searchsorted(grid, units, side="right") - 1, 0, max(len(grid) - 2, 0))
    each = np.arange(len(units))[:, None]
    share = np.minimum((units - grid[place]) / (grid[place + 1] - grid[place]), 1.0)
    start = table[each, place]
    return np.asarray(start + share * (table[each, place + 1] - start))
