"""Laws of deadlines: what a job needs makes its target likely, and the policy gives it to those who can."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slaq.bootstrap import simulate
from slaq.core.appraisal import Appraiser
from slaq.core.deadlines import LIKELY
from slaq.core.events import LossObserved
from slaq.core.job import JobSpec
from slaq.core.prospects import foresee
from slaq.simulation.workload import SimulatedJob, Workload
from tests.core.test_prospects import CAPACITY, SECONDS, curves, geometric, goals, reported


def needed(losses: list[float], now: float = 0.0, **asked: object) -> float:
    roster = reported(losses, **asked)
    return float(Appraiser(epoch_seconds=1.0).appraise(roster, CAPACITY, now).candidates.needed[0])


@settings(max_examples=60, deadline=None)
@given(curves, goals, st.floats(0, 3000))
@example([1.0, 0.0], {}, 0.0)
def test_what_is_needed_makes_it_likely(losses: list[float], goal: dict[str, float], left: float) -> None:
    """The units that a job needs make its target likely; if no number of units does, it is out of reach."""
    roster = reported(losses, deadline=left, **goal)
    appraisal = Appraiser(epoch_seconds=1.0).appraise(roster, CAPACITY, 0.0)
    units = appraisal.candidates.needed
    found = foresee(roster, appraisal, np.where(np.isfinite(units), units, CAPACITY))
    if units[0] == 0.0:
        assert found.chance[0] == 1.0
    elif np.isinf(units[0]):
        assert found.out_of_reach[0]
    elif units[0] < CAPACITY - 1e-6:
        assert found.chance[0] >= LIKELY - 1e-6
    else:
        assert not found.out_of_reach[0]


def test_less_time_needs_more_units() -> None:
    """The nearer the deadline, the more units are needed, until no number of them is enough."""
    losses = geometric(20, 0.95)
    target = 1.0 + 0.95**40
    asked = [needed(losses, target_loss=target, deadline=left) for left in (1e4, 300.0, 60.0, 20.0, 0.5)]
    assert asked == sorted(asked)
    assert 0 < asked[0] < 1
    assert np.isinf(asked[-1])


def test_nothing_is_needed_without_a_deadline() -> None:
    """A job without a deadline, or at its target, needs nothing; one whose deadline has passed cannot make it."""
    losses = geometric(20)
    assert needed(losses, target_loss=1.0) == 0.0
    assert needed(losses, target_loss=losses[-1], deadline=1.0) == 0.0
    assert np.isinf(needed(losses, now=2.0, target_loss=1.0, deadline=1.0))


@pytest.mark.parametrize(("policy", "in_time"), [("total-quality", False), ("deadline", True)])
def test_a_deadline_is_made_that_gain_alone_would_miss(policy: str, in_time: bool) -> None:
    """A slow job reaches its target in time under the policy `deadline`, and too late under total quality."""
    k = np.arange(400, dtype=np.float64)
    target = 10.0 + 0.97**150
    slow = SimulatedJob(
        spec=JobSpec(id="slow", target_loss=target, deadline=200.0),
        losses=np.asarray(10.0 + 0.97**k),
        cpu_seconds_per_iteration=SECONDS,
    )
    others = [
        SimulatedJob(
            spec=JobSpec(id=f"other-{n}", arrival=20.0 * n),
            losses=np.asarray(100.0 / (1.0 + 0.2 * k)),
            cpu_seconds_per_iteration=SECONDS,
        )
        for n in range(12)
    ]
    run = simulate(Workload((slow, *others)), policy=policy, capacity=8, epoch_seconds=3.0)
    reached = [
        event.at
        for event in run.history.events("slow")
        if isinstance(event, LossObserved) and event.observation.loss <= target
    ]
    assert (reached[0] <= 200.0) is in_time
