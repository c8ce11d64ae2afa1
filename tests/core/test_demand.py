"""Laws of demands: a running job may say what it can use, within what its owner asked for."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.appraisal import Appraiser
from slaq.core.demand import Demand
from slaq.core.events import DemandChanged, JobEnded, TrainingChanged
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec, JobState
from slaq.core.roster import Roster

amounts = st.floats(0.0, 64.0)
demands = st.builds(
    Demand,
    least=amounts,
    most=st.none() | st.floats(0.01, 64.0),
    sizes=st.sampled_from(["any", "whole", (1.0, 2.0, 4.0)]),
    memory=st.none() | st.integers(1, 2**40),
).filter(lambda demand: demand.most is None or demand.least <= demand.most)


@given(said=demands, asked=demands)
def test_what_a_job_says_stays_within_what_its_owner_asked_for(said: Demand, asked: Demand) -> None:
    """A report exceeds no bound of the owner, and changes no resource, memory or sizes that the owner named."""
    bound = said.bounded_by(asked)
    assert (math.inf if bound.most is None else bound.most) <= (
        math.inf if asked.most is None else asked.most
    )
    assert bound.least <= asked.least
    assert bound.most is None or bound.least <= bound.most
    assert (bound.resource, bound.memory) == (asked.resource, asked.memory)
    assert asked.sizes in ("any", bound.sizes)
    assert asked.bounded_by(asked) == asked


@given(said=demands, asked=demands)
def test_a_roster_goes_by_what_a_running_job_says(said: Demand, asked: Demand) -> None:
    """From the next decision on the job is given no more than it can use, also after a restart."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="a", demand=asked), 0.0)
    roster.admit(JobSpec(id="b"), 0.0)
    roster.absorb(
        [DemandChanged(job_id="a", at=1.0, demand=said), DemandChanged(job_id="x", at=1.0, demand=said)]
    )
    again = Roster(CurveForecaster())
    again.restore(roster.dump())
    for one in (roster, again):
        assert one.demand("a") == said.bounded_by(asked)
        found = Appraiser(epoch_seconds=1.0, units_per_core=8).appraise(one, 4.0, 2.0).candidates
        most = said.bounded_by(asked).most
        if most is not None:
            assert found.max_units[0] == max(round(8 * most), 1)
        assert found.min_units[0] <= found.max_units[0]
    roster.absorb([JobEnded(job_id="a", at=3.0, state=JobState.COMPLETED)])
    assert "a" not in roster.sized


def test_a_job_that_reports_no_loss_does_not_compete_until_it_does() -> None:
    """TrainingChanged takes a job out of the competition, and back into it."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="a"), 0.0)
    for trains in (False, True):
        roster.absorb([TrainingChanged(job_id="a", at=1.0, trains=trains)])
        assert roster.competes[roster.ids["a"]] == trains


@given(st.floats(0.02, 16.0), st.integers(1, 64), st.integers(1, 64))
def test_a_cap_in_cores_means_the_same_whatever_a_unit_is(cores: float, one: int, other: int) -> None:
    """A cap in cores is that cap, within half a unit, on machines of any size."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="a", demand=Demand(most=cores)), 0.0)
    for per_core in (one, other):
        found = Appraiser(epoch_seconds=1.0, units_per_core=per_core).appraise(roster, 64.0, 0.0).candidates
        held = float(found.max_units[0]) * found.unit
        assert abs(held - cores) <= 0.5 * found.unit + 1e-9 or np.isclose(held, found.unit)
