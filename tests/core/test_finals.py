"""Laws of finals: the best loss that a job is forecast to have had at its end, and the records of its group."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.appraisal import Appraiser
from slaq.core.events import JobEnded
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec, JobState
from slaq.core.roster import Roster
from tests.core.test_roster import APPRAISER, curve, falling, roster_of

SEARCH: Any = {"group": "net", "best_first": True}


def final_of(losses: list[float], total: int | None = None, *, maximize: bool = False) -> tuple[float, ...]:
    """The low end, the forecast and the high end of a job that has reported these losses."""
    roster = roster_of(JobSpec(id="a", max_iterations=total, maximize=maximize))
    roster.absorb(curve("a", losses))
    candidates = APPRAISER.appraise(roster, 1, 0.0).candidates
    return tuple(float(end[0]) for end in (candidates.final_low, candidates.final, candidates.final_high))


@given(
    losses=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30),
    total=st.none() | st.integers(1, 500),
    maximize=st.booleans(),
)
def test_what_is_reached_is_kept(losses: list[float], total: int | None, maximize: bool) -> None:
    """The ends are in order, finite, and none is worse than the best loss so far, turned so that less is better."""
    low, final, high = final_of(losses, total, maximize=maximize)
    best = -max(losses) if maximize else min(losses)
    assert -np.inf < low <= final <= high <= best


def test_little_is_known_before_the_second_loss() -> None:
    """With one loss or none, anything may come; a job that has diverged ends nowhere."""
    assert final_of([]) == final_of([1.0]) == (-np.inf, np.inf, np.inf)
    assert final_of([1.0, 0.5, float("nan")]) == (np.inf, np.inf, np.inf)


def test_the_end_counts_where_it_is_known() -> None:
    """A job with more iterations to come may end lower, and one without any ends at its best loss."""
    losses = falling(1.0, 11)
    near, far = final_of(losses, 12), final_of(losses, 200)
    assert far[0] < near[0]
    assert far[1] < near[1] <= losses[-1]
    assert final_of(losses, 10) == (losses[-1],) * 3


def test_a_completed_job_is_the_record_of_its_group() -> None:
    """The best loss of a job that completes counts for those of its group then and later, and for nobody else."""
    roster = roster_of(
        JobSpec(id="done", **SEARCH),
        JobSpec(id="mate", **SEARCH),
        JobSpec(id="stopped", **SEARCH),
        JobSpec(id="stranger", owner="ann", **SEARCH),
        JobSpec(id="rising", maximize=True, **SEARCH),
        JobSpec(id="alone"),
    )
    for job_id, best in (("done", 0.5), ("stopped", 0.1)):
        roster.absorb(curve(job_id, [1.0, best, 0.7]))
    roster.absorb([JobEnded(job_id="stopped", at=3.0, state=JobState.CANCELLED)])
    roster.absorb([JobEnded(job_id="done", at=3.0, state=JobState.COMPLETED)])
    roster.admit(JobSpec(id="later", **SEARCH), 4.0)
    seen = Appraiser(epoch_seconds=1.0).appraise(roster, 1, 4.0).candidates
    record = dict(zip(seen.ids, seen.record.tolist(), strict=True))
    none = float("inf")
    assert record == {"mate": 0.5, "stranger": none, "rising": none, "alone": none, "later": 0.5}
    group = dict(zip(seen.ids, seen.group.tolist(), strict=True))
    assert group["mate"] == group["later"]
    assert len({group[name] for name in ("mate", "stranger", "rising", "alone")}) == 4
    assert group["alone"] == 0


def test_groups_survive_a_restart_and_are_forgotten_when_empty() -> None:
    """A restored roster puts a new job into the group that it was in; an emptied group has no record any more."""
    roster = roster_of(JobSpec(id="a", **SEARCH), JobSpec(id="b", group="other", best_first=True))
    restored = Roster(CurveForecaster())
    restored.restore(roster.dump())
    restored.admit(JobSpec(id="c", **SEARCH), 1.0)
    assert restored.group[restored.ids["c"]] == restored.group[restored.ids["a"]]
    assert restored.group[restored.ids["b"]] != restored.group[restored.ids["a"]]
    restored.absorb(curve("a", [1.0, 0.5]))
    restored.absorb([JobEnded(job_id=name, at=3.0, state=JobState.COMPLETED) for name in ("a", "c")])
    restored.admit(JobSpec(id="d", **SEARCH), 4.0)
    assert restored.record[restored.ids["d"]] == np.inf
    assert restored.group[restored.ids["d"]] != restored.group[restored.ids["b"]]
