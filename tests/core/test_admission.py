"""Laws of admission: one place decides which queued jobs start, and says why the others wait."""

from hypothesis import given
from hypothesis import strategies as st

from slaq.core.admission import (
    Admission,
    DescriptorRoom,
    MemoryRoom,
    MostJobs,
    MostJobsOfOwner,
)
from slaq.core.demand import Demand
from slaq.core.job import JobSpec, JobState

specs = st.lists(
    st.tuples(st.floats(0.0, 100.0), st.sampled_from("abc"), st.integers(0, 8)), max_size=12
).map(
    lambda rows: [
        JobSpec(id=str(place), arrival=arrival, owner=owner, demand=Demand(memory=memory * 10**9 or None))
        for place, (arrival, owner, memory) in enumerate(sorted(rows))
    ]
)


@given(specs, st.floats(0.0, 100.0), st.integers(0, 5), st.integers(0, 3), st.integers(1, 20))
def test_no_rule_is_broken_and_every_job_that_waits_has_its_reason(
    queued: list[JobSpec], now: float, most: int, each: int, gigabytes: int
) -> None:
    """Jobs that start are due and keep to every rule; every other job waits with a sentence."""
    rules = (MostJobs(lambda: most), MostJobsOfOwner(lambda _: each), MemoryRoom(lambda: gigabytes * 10**9))
    admission = Admission(rules=rules)
    review = admission.review(lambda: queued, now)
    due = [spec for spec in queued if spec.arrival <= now]
    assert {spec.id for spec in review.start} | review.held.keys() == {spec.id for spec in due}
    assert not {spec.id for spec in review.start} & review.held.keys()
    assert all(review.held.values())
    waiting = [spec for spec in queued if spec not in review.start]
    reasons = admission.reasons(review, waiting, now)
    assert reasons.keys() == {spec.id for spec in waiting}
    assert all(reasons.values())
    assert review.held.items() <= reasons.items()
    running = admission.running
    assert len(running.jobs) <= most
    assert all(count <= each for count in running.by_owner.values())
    declared = [spec for spec in running.jobs.values() if spec.demand.memory]
    assert running.memory <= gigabytes * 10**9 or len(declared) == 1


@given(specs)
def test_nothing_is_held_where_nothing_speaks_against_it(queued: list[JobSpec]) -> None:
    """Without rules every job that is due starts, in the order of arrival."""
    review = Admission().review(lambda: queued, 1e9)
    assert [spec.id for spec in review.start] == [spec.id for spec in queued]
    assert not review.held


@given(specs, st.integers(1, 3))
def test_jobs_held_back_start_as_others_end(queued: list[JobSpec], most: int) -> None:
    """Every job starts in the end, once, while no more than may run at a time."""
    admission, waiting, started = Admission(rules=(MostJobs(lambda: most),)), list(queued), []
    for _ in range(2 * len(queued) + 1):
        review = admission.review(lambda: waiting, 1e9)
        for spec in review.start:
            waiting.remove(spec)
            started.append(spec.id)
        assert len(admission.running.jobs) <= most
        for job_id in list(admission.running.jobs):
            admission.running.end(job_id)
    assert sorted(started) == sorted(spec.id for spec in queued)


def test_a_job_waits_for_those_it_comes_after() -> None:
    """A job starts once the jobs it comes after have ended; an id that is neither queued nor running is ignored."""
    first, then = JobSpec(id="first"), JobSpec(id="then", after=("first", "gone"))
    admission, queued = Admission(), [first, then]
    review = admission.review(lambda: queued, 0.0)
    assert [spec.id for spec in review.start] == ["first"]
    assert review.held == {"then": "waits for job 'first' to complete"}
    assert admission.review(lambda: [then], 1.0).held
    admission.running.end("first")
    assert [spec.id for spec in admission.review(lambda: [then], 2.0).start] == ["then"]


def test_a_job_never_starts_after_one_that_did_not_end_well() -> None:
    """Whatever it waits for besides, it is refused once one of them failed, diverged or was cancelled."""
    states = {"well": JobState.COMPLETED, "ill": JobState.FAILED, "gone": None}
    admission = Admission(ended=states.get)
    specs = [
        JobSpec(id="1", after=("well", "gone")),
        JobSpec(id="2", after=("well", "ill")),
        JobSpec(id="3", after_any=("well", "ill")),
        JobSpec(id="4", after=("ill", "1")),
    ]
    review = admission.review(lambda: specs, 0.0)
    assert [spec.id for spec in review.start] == ["1", "3"]
    told = "was to start after job 'ill' completed, which has failed"
    assert review.refused == {"2": told, "4": told}
    assert admission.reasons(review, specs[3:], 1.0) == {"4": review.refused["4"]}
    for state, word in ((JobState.DIVERGED, "diverged"), (JobState.CANCELLED, "been cancelled")):
        states["ill"] = state
        refused = admission.review(lambda: specs[1:2], 1.0).refused
        assert refused == {"2": f"was to start after job 'ill' completed, which has {word}"}


def test_a_job_that_is_not_due_says_when_and_one_that_is_new_waits_for_the_next_review() -> None:
    """The moment is written as the scheduler's clock is read; a job that no review has seen is not called late."""
    admission = Admission(written=lambda moment: f"day {moment:g}")
    later = JobSpec(id="later", arrival=9.0)
    review = admission.review(lambda: [later], 1.0)
    assert admission.reasons(review, [later, JobSpec(id="new")], 2.0) == {
        "later": "is not due before day 9",
        "new": "waits for the next decision",
    }


def test_reasons_say_what_is_missing() -> None:
    """Each sentence names the limit that a job waits for."""
    admission = Admission(rules=(DescriptorRoom(each=10, there_are=lambda: 25),))
    queued = [JobSpec(id=str(place)) for place in range(3)]
    assert admission.review(lambda: queued, 0.0).held == {
        "2": "waits for file descriptors: 25 are enough for 2 jobs"
    }
    for rule, reason in (
        (MostJobs(lambda: 0), "waits because no jobs may run now (concurrent is 0)"),
        (MostJobsOfOwner(lambda _: 0), "waits because no jobs of ann may run now (max_running is 0)"),
    ):
        closed = Admission(rules=(rule,)).review(lambda: [JobSpec(id="a", owner="ann")], 0.0)
        assert closed.held == {"a": reason}
    memory = Admission(rules=(MemoryRoom(lambda: 10 * 10**9),))
    large = [JobSpec(id=str(place), demand=Demand(memory=6 * 10**9)) for place in range(2)]
    assert memory.review(lambda: large, 0.0).held == {
        "1": "waits for memory: it needs 6 GB, and 4 GB are free"
    }
