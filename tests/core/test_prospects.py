"""Laws of prospects: times and chances follow from the forecast, the pace and the time left."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slaq.core.appraisal import Appraiser
from slaq.core.arrays import Floats
from slaq.core.events import EndForeseen, LossObserved
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec, Observation
from slaq.core.prospects import Prospects, foresee
from slaq.core.reliability import KNOTS, corrected_chances, strides_for
from slaq.core.roster import Roster
from slaq.core.trajectories import TRAJECTORIES, chances

CAPACITY = 16
SECONDS = 4.0


def reported(losses: list[float], **asked: object) -> Roster:
    """A roster of one job that has reported these losses, at 4 unit seconds each."""
    return all_reported([losses], **asked)


def all_reported(curves: list[list[float]], **asked: object) -> Roster:
    roster = Roster(CurveForecaster())
    for number, losses in enumerate(curves):
        roster.admit(JobSpec(id=str(number), **asked), 0.0)  # type: ignore[arg-type]
        row = np.array([roster.ids[str(number)]])
        roster.cores[row] = 1
        for k, loss in enumerate(losses):
            spent = np.full(1, SECONDS if k else 0.0)
            roster.observe(row, np.full(1, SECONDS * k), np.full(1, loss), spent, spent)
    return roster


def prospects(roster: Roster, units: float | Floats, now: float = 0.0) -> Prospects:
    appraisal = Appraiser(epoch_seconds=1.0).appraise(roster, CAPACITY, now)
    return foresee(roster, appraisal, np.broadcast_to(units, len(appraisal.rows)).astype(np.float64))


def geometric(count: int, rate: float = 0.9, end: float = 1.0) -> list[float]:
    return [end + rate**k for k in range(count)]


losses = st.lists(st.floats(-5.0, 5.0), min_size=0, max_size=30)
curves = st.one_of(losses, st.integers(3, 40).map(geometric))
goals = st.fixed_dictionaries(
    {},
    optional={"target_loss": st.floats(-3.0, 3.0), "stop_at": st.floats(0.05, 1.0)},
)


class TestChances:
    @settings(max_examples=60, deadline=None)
    @given(curves, goals, st.lists(st.tuples(st.floats(0, 16), st.floats(0, 5000)), min_size=2, max_size=6))
    def test_never_fall_with_units_or_time(
        self, losses: list[float], goal: dict[str, float], tried: list[tuple[float, float]]
    ) -> None:
        """More units and more time never lower the probability, which lies between 0 and 1."""
        roster = reported(losses, deadline=0.0, **goal)

        def chance(units: float, deadline: float) -> float:
            roster.deadline[roster.rows()] = deadline
            return float(prospects(roster, units).chance[0])

        for (units, left), (more_units, more_left) in pairwise(tried):
            low = chance(min(units, more_units), min(left, more_left))
            assert 0.0 <= low <= 1.0
            assert low <= chance(max(units, more_units), min(left, more_left)) + 1e-12
            assert low <= chance(min(units, more_units), max(left, more_left)) + 1e-12

    @given(
        st.lists(st.floats(0, 100) | st.just(np.inf), min_size=TRAJECTORIES, max_size=TRAJECTORIES),
        st.lists(st.floats(0, 200), min_size=1, max_size=20),
    )
    def test_is_the_law_of_the_courses(self, trajectories: list[float], available: list[float]) -> None:
        """A chance differs by at most one trajectory from the share of those that arrive, and never falls."""
        strides, asked = np.sort(trajectories)[None], np.sort(available)[None]
        found = chances(strides, asked)[0]
        share = (strides[0][:, None] <= asked).mean(axis=0)
        assert (np.abs(found - share) <= 1.0 / TRAJECTORIES + 1e-9).all()
        assert (np.diff(found) >= -1e-12).all()

    @given(st.lists(st.floats(0.1, 100), min_size=TRAJECTORIES, max_size=TRAJECTORIES), st.floats(0.05, 0.95))
    def test_strides_for_a_chance_suffice(self, trajectories: list[float], chance: float) -> None:
        """The strides returned for a probability give at least that probability, and no fewer of them do."""
        strides = np.sort(trajectories)[None]
        probability = chances(strides, strides)
        needed = strides_for(strides, probability, chance)
        if np.isinf(needed[0]):
            assert (probability < chance).all()
        else:
            assert chances(strides, needed[:, None])[0, 0] >= chance
            assert (probability[strides < needed] < chance).all()

    @given(
        st.integers(0, 2),
        st.floats(0.5, 1000),
        st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100), st.floats(0, 1)), min_size=2, max_size=6),
    )
    def test_what_is_corrected_keeps_its_order(
        self, kind: int, known: float, said: list[tuple[float, ...]]
    ) -> None:
        """More trajectories in time, more time and more of the way made never lower a chance within 0 and 1."""
        for one, other in pairwise(said):
            least, most = np.minimum(one, other), np.maximum(one, other)
            low, high = (
                float(corrected_chances(np.array([kind]), s[None], t[None], m, np.full(1, known))[0, 0])
                for s, t, m in (np.reshape(ends, (3, 1)) for ends in (least, most))
            )
            assert 0.0 < low <= high + 1e-12 < 1.0 + 1e-12

    def test_a_logit_is_linear_between_knots(self) -> None:
        """Halfway between two knots a chance has the logit halfway between theirs."""
        halfway = (KNOTS[1:] + KNOTS[:-1]) / 2
        kind, time, made = np.zeros(1, dtype=int), np.ones((1, len(halfway))), np.full(1, 0.5)
        logit = {}
        for name, at in (("low", KNOTS[:-1]), ("middle", halfway), ("high", KNOTS[1:])):
            chance = corrected_chances(kind, at[None], time, made, np.full(1, 10.0))
            logit[name] = np.log(chance / (1 - chance))
        np.testing.assert_allclose(logit["middle"], (logit["low"] + logit["high"]) / 2, atol=1e-9)

    @settings(deadline=None)
    @given(curves.filter(len), st.floats(0, 100))
    def test_is_one_when_reached(self, losses: list[float], left: float) -> None:
        """A job that has reached its target has a chance of 1, whatever time is left."""
        roster = reported(losses, target_loss=min(losses), deadline=left)
        found = prospects(roster, 1.0, now=50.0)
        assert found.chance[0] == 1.0
        assert found.seconds_to_target[0] == 0.0
        assert not found.out_of_reach[0]

    def test_a_target_below_the_asymptote_is_out_of_reach(self) -> None:
        """For a loss that levels out at 1, a target of 0.5 is out of reach."""
        found = prospects(reported(geometric(40, 0.7), target_loss=0.5, deadline=1e6), 16.0)
        assert found.chance[0] < 0.1
        assert found.out_of_reach[0]

    def test_a_target_ahead_of_the_curve_is_likely(self) -> None:
        """A loss forecast ten iterations ahead is likely with time for 25 iterations, and not with time for 4."""
        roster = reported(geometric(30, 0.95), target_loss=1.0 + 0.95**40, deadline=0.0)
        chance = {}
        for iterations in (4, 25):
            roster.deadline[roster.rows()] = iterations * SECONDS
            chance[iterations] = prospects(roster, 1.0).chance[0]
        assert chance[25] > 0.8
        assert chance[4] < 0.3

    def test_time_that_has_passed_is_no_chance(self) -> None:
        """After its deadline a job short of its target has no chance, and the target is out of reach."""
        found = prospects(reported(geometric(20), target_loss=1.0, deadline=10.0), 16.0, now=11.0)
        assert found.chance[0] == 0.0
        assert found.out_of_reach[0]

    def test_nothing_is_known_at_the_start(self) -> None:
        """A job without a loss has some chance to reach its target, which grows with the time left."""
        chance = [float(prospects(reported([], deadline=left), 1.0).chance[0]) for left in (1.0, 100.0, 1e5)]
        assert chance == sorted(chance)
        assert chance[0] < 0.3
        assert chance[-1] > 0.7

    def test_nan_is_no_progress(self) -> None:
        """A diverged job has no chance until its loss is finite again."""
        roster = reported([*geometric(10), np.nan], target_loss=1.05, deadline=1e5)
        assert prospects(roster, 16.0).chance[0] == 0.0


class TestTimes:
    def test_follow_the_curve(self) -> None:
        """The iterations foreseen from the start to 90% and to 95% of a fall are right within a factor of two."""
        fallen = 1.0 / (1.0 + 0.5 * np.arange(200))
        for known in (8, 14, 20):
            found = prospects(reported((1.0 + fallen[:known]).tolist()), 1.0)
            for share, seconds in zip((0.9, 0.95), found.seconds_to[0].tolist(), strict=True):
                really = int(np.argmax(fallen <= 1.0 - share))
                foreseen = known - 1 + seconds / SECONDS
                assert really / 2 <= foreseen <= 2 * max(really, known), (known, share)

    @settings(max_examples=40, deadline=None)
    @given(curves, st.floats(0.01, 16), st.floats(0.01, 16))
    def test_are_shorter_with_more_units(self, losses: list[float], one: float, other: float) -> None:
        """More units never take longer, 95% never comes before 90%, and twice the units take half the time."""
        roster = reported(losses)
        few, many = (prospects(roster, units).seconds_to[0] for units in sorted((one, other)))
        if np.isnan(few[0]):
            assert len(losses) < 2 or np.isnan(many).all()
            return
        assert few[0] <= few[1]
        assert (many <= few).all()

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=20), st.floats(0.01, 100.0), st.floats(-50, 50)
    )
    def test_have_no_unit_of_loss(self, losses: list[float], scale: float, shift: float) -> None:
        """Scaling or shifting a loss changes no time and no chance."""
        plain = prospects(reported(losses, deadline=60.0), 2.0)
        moved = prospects(reported([scale * loss + shift for loss in losses], deadline=60.0), 2.0)
        known = np.isfinite(plain.seconds_to) & (plain.seconds_to > 0) & (moved.seconds_to > 0)
        np.testing.assert_allclose(plain.seconds_to[known], moved.seconds_to[known], rtol=1e-3)
        np.testing.assert_allclose(plain.chance, moved.chance, atol=0.07)

    @settings(max_examples=40, deadline=None)
    @given(curves.filter(lambda losses: len(losses) > 1))
    def test_what_is_not_reached_takes_a_loss(self, losses: list[float]) -> None:
        """A share that has not been made, and a target, take the time of one iteration at least."""
        found = prospects(reported(losses, deadline=60.0), 1.0)
        for seconds in (*found.seconds_to[0], found.seconds_to_target[0]):
            assert np.isnan(seconds) or seconds == 0.0 or seconds >= SECONDS * (1 - 1e-9)

    @settings(max_examples=60, deadline=None)
    @given(curves, st.none() | st.integers(0, 300), st.floats(0.01, 16))
    def test_lie_inside_their_intervals(self, losses: list[float], left: int | None, units: float) -> None:
        """A time lies inside its interval, which ends where the job does; what is reached has no width."""
        roster = reported(losses)
        row = roster.rows()
        roster.iteration[row] = max(len(losses) - 1, 0)
        roster.total[row] = np.nan if left is None else roster.iteration[row] + left
        found = prospects(roster, units)
        low, middle, high = found.earliest[0], found.seconds_to[0], found.latest[0]
        np.testing.assert_array_equal(np.isnan(low) | np.isnan(high), np.isnan(middle))
        told = ~np.isnan(middle)
        assert ((low <= middle) & (middle <= high))[told].all()
        real = told & np.isfinite(middle) & (middle > 0)
        assert (low > 0)[real].all()
        assert np.isfinite(high)[real].all()
        assert (low == high)[told & ~real].all()
        if left is not None:
            assert (high[real] <= left * SECONDS / units * (1 + 1e-6)).all()

    def test_nothing_moves_without_units(self) -> None:
        """A job without cores never reaches a share that it has not reached yet."""
        found = prospects(reported(geometric(10), deadline=100.0), 0.0)
        assert np.isinf(found.seconds_to).all()
        assert found.chance[0] < 0.5

    def test_other_work_has_no_prospects(self) -> None:
        """A job without a loss has no expected times, and its target is not out of reach."""
        found = prospects(reported([], trains=False, deadline=100.0), 1.0)
        assert np.isnan(found.seconds_to).all()
        assert np.isnan(found.chance[0])
        assert not found.out_of_reach[0]

    def test_jobs_do_not_mix(self) -> None:
        """The prospects of many jobs at once are those of each job alone."""
        curves = [geometric(3), geometric(30, 0.8), [5.0], [3.0, 2.0, 2.5, 1.9]]
        together = prospects(all_reported(curves, deadline=90.0), 2.0)
        for place, losses in enumerate(curves):
            alone = prospects(reported(losses, deadline=90.0), 2.0)
            if len(losses) > 1:
                np.testing.assert_allclose(together.seconds_to[place], alone.seconds_to[0])
                np.testing.assert_allclose(together.chance[place], alone.chance[0])


class TestKnownEnd:
    @given(st.integers(2, 60), st.integers(1, 5), st.booleans())
    def test_nothing_is_expected_beyond_it(self, total: int, step: int, asked: bool) -> None:
        """What the forecast reaches before a job's last iteration keeps its time; what comes later never does.

        An end that a job told and went beyond is none, as if it had told nothing.
        """
        specs = [
            JobSpec(id="open", target_loss=1.01, deadline=1e6),
            JobSpec(
                id="ends", target_loss=1.01, deadline=1e6, max_iterations=step * total if asked else None
            ),
        ]
        roster = Roster(CurveForecaster())
        for spec in specs:
            roster.admit(spec, 0.0)
            if not asked and spec.id == "ends":
                roster.absorb([EndForeseen(job_id="ends", at=0.0, iterations=step * total)])
            roster.absorb(
                [
                    LossObserved(
                        job_id=spec.id,
                        at=SECONDS * k,
                        observation=Observation(
                            iteration=step * k, loss=loss, cpu_seconds=SECONDS, wall_seconds=SECONDS
                        ),
                    )
                    for k, loss in enumerate(geometric(6, rate=0.95))
                ]
            )
        found = prospects(roster, 1.0)
        until, free = found.seconds_to
        left = roster.losses_left(roster.rows())[1] * SECONDS
        if total < 5 and not asked:
            assert np.isnan(left)
            np.testing.assert_array_equal(free, until)
            assert found.chance[1] == found.chance[0]
            return
        assert left == max(total - 5, 0) * SECONDS
        np.testing.assert_allclose(free, np.where(until <= left * (1 + 1e-12), until, np.inf))
        assert found.chance[1] <= found.chance[0]
        if total <= 5:
            assert found.chance[1] == 0.0

    @settings(max_examples=40, deadline=None)
    @given(curves.filter(lambda losses: len(losses) > 1), st.integers(0, 2000), st.integers(0, 2000))
    def test_the_nearer_it_is_the_more_is_done(self, losses: list[float], one: int, other: int) -> None:
        """A curve that ends sooner falls less, so that more of it is done; at its last loss it is all done."""
        made = {}
        for left in (min(one, other), max(one, other), 0):
            roster = reported(losses, max_iterations=len(losses) + 5)
            row = roster.rows()
            roster.iteration[row], roster.total[row] = len(losses) - 1, len(losses) - 1 + left
            found = prospects(roster, 1.0)
            made[left] = found.reduction[0]
            reached = found.seconds_to[0][: 1 if made[left] < 0.95 else 2]
            assert made[left] < 0.9 or (reached == 0.0).all()
        assert made[max(one, other)] <= made[min(one, other)] + 1e-12
        assert made[0] == (min(losses) < losses[0])

    @given(st.integers(3, 40), st.integers(1, 300))
    def test_every_share_is_reached_before_it(self, known: int, left: int) -> None:
        """A job that has fallen is expected to make 90% and 95% of what it will make by its end, and not after."""
        roster = reported(geometric(known, 0.97))
        row = roster.rows()
        roster.iteration[row], roster.total[row] = known - 1, known - 1 + left
        assert (prospects(roster, 1.0).seconds_to[0] <= left * SECONDS * (1 + 1e-9)).all()
