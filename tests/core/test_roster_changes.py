"""Laws of a roster that changes under way: jobs paused, weighed anew, dumped and restored."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Allocation, Grant
from slaq.core.appraisal import Appraiser
from slaq.core.demand import Demand
from slaq.core.errors import JobOptionError, SnapshotError, UnknownJobError
from slaq.core.events import CpuUsed, DemandChanged, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.forecast import METHODS, CurveForecaster
from slaq.core.forecaster import Forecaster
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.policies import TotalQuality
from slaq.core.roster import STOP_AT, Roster
from slaq.core.sizes import fit_sizes

APPRAISER = Appraiser(epoch_seconds=1.0)
CAPACITY = 12


def spec(number: int) -> JobSpec:
    """Jobs with different values of every option."""
    return JobSpec(
        id=f"job-{number}",
        trains=number % 5 != 4,
        weight=1.0 + number % 3,
        demand=Demand(
            least=float(number % 2),
            most=None if number % 4 == 0 else 2.0 + number,
            sizes="whole" if number % 7 == 6 else "any",
        ),
        target_loss=0.5 if number % 6 == 1 else None,
        owner=f"owner-{number % 3}",
        deadline=100.0 + number if number % 3 == 0 else None,
        stop_at=0.8 if number % 6 == 0 else None,
    )


def happenings(epoch: int, ids: list[str], rng: np.random.Generator) -> list[Event]:
    """Losses of some jobs, now and then a new learning rate or an end."""
    events: list[Event] = []
    for job_id in ids:
        for k in range(int(rng.integers(0, 12))):
            loss = float(rng.normal(1.0, 0.1) / (1 + epoch + k / 12))
            seen = Observation(iteration=20 * epoch + k, loss=loss, cpu_seconds=0.3, wall_seconds=0.1)
            events.append(LossObserved(job_id=job_id, at=epoch + k / 12, observation=seen))
        if rng.random() < 0.05:
            events.append(LearningRateChanged(job_id=job_id, at=epoch + 0.99, learning_rate=0.1))
        if rng.random() < 0.05:
            events.append(JobEnded(job_id=job_id, at=epoch + 0.99, state=JobState.COMPLETED))
    return events


def run(roster: Roster, first: int, last: int, seed: int) -> list[Allocation]:
    """Run epochs in which jobs come, report, pause, resume and end; return the decisions."""
    decided = []
    for epoch in range(first, last):
        rng = np.random.default_rng((seed, epoch))
        for number in range(3 * epoch, 3 * epoch + 3):
            roster.admit(spec(number), float(epoch))
        ids = list(roster.ids)
        for job_id in ids:
            change = rng.random()
            if change < 0.1:
                roster.pause(job_id)
            elif change < 0.3:
                roster.resume(job_id)
        roster.absorb(happenings(epoch, ids, rng))
        appraisal = APPRAISER.appraise(roster, CAPACITY, float(epoch))
        allocation = TotalQuality().allocate(appraisal.candidates, CAPACITY)
        allocation, owed = fit_sizes(appraisal.candidates, allocation, CAPACITY)
        decided.append(allocation)
        roster.hold(appraisal.rows, appraisal.grant(allocation, owed), float(epoch))
    return decided


def roster_of(*specs: JobSpec) -> Roster:
    roster = Roster(CurveForecaster())
    for one in specs:
        roster.admit(one, 0.0)
    return roster


def granted(cores: dict[str, float], credit: list[float] | None = None) -> Grant:
    owed = np.zeros(len(cores)) if credit is None else np.array(credit)
    held = np.array(list(cores.values()), dtype=float)
    return Grant(ids=tuple(cores), cores=held, credit=owed, size_credit=np.zeros(len(cores)))


class TestDump:
    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10), st.integers(0, 2**30), st.sampled_from(sorted(METHODS)))
    def test_decides_as_before(self, before: int, seed: int, method: str) -> None:
        """A roster restored from a dump takes the same decisions, to the last bit, as the one dumped."""
        make: Callable[[int], Forecaster] = METHODS[method]
        kept = Roster(make(0))
        run(kept, 0, before, seed)
        restored = Roster(make(0))
        restored.restore(kept.dump())
        assert restored.dump() == kept.dump()
        for one, other in zip(
            run(kept, before, before + 5, seed), run(restored, before, before + 5, seed), strict=True
        ):
            assert one.ids == other.ids
            np.testing.assert_array_equal(one.units, other.units)
            np.testing.assert_array_equal(one.credit, other.credit)

    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def test_damage_is_found(self, data: st.DataObject) -> None:
        """A dump cut short or changed in one byte is refused, and the roster stays as it was."""
        roster = roster_of(*(spec(number) for number in range(5)))
        dumped = roster.dump()
        place = data.draw(st.integers(0, len(dumped) - 1))
        changed = bytes([dumped[place] ^ data.draw(st.integers(1, 255))])
        fresh = Roster(CurveForecaster())
        for damaged in (dumped[:place], dumped[:place] + changed + dumped[place + 1 :]):
            with pytest.raises(SnapshotError):
                fresh.restore(damaged)
        assert not fresh.ids
        assert len(fresh.order) == 0

    def test_other_forecasts_are_refused(self) -> None:
        """A dump of another forecaster is refused."""
        with pytest.raises(SnapshotError, match="CurveForecaster"):
            Roster(METHODS["last"](0)).restore(roster_of(spec(0)).dump())

    def test_only_jobs_under_way_are_kept(self) -> None:
        """The size of a dump depends on the active jobs, not on those that have ended."""
        roster = roster_of(*(JobSpec(id=str(n)) for n in range(2000)))
        ended = [JobEnded(job_id=str(n), at=1.0, state=JobState.COMPLETED) for n in range(1, 2000)]
        roster.absorb(ended)
        assert len(roster.dump()) < len(roster_of(*(JobSpec(id=str(n)) for n in range(100))).dump())


class TestPause:
    def test_a_paused_job_is_no_candidate(self) -> None:
        """From the next decision on a paused job holds nothing; resumed, it competes with the curve it had."""
        roster = roster_of(JobSpec(id="a"), JobSpec(id="b"))
        losses = [4.0, 3.0, 2.5, 2.2]
        for k, loss in enumerate(losses):
            seen = Observation(iteration=k, loss=loss, cpu_seconds=1.0, wall_seconds=1.0)
            roster.absorb([LossObserved(job_id=name, at=float(k), observation=seen) for name in "ab"])
        before = APPRAISER.appraise(roster, 4, 4.0)
        roster.hold(before.rows, granted({"a": 2, "b": 2}, [0.25, -0.25]), 4.0)
        roster.pause("a")
        during = APPRAISER.appraise(roster, 4, 5.0)
        assert during.candidates.ids == ("b",)
        roster.hold(during.rows, granted({"b": 4}), 5.0)
        row = roster.ids["a"]
        assert (roster.cores[row], roster.attained[row], roster.credit[row]) == (0, 2.0, 0.25)
        roster.hold(during.rows, granted({"b": 4}), 105.0)
        assert roster.attained[row] == 2.0
        roster.resume("a")
        after = APPRAISER.appraise(roster, 4, 106.0)
        assert after.candidates.ids == ("a", "b")
        np.testing.assert_array_equal(after.candidates.gain, before.candidates.gain)

    def test_all_may_be_paused(self) -> None:
        """If every job is paused there are no candidates, and no error."""
        roster = roster_of(JobSpec(id="a"))
        roster.pause("a")
        appraisal = APPRAISER.appraise(roster, 4, 0.0)
        assert TotalQuality().allocate(appraisal.candidates, 4).as_dict() == {}


def test_changes_count_from_the_next_decision() -> None:
    """A changed weight or limit appears among the candidates."""
    roster = roster_of(JobSpec(id="a", demand=Demand(most=8.0)), JobSpec(id="b"))
    roster.reweigh("a", 2.5)
    roster.relimit("a", 3)
    roster.relimit("b", None)
    candidates = APPRAISER.appraise(roster, 16, 0.0).candidates
    assert candidates.weight.tolist() == [2.5, 1.0]
    assert candidates.max_units[0] == 3
    assert candidates.max_units[1] > 16


def test_nonsense_is_refused() -> None:
    """An invalid weight, an invalid limit and an unknown job each raise their error."""
    roster = roster_of(JobSpec(id="a"))
    for weight in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(JobOptionError):
            roster.reweigh("a", weight)
    with pytest.raises(JobOptionError):
        roster.relimit("a", 0)
    for change in (roster.pause, roster.resume, lambda name: roster.reweigh(name, 1.0)):
        with pytest.raises(UnknownJobError):
            change("ghost")
    assert roster.weight[roster.ids["a"]] == 1.0


def test_owners_and_deadlines_reach_the_candidates() -> None:
    """Candidates carry their owners and the time left; the target of a deadline alone is 95% of the reduction."""
    roster = roster_of(
        JobSpec(id="a", owner="ann", deadline=50.0),
        JobSpec(id="b", owner="bob"),
        JobSpec(id="c", owner="ann", deadline=5.0, stop_at=0.5),
    )
    candidates = APPRAISER.appraise(roster, 4, 20.0).candidates
    assert [candidates.owners[number] for number in candidates.owner] == ["ann", "bob", "ann"]
    assert candidates.seconds_left.tolist() == [30.0, np.inf, -15.0]
    rows = roster.rows()
    np.testing.assert_array_equal(roster.stop_at[rows], [STOP_AT, np.nan, 0.5])


def test_usual_cores_are_a_mean_over_turns() -> None:
    """A job that holds one unit in every other epoch usually holds about half a unit."""
    roster = roster_of(JobSpec(id="a"))
    for epoch in range(40):
        roster.hold(roster.rows(), granted({"a": epoch % 2}), float(epoch))
    assert roster.usual_cores[roster.ids["a"]] == pytest.approx(0.5, abs=0.1)


def test_what_a_job_says_it_can_use_counts_for_more_than_what_it_was_seen_to_use() -> None:
    """A job that keeps one core busy is granted no more, until it says itself how many it can use."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="a"), 0.0)
    row = roster.ids["a"]
    roster.absorb([CpuUsed(job_id="a", at=1.0, cpu_seconds=1.0, parallel=1)])
    assert roster.most[row] == 1.0
    roster.absorb([DemandChanged(job_id="a", at=2.0, demand=Demand(least=1e6, most=4.0))])
    assert roster.most[row] == 4.0
    roster.absorb([CpuUsed(job_id="a", at=3.0, cpu_seconds=2.0, parallel=2)])
    assert roster.most[row] == 4.0
    roster.absorb([DemandChanged(job_id="a", at=4.0, demand=Demand(least=1e6))])
    assert roster.most[row] == 2.0
