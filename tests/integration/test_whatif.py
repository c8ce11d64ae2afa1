"""Laws of replays: the present cluster, played forward by the same scheduler that runs it."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slaq.core.appraisal import Appraiser
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec
from slaq.core.policies import BetweenOwners, Deadline, Fair, TotalQuality
from slaq.core.prospects import foresee
from slaq.core.roster import Roster
from slaq.simulation.whatif import Alternative, Replay, Situation, replay

NOW = 1000.0
SECONDS = 4.0


def under_way(curves: dict[str, list[float]], **asked: object) -> Roster:
    """A roster of jobs that have reported these losses, at 4 core seconds each, until now."""
    roster = Roster(CurveForecaster())
    for job_id, losses in curves.items():
        roster.admit(JobSpec(id=job_id, **asked), 0.0)  # type: ignore[arg-type]
        row = np.array([roster.ids[job_id]])
        roster.cores[row] = 1
        begin = NOW - SECONDS * len(losses)
        for k, loss in enumerate(losses):
            spent = np.full(1, SECONDS if k else 0.0)
            roster.observe(row, np.full(1, begin + SECONDS * (k + 1)), np.full(1, loss), spent, spent)
    return roster


def falling(count: int, rate: float = 0.3, end: float = 2.0) -> list[float]:
    return [end + 1.0 / (1.0 + rate * k) for k in range(count)]


def situation(roster: Roster, **more: object) -> Situation:
    return Situation(roster=roster.dump(), now=NOW, epoch_seconds=1.0, **more)  # type: ignore[arg-type]


def played(
    roster: Roster,
    *alternatives: Alternative,
    horizon: float = 200.0,
    seed: int | None = None,
    **more: object,
) -> list[Replay]:
    return replay(situation(roster, **more), alternatives, horizon=horizon, seed=seed)


def quality(capacity: int) -> Alternative:
    return Alternative(name="quality", policy=TotalQuality(), capacity=capacity)


def fair(capacity: int) -> Alternative:
    return Alternative(name="fair", policy=Fair(), capacity=capacity)


def test_one_job_goes_as_its_prospects_say() -> None:
    """A job that holds all there is makes 90% and 95% when its prospects at those cores say, to an iteration."""
    for known in (5, 12, 30):
        roster = under_way({"a": falling(known)})
        (found,) = played(roster, fair(2), horizon=3000.0)
        appraisal = Appraiser(epoch_seconds=1.0).appraise(roster, 2, NOW)
        foreseen = foresee(roster, appraisal, np.array([2.0])).seconds_to[0]
        for seconds, expected in zip(
            (found.jobs[0].seconds_to_90, found.jobs[0].seconds_to_95), foreseen.tolist(), strict=True
        ):
            # A loss stands for up to 3000 / 2 / 256 iterations, of 2 seconds each; falls are linear in between.
            assert seconds == pytest.approx(expected, abs=3 * 8 * 2.0 + 1.0), known


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(0, 12),
    st.integers(0, 3),
    st.none() | st.integers(0, 5),
)
def test_is_the_same_every_time(ages: list[int], capacity: int, waiting: int, seed: int | None) -> None:
    """A replay depends on nothing but its arguments, hands out no more than there is, and is JSON."""
    roster = under_way({f"job-{n}": falling(age, 0.1 + 0.1 * n) for n, age in enumerate(ages)})
    roster.pause("job-0")
    queued = tuple(JobSpec(id=f"new-{n}", arrival=NOW + 10 * n) for n in range(waiting))
    asked = (quality(capacity), fair(capacity))
    first, again = (played(roster, *asked, horizon=30.0, seed=seed, queued=queued) for _ in range(2))
    assert first == again
    for found in first:
        assert json.loads(json.dumps(found.as_json(), allow_nan=False))["capacity"] == capacity
        assert sum(job.cores for job in found.jobs) <= capacity + 1e-9
        assert {job.id for job in found.jobs} == set(roster.ids) | {spec.id for spec in queued}
        assert found.jobs[0].cores == 0.0
        for job in found.jobs:
            assert 0.0 <= job.reduction <= 1.0
            if job.seconds_to_90 is not None and job.seconds_to_95 is not None:
                assert job.seconds_to_90 <= job.seconds_to_95


def test_a_job_that_comes_after_another_waits_for_its_end() -> None:
    """In a replay too, whether that one is under way or queued itself."""
    roster = under_way({"first": falling(5)})
    queued = (JobSpec(id="second", after=("first",)), JobSpec(id="third", after=("second",)))
    left = {"first": 5, "second": 5}
    (found,) = played(roster, fair(2), horizon=300.0, queued=queued, iterations_left=left)
    first, second, third = found.jobs
    assert first.seconds_to_end is not None
    assert second.seconds_to_end is not None
    # Each iteration takes 2 s on both cores; a job that did not wait would share them with the first.
    assert second.seconds_to_end >= first.seconds_to_end + 5 * SECONDS / 2 - 1.0
    assert third.cores == pytest.approx(2 * (300.0 - second.seconds_to_end) / 300.0, abs=0.05)


def test_more_capacity_is_sooner() -> None:
    """With four times the cores, every job makes its 90% sooner, and the losses are lower."""
    roster = under_way({"a": falling(10), "b": falling(6, 0.2), "c": falling(3)})
    few, many = played(roster, fair(3), fair(12), horizon=600.0)
    for slow, fast in zip(few.jobs, many.jobs, strict=True):
        assert fast.seconds_to_90 is not None
        assert slow.seconds_to_90 is None or fast.seconds_to_90 <= slow.seconds_to_90
    assert many.mean_normalised_loss < few.mean_normalised_loss


def test_the_young_gain_by_quality() -> None:
    """Beside nearly converged jobs, a young one makes its 90% sooner by quality than by fair sharing."""
    roster = under_way({**{f"old-{n}": falling(60, 2.0) for n in range(5)}, "young": falling(4, 0.1)})
    by_gain, by_share = played(roster, quality(12), fair(12), horizon=2000.0)
    young = [found.jobs[-1].seconds_to_90 for found in (by_gain, by_share)]
    assert young[0] is not None
    assert young[1] is None or young[0] < 0.8 * young[1]


def test_jobs_end_where_they_are_said_to() -> None:
    """A job with three iterations left ends after them; one that is stopped at 90% ends there."""
    roster = under_way({"counted": falling(10), "stopped": falling(10), "open": falling(10)})
    (found,) = played(
        roster, fair(12), horizon=600.0, iterations_left={"counted": 3}, stop_at={"stopped": 0.9}
    )
    counted, stopped, without_end = found.jobs
    assert counted.seconds_to_end is not None
    assert counted.seconds_to_end < 40
    assert stopped.seconds_to_end is not None
    assert stopped.seconds_to_90 == stopped.seconds_to_end
    assert without_end.seconds_to_end is None


def test_deadlines_are_counted() -> None:
    """A target that fits into the time is made in time; one that does not, is not; one far ahead is left out."""
    roster = under_way({"soon": falling(20), "late": falling(4), "far": falling(4)}, stop_at=0.9)
    for job_id, left in (("soon", 600.0), ("late", 1.0), ("far", 1e6)):
        roster.deadline[roster.ids[job_id]] = NOW + left
    (found,) = played(roster, Alternative(name="deadline", policy=Deadline(), capacity=8), horizon=700.0)
    assert [job.in_time for job in found.jobs] == [True, False, None]
    assert (found.deadlines, found.deadlines_made) == (2, 1)


def test_other_work_and_lost_jobs_take_part() -> None:
    """A job without losses holds its share throughout, and one that diverged stays so."""
    roster = under_way({"a": falling(10), "lost": [3.0, 2.0, float("nan")]})
    roster.admit(JobSpec(id="etl", trains=False), NOW)
    (found,) = played(roster, quality(9))
    a, lost, etl = found.jobs
    assert etl.cores == pytest.approx(3.0, abs=0.2)
    assert lost.cores < 1.0
    assert a.cores > 4.0
    assert etl.seconds_to_90 is None


def test_fast_jobs_are_not_followed_loss_by_loss() -> None:
    """A job of a thousand iterations a second is played in no more losses than any other."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="fast"), NOW)
    row = np.array([0])
    roster.cores[row] = 1
    for start in range(0, 20_000, 1000):
        k = np.arange(start, start + 1000, dtype=np.float64)
        took = np.full(1000, 0.001)
        losses = np.asarray(1.0 + 1.0 / (1.0 + k / 3000))
        roster.observe(np.zeros(1000, dtype=np.int64), np.asarray(NOW + k / 1000), losses, took, took)
    (found,) = played(roster, fair(1), horizon=3600.0)
    assert found.jobs[0].seconds_to_95 is not None


def test_can_be_asked_in_another_process() -> None:
    """The question and the answer travel by pickle."""
    roster = under_way({"a": falling(10)}, owner="ann")
    shared = Alternative(name="shared", policy=BetweenOwners(TotalQuality(), {"ann": 2.0}), capacity=4)
    asked, way = pickle.loads(pickle.dumps((situation(roster), shared)))
    found = replay(asked, [way], horizon=100.0)
    assert pickle.loads(pickle.dumps(found)) == played(roster, shared, horizon=100.0)
    assert found[0].jobs[0].owner == "ann"
