"""Laws of maximizing: to maximize x is to decide as one minimizes -x, and all that is shown is in the own sign."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slaq.bootstrap import POLICIES, Simulation
from slaq.core.allocation import Grant
from slaq.core.appraisal import Appraiser, explain
from slaq.core.arrays import Floats
from slaq.core.decision import Decision
from slaq.core.direction import best_of, minimizing, turned
from slaq.core.events import EndForeseen, Event, LossObserved
from slaq.core.explanation import explain_job
from slaq.core.forecast import CurveForecaster, forecast
from slaq.core.job import JobSpec, Observation
from slaq.core.outcome import JobCurve, Outcome
from slaq.core.policies import TotalQuality
from slaq.core.prospects import foresee
from slaq.core.roster import Roster
from slaq.core.stopping import Aim, reduction_made
from slaq.engines.goals import Goal
from slaq.ports import History
from slaq.reports.story import tell
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.whatif import Alternative, Situation, replay
from slaq.simulation.workload import SimulatedJob, Workload

#: What of a decision is in the job's own numbers.
OWN = {"level", "expected", "expected_low", "expected_high", "final_low", "final_high", "best_final"}
#: The ends of intervals, which change places.
ENDS = {
    **{"expected_low": "expected_high", "expected_high": "expected_low"},
    **{"final_low": "final_high", "final_high": "final_low"},
}
losses = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)


def mirrored_spec(spec: JobSpec) -> JobSpec:
    """Return the job that maximizes what this one minimizes, turned."""
    target = spec.target_loss
    return replace(spec, maximize=True, target_loss=None if target is None else -target)


def mirrored(job: SimulatedJob) -> SimulatedJob:
    return replace(job, spec=mirrored_spec(job.spec), losses=-job.losses) if job.spec.trains else job


def check_alike(one: Decision, other: Decision) -> None:
    """One decision is the other, to the last digit, with the jobs' own numbers turned."""
    for field in fields(Decision):
        here, there = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("seconds", "maximize"):
            continue
        if field.name in OWN:
            there = getattr(other, ENDS.get(field.name, field.name))
            # Empty where no job is one of a search.
            turn = np.where(other.maximize, -1.0, 1.0)[: len(there)]
            np.testing.assert_array_equal(here, turn * there)
        elif isinstance(here, np.ndarray):
            np.testing.assert_array_equal(here, there)
        else:
            assert here == there


def run(jobs: Workload, policy: str, forecaster: str = "slaq") -> tuple[Outcome, History]:
    found = Simulation(workload=jobs, capacity=8, policy=policy, forecaster=forecaster).run()
    return found.outcome, found.history


@pytest.mark.parametrize(
    ("policy", "forecaster"),
    [*((policy, "slaq") for policy in POLICIES), ("total-quality", "weighted-fit")],
)
def test_maximizing_decides_as_minimizing_the_negative(policy: str, forecaster: str) -> None:
    """Under every policy all decisions, outcomes and prospects are the same; only the jobs' numbers are turned."""
    shape = WorkloadShape(mean_arrival=5.0, median_cpu_seconds=200.0)
    drawn = generate(8, np.random.default_rng(5), shape)
    given = Workload(
        tuple(
            replace(
                job,
                spec=replace(
                    job.spec,
                    target_loss=float(job.losses[len(job.losses) // 2]) if k % 3 == 0 else None,
                    deadline=200.0 if k % 2 else None,
                ),
            )
            if job.spec.trains
            else job
            for k, job in enumerate(drawn)
        )
    )
    (outcome, before), (turned_outcome, after) = (
        run(jobs, policy, forecaster) for jobs in (given, Workload(tuple(map(mirrored, given))))
    )
    assert len(before.decisions()) > 10
    for one, other in zip(before.decisions(), after.decisions(), strict=True):
        check_alike(one, other)
    for name in ("loss", "worst_loss", "time_to", "cores_by_group"):
        np.testing.assert_array_equal(getattr(outcome, name), getattr(turned_outcome, name))
    own, others = (tell({policy: history}, policy) for history in (before, after))
    if own is not None and others is not None:
        assert (own.job_id, own.until) == (others.job_id, others.until)


@given(losses, st.sampled_from(["slaq", "strawman", "weighted-fit", "last"]))
def test_forecasts_turn_with_their_losses(history: list[float], method: str) -> None:
    """The forecast of what should rise is that of its negative, turned, with low below high."""
    down = forecast(history, [1, 10, 100], method=method)
    up = forecast([-loss for loss in history], [1, 10, 100], method=method, maximize=True)
    for one, other in ((down.mean, up.mean), (down.low, up.high), (down.high, up.low)):
        np.testing.assert_array_equal(one, -other)
    assert up.restarts == down.restarts
    assert (up.mean >= up.low).all()


@given(losses, st.none() | st.floats(-1e6, 1e6))
def test_reductions_turn_too(history: list[float], target: float | None) -> None:
    """How far a job has come does not depend on the sign of its numbers."""
    rising = Aim(target=None if target is None else -target, maximize=True)
    other = reduction_made([-loss for loss in history], rising)
    assert reduction_made(history, Aim(target=target)) == other


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0.01, 1.0))
def test_goals_are_reached_from_the_other_side(
    first: float, loss: float, target: float, share: float
) -> None:
    """A goal ends a job that maximizes at the number at which it would end its negative; it names the own one."""
    down = Goal(target_loss=target, stop_at=share).reached(3, first, loss)
    up = Goal(target_loss=-target, stop_at=share, maximize=True).reached(3, -first, -loss)
    assert bool(down) == bool(up)
    if up:
        assert f"its loss {-loss:g} has" in up


@given(st.lists(st.floats(allow_nan=False)), st.booleans())
def test_the_best_is_the_best_of_the_turned(numbers: list[float], maximize: bool) -> None:
    """The best of what should rise is the highest; there is none of nothing."""
    expected = min((turned(number, maximize) for number in numbers), default=None)
    assert best_of(numbers, maximize) == (None if expected is None else turned(expected, maximize))


def events(job_id: str, seen: Floats) -> list[Event]:
    return [
        LossObserved(
            job_id=job_id,
            at=4.0 * k,
            observation=Observation(
                iteration=k, loss=loss, cpu_seconds=4.0 if k else 0.0, wall_seconds=4.0 if k else 0.0
            ),
        )
        for k, loss in enumerate(seen.tolist())
    ]


def roster_of(jobs: dict[str, tuple[JobSpec, Floats]]) -> Roster:
    roster = Roster(CurveForecaster())
    for job_id, (spec, seen) in jobs.items():
        roster.admit(spec, 0.0)
        roster.hold(roster.rows()[-1:], _held(job_id), 0.0)
        roster.absorb([*events(job_id, seen), EndForeseen(job_id=job_id, at=100.0, iterations=400)])
    return roster


def _held(job_id: str) -> Grant:
    one = np.ones(1)
    return Grant(ids=(job_id,), cores=one, credit=0 * one, size_credit=0 * one, owner_credit=np.empty(0))


def pair() -> tuple[Roster, Roster]:
    """The same jobs twice: as they minimize, and turned."""
    rng = np.random.default_rng(1)
    jobs = {
        f"job-{k}": (
            JobSpec(id=f"job-{k}", target_loss=1.0 if k % 2 else None, stop_at=0.9, deadline=300.0 + k),
            1.0 + rng.uniform(0.5, 2.0) / (1.0 + np.arange(5.0 + 4 * k)),
        )
        for k in range(5)
    }
    turn = {job_id: (mirrored_spec(spec), -seen) for job_id, (spec, seen) in jobs.items()}
    return roster_of(jobs), roster_of(turn)


def test_prospects_are_the_same_and_explanations_in_the_own_sign() -> None:
    """Times and chances do not depend on the sign; sentences speak of the number as the job reports it."""
    found = []
    for roster in pair():
        appraisal = Appraiser(epoch_seconds=1.0).appraise(roster, 4.0, 100.0)
        allocation = TotalQuality().allocate(appraisal.candidates, appraisal.capacity)
        prospects = foresee(roster, appraisal, allocation.units.astype(float))
        decision = explain(appraisal, allocation, 1, 100.0, 0.0)
        found.append((decision, prospects, explain_job(decision, "job-3", prospects=prospects)))
    (down, times, told), (up, same, own) = found
    check_alike(down, up)
    for name in ("reduction", "seconds_to", "seconds_to_target", "chance", "out_of_reach"):
        np.testing.assert_array_equal(getattr(times, name), getattr(same, name))
    assert (own.loss, own.expected_low) == (-told.loss, -told.expected_high)  # type: ignore[operator]
    assert own.loss is not None
    assert f"The number that it maximizes stands at {own.loss:.6g}" in own.as_text()
    assert "of its whole predicted rise" in own.as_text()
    assert "of its whole predicted fall" in told.as_text()


@settings(max_examples=10, deadline=None)
@given(st.none() | st.integers(0, 100))
def test_what_if_plays_both_alike(seed: int | None) -> None:
    """Jobs under way and queued are played forward as their negatives are."""
    replays = []
    for maximize, roster in zip((False, True), pair(), strict=True):
        waiting = JobSpec(id="waits", arrival=5.0, target_loss=0.25)
        situation = Situation(
            roster=roster.dump(),
            now=100.0,
            epoch_seconds=1.0,
            queued=(mirrored_spec(waiting) if maximize else waiting,),
        )
        alternative = Alternative(name="quality", policy=TotalQuality(), capacity=2)
        replays.append(replay(situation, [alternative], horizon=100.0, seed=seed))
    assert replays[0] == replays[1]


def test_minimizing_turns_the_target() -> None:
    """A spec that maximizes becomes one that minimizes its negative; any other one stays as it is."""
    assert minimizing(JobSpec(id="a", maximize=True, target_loss=0.9)) == JobSpec(id="a", target_loss=-0.9)
    plain = JobSpec(id="a", target_loss=0.9)
    assert minimizing(plain) is plain


def test_curves_keep_their_own_sign() -> None:
    """A curve holds what the job reported; measures read it turned."""
    spec = JobSpec(id="a", maximize=True)
    curve = JobCurve.of(spec, events("a", np.array([0.5, 0.9])), 0.95)
    assert (curve.losses.tolist(), curve.falling.tolist(), curve.end) == ([0.5, 0.9], [-0.5, -0.9], -0.95)
