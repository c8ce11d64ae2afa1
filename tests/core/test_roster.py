"""Laws of the roster and the appraisal: what is reported is what candidates are made of."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.appraisal import Appraiser
from slaq.core.demand import Demand
from slaq.core.events import (
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    Event,
    JobEnded,
    LearningRateChanged,
    LossObserved,
)
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.policies import TotalQuality
from slaq.core.roster import NEWS, Roster

APPRAISER = Appraiser(epoch_seconds=1.0)


def report(job_id: str, iteration: int, loss: float, at: float = 0.0, cpu: float = 1.0) -> LossObserved:
    spent = 0.0 if iteration == 0 else cpu
    observation = Observation(iteration=iteration, loss=loss, cpu_seconds=spent, wall_seconds=spent)
    return LossObserved(job_id=job_id, at=at, observation=observation)


def curve(job_id: str, losses: list[float], cpu: float = 1.0) -> list[Event]:
    return [report(job_id, k, loss, at=float(k), cpu=cpu) for k, loss in enumerate(losses)]


def roster_of(*specs: JobSpec) -> Roster:
    roster = Roster(CurveForecaster())
    for spec in specs:
        roster.admit(spec, 0.0)
    return roster


def falling(start: float, count: int) -> list[float]:
    return [start / (1 + k) for k in range(count)]


def test_rows_are_used_again() -> None:
    """A job that gets the row of an ended job finds no data of it."""
    roster = roster_of(JobSpec(id="a"))
    roster.absorb(curve("a", falling(5.0, 10)))
    roster.absorb([JobEnded(job_id="a", at=9.0, state=JobState.COMPLETED)])
    roster.admit(JobSpec(id="b"), 9.0)
    row = roster.ids["b"]
    assert roster.observed[row] == 0
    assert roster.forecaster.forecasts(np.array([row]), (1.0,)).level[0] == 0.0


def test_news_of_strangers_is_passed_over() -> None:
    """Events of a job that is not, or no longer, active change nothing."""
    roster = roster_of(JobSpec(id="a"))
    roster.absorb([*curve("ghost", [1.0, 0.5]), JobEnded(job_id="ghost", at=1.0, state=JobState.FAILED)])
    assert list(roster.ids) == ["a"]


@given(
    st.lists(st.floats(0.1, 10.0), min_size=3, max_size=12), st.floats(0.01, 100.0), st.floats(-50.0, 50.0)
)
def test_the_unit_of_a_loss_changes_no_decision(losses: list[float], scale: float, shift: float) -> None:
    """Scaling or shifting one job's losses leaves every allocation as it was."""
    plain = roster_of(JobSpec(id="a"), JobSpec(id="b"))
    moved = roster_of(JobSpec(id="a"), JobSpec(id="b"))
    plain.absorb([*curve("a", losses), *curve("b", falling(3.0, 6))])
    moved.absorb([*curve("a", [scale * loss + shift for loss in losses]), *curve("b", falling(3.0, 6))])
    first, second = (APPRAISER.appraise(roster, 32, 0.0).candidates for roster in (plain, moved))
    np.testing.assert_allclose(first.gain, second.gain, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(first.loss, second.loss, rtol=1e-4, atol=1e-7)


def test_several_reports_at_once_equal_one_at_a_time_for_what_they_say() -> None:
    """First, last, best and recent losses and the iterations seen do not depend on how reports are batched."""
    losses = [5.0, 3.0, 3.5, 2.0, 1.8, 1.7]
    batched, single = roster_of(JobSpec(id="a")), roster_of(JobSpec(id="a"))
    batched.absorb(curve("a", losses))
    for event in curve("a", losses):
        single.absorb([event])
    for name in ("first", "last", "best", "recent", "largest_fall", "observed"):
        np.testing.assert_array_equal(batched.arrays()[name][0], single.arrays()[name][0], name)


def test_fast_jobs_are_followed_in_strides() -> None:
    """A job with hundreds of losses per epoch is forecast from means of many losses, and still accurately."""
    roster = roster_of(JobSpec(id="a"))
    losses = [1.0 + 2.0 * 0.999**k for k in range(4000)]
    for start in range(0, 4000, 200):
        roster.absorb([report("a", k, losses[k], cpu=0.005) for k in range(start, start + 200)])
    row = np.array([roster.ids["a"]])
    stride = roster.stride[row][0]
    assert 200 / stride <= 2 * NEWS
    forecasts = roster.forecaster.forecasts(row, (200 / stride,))
    expected = 1.0 + 2.0 * 0.999**4199
    assert forecasts.mean[0, 0] == pytest.approx(expected, abs=0.05)


def test_a_fresh_job_is_worth_more_than_a_converged_one() -> None:
    """Of two jobs with equal costs, the one that has just begun gets most units."""
    roster = roster_of(JobSpec(id="old"), JobSpec(id="new"))
    roster.absorb([*curve("old", [1.0 + 0.7**k for k in range(40)]), *curve("new", [9.0, 5.0, 3.5])])
    candidates = APPRAISER.appraise(roster, 40, 0.0).candidates
    units = TotalQuality().allocate(candidates, 40).as_dict()
    assert units["new"] > 3 * units["old"]


def started(job_id: str, cpu: float, losses: list[float]) -> list[Event]:
    """Return the losses of a job that took so many CPU seconds to its first one."""
    first = Observation(iteration=0, loss=losses[0], cpu_seconds=cpu, wall_seconds=cpu)
    rest = [report(job_id, k, loss, at=cpu + k) for k, loss in enumerate(losses[1:], 1)]
    return [LossObserved(job_id=job_id, at=cpu, observation=first), *rest]


def newcomer_gain(start: float, used: float = 0.0) -> tuple[float, float]:
    """Return the gains from 2 cores of a job that falls fast, and of one that is to start and has used so much."""
    roster = roster_of(JobSpec(id="falls"), JobSpec(id="new"))
    roster.absorb(started("falls", start, [9.0, 5.0, 3.5]))
    roster.absorb([CpuUsed(job_id="new", at=0.0, cpu_seconds=used)])
    falls, new = APPRAISER.appraise(roster, 2, 0.0).candidates.gain[:, -1]
    return float(falls), float(new)


def test_a_start_that_takes_long_waits_for_jobs_that_fall_fast() -> None:
    """A job to be started gains most if starts take no time, and less than a falling job if they take long."""
    falls, at_once = newcomer_gain(0.001)
    _, soon = newcomer_gain(2.0)
    _, late = newcomer_gain(20.0)
    assert at_once > soon > late > 0.0
    assert at_once > falls > soon


def test_a_start_comes_nearer_and_a_silent_job_loses() -> None:
    """CPU time used brings a first loss nearer, up to the usual time; a job silent for longer gains less."""
    gains = [newcomer_gain(8.0, used)[1] for used in (0.0, 4.0, 7.9)]
    assert gains == sorted(gains)
    silent = [newcomer_gain(8.0, used)[1] for used in (8.0, 20.0, 100.0, 1000.0)]
    assert silent == sorted(silent, reverse=True)
    assert silent[-1] < 0.05 * silent[0]


def test_usual_starts_are_kept() -> None:
    """A restored roster values the jobs to be started as the roster that was dumped did."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="new"))
    roster.absorb(started("a", 5.0, [9.0, 5.0]))
    restored = Roster(CurveForecaster())
    restored.restore(roster.dump())
    assert restored.usual_start() == roster.usual_start() == 5.0
    before, after = (APPRAISER.appraise(one, 2, 0.0).candidates.gain for one in (roster, restored))
    np.testing.assert_array_equal(before, after)


def test_a_job_that_diverged_gains_nothing_until_it_recovers() -> None:
    """A job whose loss is NaN holds its floor only, until its next finite loss."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="b"))
    roster.absorb([*curve("a", [4.0, 3.0, 2.5]), *curve("b", [4.0, 3.0, 2.5])])
    roster.absorb([report("a", 3, float("nan"), at=3.0)])
    assert APPRAISER.appraise(roster, 8, 0.0).candidates.gain[0, -1] == 0.0
    roster.absorb([report("a", 4, 2.2, at=4.0)])
    assert APPRAISER.appraise(roster, 8, 0.0).candidates.gain[0, -1] > 0.0


def test_a_target_ends_the_gain() -> None:
    """A job at its target loss gains nothing by units."""
    roster = roster_of(JobSpec(id="a", target_loss=2.5))
    roster.absorb(curve("a", [4.0, 3.0, 2.4]))
    assert APPRAISER.appraise(roster, 8, 0.0).candidates.gain[0, -1] == pytest.approx(0.0, abs=1e-9)


def test_other_work_does_not_compete() -> None:
    """A job that trains nothing has no gain and is marked as outside the competition."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="etl", trains=False))
    roster.absorb(curve("a", [4.0, 3.0]))
    candidates = APPRAISER.appraise(roster, 8, 0.0).candidates
    assert candidates.competes.tolist() == [True, False]
    assert candidates.gain[1].max() == 0.0


def test_an_announced_learning_rate_restarts_the_forecast() -> None:
    """The curve is forecast anew from where a learning rate was announced."""
    roster = roster_of(JobSpec(id="a"))
    roster.absorb(curve("a", falling(5.0, 20)))
    roster.absorb([LearningRateChanged(job_id="a", at=20.0, learning_rate=0.01)])
    assert roster.forecaster.bends[roster.ids["a"]] == 1


def test_another_model_is_a_curve_of_its_own() -> None:
    """After the start of a new curve, a job is appraised like a job that reported only the losses since."""
    fresh, again = roster_of(JobSpec(id="a")), roster_of(JobSpec(id="a"))
    second = [0.7, 0.5, 0.4, 0.35]
    again.absorb(curve("a", falling(5000.0, 20)))
    again.absorb([CurveBegan(job_id="a", at=30.0), *curve("a", second)])
    fresh.absorb(curve("a", second))
    one, other = APPRAISER.appraise(fresh, 8, 40.0), APPRAISER.appraise(again, 8, 40.0)
    assert one.forecasts.fall == pytest.approx(other.forecasts.fall)
    assert one.forecasts.level == pytest.approx(other.forecasts.level)
    assert one.candidates.loss == pytest.approx(other.candidates.loss)


@given(st.integers(1, 40), st.integers(1, 64))
def test_gains_are_what_policies_ask_for(jobs: int, capacity: int) -> None:
    """Gains start at 0, never fall, never steepen, and are finite, whatever the jobs have reported."""
    rng = np.random.default_rng(jobs * 1000 + capacity)
    roster = roster_of(
        *(JobSpec(id=str(n), demand=Demand(most=float(rng.integers(1, 20)))) for n in range(jobs))
    )
    for n in range(jobs):
        roster.absorb(
            curve(str(n), rng.normal(5, 3, rng.integers(1, 9)).tolist(), cpu=float(rng.uniform(0.1, 9)))
        )
    candidates = APPRAISER.appraise(roster, capacity, 0.0).candidates
    slopes = np.diff(candidates.gain, axis=1) / np.diff(candidates.grid)
    assert np.isfinite(candidates.gain).all()
    assert (candidates.gain[:, 0] == 0).all()
    assert (slopes >= 0).all()
    assert (np.diff(slopes, axis=1) <= 1e-9).all()


#: What a job may report that means it ill: any number of iterations on, any loss, bounded CPU and wall time.
ILL = st.tuples(
    st.sampled_from([1, 1, 2, 1000, 2**31, 2**52]),
    st.floats() | st.sampled_from([1e308, -1e308, 1.7e308, 5e-324, 0.0, np.nan, np.inf, -np.inf]),
    st.floats(0.0, 1e12) | st.sampled_from([0.0, 5e-324, 1e12]),
    st.floats(0.0, 1e11) | st.sampled_from([0.0, 5e-324, 1e11]),
)


@given(
    st.lists(ILL, min_size=1, max_size=12),
    st.sampled_from([None, 5e-324, 0.5, 4.0]),
    st.sampled_from([None, 1, 3, 2**53]),
    st.booleans(),
)
def test_what_one_job_reports_leaves_the_others_candidates_as_they_are(
    said: list[tuple[int, float, float, float]], most: float | None, total: int | None, maximize: bool
) -> None:
    """Whatever numbers a job reports, its own gain stays finite, and another job's candidate is as without it."""
    alone, beside = roster_of(JobSpec(id="b")), roster_of(JobSpec(id="b"))
    beside.admit(JobSpec(id="a", demand=Demand(most=most), maximize=maximize), 0.0)
    if total is not None:
        beside.absorb([EndForeseen(job_id="a", at=0.0, iterations=total)])
    for roster in (alone, beside):
        roster.absorb(curve("b", falling(3.0, 6)))
    iteration = -1
    for number, (step, loss, cpu, wall) in enumerate(said):
        iteration = min(iteration + step, 2**53 + number)
        observation = Observation(iteration=iteration, loss=loss, cpu_seconds=cpu, wall_seconds=wall)
        beside.absorb([LossObserved(job_id="a", at=float(number), observation=observation)])
        usual = APPRAISER.appraise(alone, 32, 12.0).candidates
        found = APPRAISER.appraise(beside, 32, 12.0).candidates
        assert np.isfinite(found.gain).all()
        assert np.isfinite(found.loss).all()
        row = found.ids.index("b")
        # In single precision, sums depend a little on how many rows are multiplied at once.
        np.testing.assert_allclose(found.gain[row], usual.gain[0], rtol=1e-4, atol=1e-7)
        assert found.loss[row] == pytest.approx(usual.loss[0], rel=1e-5)
        assert TotalQuality().allocate(found, 32).units.sum() <= 32


def test_an_end_that_was_passed_is_no_end() -> None:
    """A job that goes on beyond the end it told has an end that nobody knows, or the one that its owner set."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="b", max_iterations=50))
    for name in ("a", "b"):
        roster.absorb([EndForeseen(job_id=name, at=0.0, iterations=20), *curve(name, falling(5.0, 21))])
    assert roster.losses_left(roster.rows()).tolist() == [0.0, 0.0]
    for name in ("a", "b"):
        roster.absorb([report(name, 21, 0.1, at=21.0)])
    unknown, known = roster.losses_left(roster.rows())
    assert np.isnan(unknown)
    assert known == 29.0


heights = st.floats(3.0, 1e9)


@given(st.integers(1, 20), st.integers(1, 2), heights, heights, st.integers(0, 8))
def test_the_height_of_a_spike_changes_nothing(
    place: int, width: int, height: float, other: float, after: int
) -> None:
    """A spike of one or two losses that is far above the first loss has one effect, however high it is."""
    losses = falling(1.0, place + after)
    rosters = [roster_of(JobSpec(id="a")) for _ in range(2)]
    for roster, top in zip(rosters, (height, other), strict=True):
        for event in curve("a", losses[:place] + [top] * width + losses[place:]):
            roster.absorb([event])
    first, second = (APPRAISER.appraise(roster, 8, 0.0).candidates for roster in rosters)
    np.testing.assert_array_equal(first.gain, second.gain)


@given(st.integers(9, 20), st.integers(1, 2), heights)
def test_a_spike_passes(place: int, width: int, height: float) -> None:
    """A spike never widens a range for good; a dozen losses after it a gain is within a factor of three again."""
    losses = falling(1.0, place + 12)
    plain, spiky = roster_of(JobSpec(id="a")), roster_of(JobSpec(id="a"))
    for event in curve("a", losses):
        plain.absorb([event])
    for event in curve("a", losses[:place] + [height] * width + losses[place:]):
        spiky.absorb([event])
    np.testing.assert_array_equal(plain.extents(plain.rows()), spiky.extents(spiky.rows()))
    usual, found = (APPRAISER.appraise(roster, 8, 0.0).candidates.gain[0, -1] for roster in (plain, spiky))
    assert usual / 3 <= found <= 3 * usual


def test_a_rise_that_lasts_counts() -> None:
    """A job that rises from the start is neither given up nor measured by its first loss until it is below it."""
    roster = roster_of(JobSpec(id="a"))
    seen = [1.0, 2.0, 3.0, 4.0, 4.0, 3.5, 3.0]
    for place, event in enumerate(curve("a", seen), start=1):
        roster.absorb([event])
        assert APPRAISER.appraise(roster, 8, 0.0).candidates.gain[0, -1] > 0 or place in {4, 5}
    assert roster.extents(roster.rows())[0] == 2.0


@pytest.mark.parametrize("told", [10, None])
def test_a_job_near_a_known_end_comes_before_one_like_it(told: int | None) -> None:
    """Of jobs with the same curve, the one that is known to end soon gains more; what nobody knows adds nothing."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="b"))
    for name in "ab":
        roster.absorb(curve(name, falling(1.0, 9)))
    if told is not None:
        roster.absorb([EndForeseen(job_id="a", at=9.0, iterations=told)])
    gain = APPRAISER.appraise(roster, 8, 9.0).candidates.gain[:, 1]
    assert gain[0] > gain[1] if told else gain[0] == gain[1]


def test_a_share_to_stop_at_is_an_end_too() -> None:
    """A job that is ended at a share of its reduction gains more than one that goes on; a deadline ends nothing."""
    specs = [JobSpec(id=name, target_loss=0.0) for name in "abc"]
    specs[0], specs[2] = replace(specs[0], stop_at=0.9), replace(specs[2], deadline=99.0)
    roster = roster_of(*specs)
    for spec in specs:
        for event in curve(spec.id, [0.8**k for k in range(9)]):
            roster.absorb([event])
    gain = Appraiser(epoch_seconds=1.0, finish=0.1).appraise(roster, 8, 12.0).candidates.gain[:, 1]
    assert gain[0] > gain[1] == gain[2]


def test_a_job_that_goes_on_after_its_end_has_none() -> None:
    """Iterations beyond those that were told bring no credit, and neither does a job that stays at its last one."""
    roster = roster_of(JobSpec(id="a"), JobSpec(id="b"))
    for name in "ab":
        roster.absorb(curve(name, falling(1.0, 12)))
    roster.absorb([EndForeseen(job_id="a", at=0.0, iterations=10)])
    gain = APPRAISER.appraise(roster, 8, 12.0).candidates.gain
    np.testing.assert_array_equal(gain[0], gain[1])
    roster.absorb([EndForeseen(job_id="a", at=0.0, iterations=11)])
    ending = []
    for waited in (0.0, 1e3, 1e6):
        roster.held[roster.ids["a"]] = waited
        ending.append(APPRAISER.appraise(roster, 8, 12.0).candidates.gain[0, 1] - gain[1, 1])
    assert ending[0] > ending[1] >= ending[2] >= 0.0
    assert ending[2] < 1e-6


def test_a_job_is_held_to_what_it_keeps_busy_unless_it_says_more() -> None:
    """What an elastic job keeps busy follows what it holds, so its own word counts; not beyond its owner's."""
    roster = roster_of(*(JobSpec(id=name, demand=Demand(most=3.0)) for name in ("silent", "elastic")))
    roster.absorb([DemandChanged(job_id="elastic", at=0.0, demand=Demand(most=8.0, sizes="whole"))])
    roster.absorb([CpuUsed(job_id=name, at=1.0, cpu_seconds=1.0, parallel=1) for name in roster.ids])
    assert [float(roster.most[roster.ids[name]]) for name in ("silent", "elastic")] == [1.0, 3.0]
