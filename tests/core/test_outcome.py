"""Laws of the numbers a policy is judged by."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.decision import Decision
from slaq.core.events import JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.outcome import GROUPS, REDUCTIONS, JobCurve, measure


def decision(time: float, cores: dict[str, float], seconds: float = 0.002) -> Decision:
    nothing = np.zeros(len(cores))
    return Decision(
        epoch=int(time // 3),
        time=time,
        capacity=sum(cores.values()),
        unit=1.0,
        ids=tuple(cores),
        cores=np.array(list(cores.values()), dtype=np.float64),
        loss=nothing,
        gain=nothing,
        marginal=nothing,
        expected=nothing,
        expected_low=nothing,
        expected_high=nothing,
        diverged=np.zeros(len(cores), dtype=bool),
        seconds=seconds,
    )


def curve(name: str, points: dict[float, float], ended_at: float | None, arrival: float = 0.0) -> JobCurve:
    return JobCurve(
        spec=JobSpec(id=name, arrival=arrival),
        times=np.array(list(points), dtype=np.float64),
        losses=np.array(list(points.values()), dtype=np.float64),
        ended_at=ended_at,
    )


def test_the_example_by_hand() -> None:
    """The outcome of two jobs over three epochs is the one computed by hand."""
    jobs = [
        curve("a", {0.0: 10.0, 2.0: 5.0, 5.0: 7.0, 8.0: 0.0}, ended_at=8.0),
        curve("b", {3.0: 1.0, 4.0: 0.5, 7.0: 0.0}, ended_at=7.0, arrival=1.0),
    ]
    decisions = [
        decision(0.0, {"a": 4}, seconds=0.001),
        decision(3.0, {"a": 3, "b": 1}, seconds=0.003),
        decision(6.0, {"a": 1, "b": 3}, seconds=0.002),
    ]
    outcome = measure("fair", jobs, decisions, 3.0)
    assert outcome.loss.tolist() == [1.0, 0.75, 0.5]
    assert outcome.as_json() == {
        "mean_normalised_loss": 0.75,
        "time_to_90": 7.0,
        "time_to_95": 7.0,
        # a: 1 for 2 s, then 0.5 for 6 s; b: 1 from its arrival at 1 s to 4 s, then 0.5 to 7 s.
        "loss_seconds": 4.75,
        "completion": 7.0,
        "mean_active": 1.667,
        "makespan": 8.0,
        "decision_ms": {"median": 2.0, "p99": 2.98},
        "share_by_group": {"high": None, "medium": None, "low": None},
    }
    assert outcome.time_to[REDUCTIONS.index(0.5)] == pytest.approx((2.0 + 3.0) / 2)
    assert outcome.active.tolist() == [1, 2, 2]
    assert outcome.times.tolist() == [0.0, 3.0, 6.0]
    assert outcome.unfinished == 0


def test_groups_are_those_of_figure_8() -> None:
    """Of eight jobs the two of highest loss are high, the next two medium, the other four low."""
    jobs = [curve(str(k), {0.0: 10.0, 1.0: float(k), 9.0: 0.0}, ended_at=9.0) for k in range(8)]
    cores = {str(k): k + 1.0 for k in range(8)}
    outcome = measure("any", jobs, [decision(3.0, cores)], 3.0)
    assert outcome.cores_by_group.tolist() == [[8 + 7, 6 + 5, 4 + 3 + 2 + 1]]
    assert outcome.share_by_group == pytest.approx({"high": 15 / 36, "medium": 11 / 36, "low": 10 / 36})


@given(st.integers(1, 40))
def test_equal_cores_give_each_group_its_share_of_jobs(count: int) -> None:
    """The groups hold a quarter, a quarter and a half of the jobs, their ends rounded."""
    jobs = [curve(str(k), {0.0: 100.0, 1.0: float(k), 9.0: -1.0}, ended_at=9.0) for k in range(count)]
    held = measure("any", jobs, [decision(3.0, {str(k): 1 for k in range(count)})], 3.0).cores_by_group[0]
    assert held.sum() == count
    assert np.abs(np.cumsum(held) - count * np.array([0.25, 0.5, 1.0])).max() <= 0.5


def test_jobs_of_another_kind_count_only_where_they_belong() -> None:
    """Jobs that do not train count as active and completed, but have no loss and belong to no group."""
    other = JobCurve(spec=JobSpec(id="o", trains=False), times=np.empty(0), losses=np.empty(0), ended_at=20.0)
    job = curve("a", {0.0: 2.0, 4.0: 1.0}, ended_at=4.0)
    outcome = measure("any", [other, job], [decision(0.0, {"o": 5, "a": 1}), decision(6.0, {"o": 5})], 3.0)
    assert outcome.active.tolist() == [2, 1]
    assert outcome.loss[0] == 1.0
    assert math.isnan(outcome.loss[1])
    assert outcome.mean_normalised_loss == 1.0
    assert outcome.completion == 12.0
    assert outcome.makespan == 20.0
    assert outcome.cores_by_group.sum() == 1


def test_a_run_cut_short_is_measured_against_the_whole_curves() -> None:
    """An unfinished job keeps what is left of its loss, and misses the shares that it has not reached."""
    job = JobCurve(
        spec=JobSpec(id="a"), times=np.array([0.0, 1.0]), losses=np.array([8.0, 4.0]), final_best=0.0
    )
    outcome = measure("any", [job], [decision(0.0, {"a": 1}), decision(3.0, {"a": 1})], 3.0)
    assert outcome.loss.tolist() == [1.0, 0.5]
    assert outcome.unfinished == 1
    assert outcome.makespan == 6.0
    assert outcome.time_to[REDUCTIONS.index(0.5)] == 1.0
    assert outcome.as_json()["time_to_90"] is None
    assert outcome.as_json()["completion"] is None


def test_rises_nan_and_constant_curves_are_taken_in() -> None:
    """NaN losses are skipped; a constant curve counts as 0; a job without a loss counts as 1."""
    nan = math.nan
    jobs = [
        curve("nan", {0.0: 4.0, 1.0: nan, 2.0: 9.0, 3.0: 2.0, 9.0: 0.0}, ended_at=9.0),
        curve("flat", {0.0: 3.0, 1.0: 3.0}, ended_at=9.0),
        curve("late", {5.0: 1.0, 6.0: 0.0}, ended_at=9.0),
        curve("mute", {}, ended_at=9.0),
        curve("lost", {1.0: nan}, ended_at=9.0),
    ]
    for name, expected in {"nan": 0.5, "flat": 0.0, "late": 1.0, "mute": 1.0, "lost": 1.0}.items():
        assert measure("any", jobs, [decision(3.0, {name: 1})], 3.0).loss.tolist() == [expected]


def test_loss_seconds_count_a_job_s_whole_life_and_no_more() -> None:
    """They run from arrival to end, at 1 before the first loss; jobs that do not train have none."""
    life = curve("a", {4.0: 2.0, 6.0: 1.0}, ended_at=9.0, arrival=1.0)
    assert life.loss_seconds(until=100.0) == 5.0
    assert curve("mute", {}, ended_at=9.0, arrival=1.0).loss_seconds(until=100.0) == 8.0
    assert curve("never fell", {2.0: 1.0, 3.0: 5.0}, ended_at=9.0).loss_seconds(until=100.0) == 2.0
    unended = JobCurve(
        spec=JobSpec(id="a"), times=np.array([0.0, 1.0]), losses=np.array([8.0, 4.0]), final_best=0.0
    )
    assert unended.loss_seconds(until=6.0) == 1.0 + 5.0 / 2
    other = JobCurve(spec=JobSpec(id="o", trains=False), times=np.empty(0), losses=np.empty(0), ended_at=20.0)
    assert measure("any", [other, life], [decision(6.0, {"a": 1})], 3.0).loss_seconds == 5.0


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(-9.0, 9.0)), min_size=1, max_size=12),
    st.floats(0.0, 20.0),
)
def test_loss_seconds_lie_within_a_life_and_only_grow_when_losses_come_later(
    points: list[tuple[float, float]], later: float
) -> None:
    """Losses that come later, with arrival and end unchanged, never make fewer loss seconds."""
    times = np.sort([time for time, _ in points])
    losses = np.array([loss for _, loss in points])
    sooner, delayed = (
        JobCurve(spec=JobSpec(id="a"), times=times + wait, losses=losses, ended_at=80.0).loss_seconds(80.0)
        for wait in (0.0, later)
    )
    assert 0.0 <= sooner <= delayed + 1e-9
    assert delayed <= 80.0 + 1e-9


def test_nothing_at_all_gives_no_numbers() -> None:
    """Without a job or a decision everything is None, and the JSON is valid."""
    numbers = measure("any", [], [], 3.0).as_json()
    assert set(numbers["share_by_group"]) == set(GROUPS)
    text = json.dumps(numbers, allow_nan=False)
    assert json.loads(text)["mean_active"] is None


@given(st.permutations(range(5)))
def test_the_order_of_the_jobs_does_not_matter(order: list[int]) -> None:
    """Permuting the jobs gives the same outcome."""
    jobs = [curve(str(k), {0.0: 9.0, 1.0 + k: 5.0 - k, 9.0: 0.0}, ended_at=9.0 + k) for k in range(5)]
    decisions = [decision(3.0 * epoch, {str(k): k + epoch for k in range(5)}) for epoch in range(3)]
    permuted = measure("any", [jobs[index] for index in order], decisions, 3.0)
    assert permuted.as_json() == measure("any", jobs, decisions, 3.0).as_json()


def test_a_curve_is_drawn_by_its_events() -> None:
    """A curve's points are the observations and its end is the job's end; other events are ignored."""
    spec = JobSpec(id="a")
    drawn = JobCurve.of(
        spec,
        [
            LossObserved(job_id="a", at=1.0, observation=Observation(iteration=0, loss=3.0)),
            LearningRateChanged(job_id="a", at=1.5, learning_rate=0.1),
            LossObserved(job_id="a", at=2.0, observation=Observation(iteration=1, loss=2.0)),
            JobEnded(job_id="a", at=2.5, state=JobState.COMPLETED),
        ],
        final_best=1.0,
    )
    assert (drawn.times.tolist(), drawn.losses.tolist()) == ([1.0, 2.0], [3.0, 2.0])
    assert (drawn.spec, drawn.ended_at, drawn.final_best) == (spec, 2.5, 1.0)
