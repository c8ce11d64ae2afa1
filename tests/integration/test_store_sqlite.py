"""Laws of the durable store beyond the contract: what is kept, how it is read back, and what a restart sees."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.decision import Decision
from slaq.core.demand import Demand
from slaq.core.errors import UnknownJobError, UnknownNameError
from slaq.core.events import CapacityChanged, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite import packing as sqlite_packing
from slaq.stores.sqlite.records import JobFilters
from slaq.testing.store_contract import IN_MEMORY, decision, grant, observed
from slaq.testing.strategies import shared_law

#: The last of these may end.
IDS = ("a", "b", "c")
ACTIVE = (JobState.QUEUED, JobState.RUNNING)

_losses = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])
_observations = st.builds(
    Observation,
    iteration=st.integers(0, 6),
    loss=_losses,
    cpu_seconds=st.floats(0, 10),
    wall_seconds=st.floats(0, 10),
)
_losses_observed = st.builds(
    LossObserved,
    job_id=st.sampled_from(IDS),
    at=st.floats(0, 1e9),
    observation=_observations,
    metrics=st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=2),
)
_other_events = st.one_of(
    st.builds(
        LearningRateChanged, job_id=st.sampled_from(IDS), at=st.floats(0, 9), learning_rate=st.floats(0, 1)
    ),
    st.builds(
        JobEnded,
        job_id=st.just("c"),
        at=st.floats(0, 9),
        state=st.sampled_from([JobState.COMPLETED, JobState.FAILED]),
        reason=st.text(max_size=5),
    ),
    st.builds(CapacityChanged, at=st.floats(0, 9), capacity=st.integers(0, 9)),
)
# Mostly losses, as in life.
_events = st.one_of(_losses_observed, _losses_observed, _losses_observed, _other_events)
_log = st.lists(st.lists(_events, max_size=8) | st.integers(0, 9), max_size=6)


@contextmanager
def fresh_store(*ids: str) -> Iterator[SqliteStore]:
    """Hold a store of its own, with these jobs queued."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory, SqliteStore(Path(directory) / "slaq.db") as store:
        with store.epoch():
            for job_id in ids:
                store.submit(JobSpec(id=job_id))
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "slaq.db") as opened:
        yield opened


def write(store: SqliteStore, log: Sequence[Sequence[Event] | int]) -> None:
    """Append events, and record a decision of the epoch where the log has a number, all in one transaction."""
    with store.epoch():
        for entry in log:
            if isinstance(entry, int):
                store.record(decision(entry), grant())
            else:
                store.append(entry)


def text(value: object) -> str:
    """Return values for comparison: unlike themselves, NaNs are written alike."""
    return repr(value)


def everything(store: SqliteStore) -> str:
    """Return all that can be read of jobs, losses, decisions and the log."""
    ids = [row.id for row in store.rows()]
    return text(
        (
            store.rows(),
            [(store.events(one), store.observations(one), store.allocations(one)) for one in ids],
            (store.decisions(), store.cluster_events(), list(store.events_since(0)), store.snapshot()),
            (store.seq, store.last_time(), store.meta("key")),
        )
    )


@given(log=_log)
def test_what_was_written_is_there_after_a_restart(log: list[list[Event] | int]) -> None:
    """Closing and opening a store changes nothing that can be read of it."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        path = Path(directory) / "slaq.db"
        with SqliteStore(path) as store:
            for job_id in IDS:
                store.submit(JobSpec(id=job_id))
            write(store, log)
            store.save_snapshot(b"state", at=1.0)
            store.set_meta("key", "value")
            before = everything(store)
        with SqliteStore(path) as store:
            assert everything(store) == before
            assert store.check() == []


@given(batches=st.lists(st.lists(_events, max_size=8), max_size=5))
def test_each_iteration_counts_once_and_the_row_keeps_step(batches: list[list[Event]]) -> None:
    """The first report of an iteration is kept, and the row is what those reports say together."""
    with fresh_store(*IDS) as store:
        write(store, batches)
        for job_id in IDS:
            kept: dict[int, LossObserved] = {}
            for event in (event for batch in batches for event in batch):
                if isinstance(event, LossObserved) and event.job_id == job_id:
                    kept.setdefault(event.observation.iteration, event)
            row, curve = store.job(job_id), store.observations(job_id)
            in_order = [kept[iteration] for iteration in sorted(kept)]
            assert curve.iteration.tolist() == sorted(kept)
            assert text(curve.loss.tolist()) == text([one.observation.loss for one in in_order])
            assert list(curve.metrics) == [one.metrics for one in in_order]
            finite = [e.observation.loss for e in in_order if math.isfinite(e.observation.loss)]
            assert row.iteration == max(kept, default=-1)
            assert row.best_loss == min(finite, default=None)
            assert (row.first_loss in finite) if finite else row.first_loss is None
            last = in_order[-1].observation.loss if in_order else math.nan
            assert row.loss == (last if math.isfinite(last) else None)
            assert row.cpu_seconds == pytest.approx(sum(e.observation.cpu_seconds for e in in_order))


@given(log=_log, cut=st.integers(0, 6))
def test_a_restart_reads_what_came_after_its_snapshot_as_it_came(
    log: list[list[Event] | int], cut: int
) -> None:
    """What is read from a place in the log on is the end of what is read from its beginning."""
    with fresh_store(*IDS) as store:
        write(store, log[:cut])
        place = store.seq
        write(store, log[cut:])
        whole = list(store.events_since(0))
        store.save_snapshot(b"", at=0.0, seq=0)
        assert text(list(store.events_since(0))) == text(whole)
        assert text(list(store.events_since(place))) == text([one for one in whole if one.seq > place])
        assert [len(one.events) > 0 for one in whole] == [one.decision is None for one in whole]


def test_a_restart_reads_losses_of_unfinished_jobs_only(store: SqliteStore) -> None:
    """Of a job that has ended, only its end is of interest; decisions come with what they left owed."""
    for job_id in ("a", "b"):
        store.submit(JobSpec(id=job_id))
    store.append([observed("a", 0), observed("b", 0)])
    end = JobEnded(job_id="b", at=2.0, state=JobState.COMPLETED)
    store.append([observed("a", 1), observed("b", 1), end])
    owed = replace(
        grant(), credit=np.array([0.25]), size_credit=np.array([1.5]), owner_credit=np.array([-0.5])
    )
    store.record(decision(1), owed)
    first, second, third = store.events_since(0)
    assert list(first.events) == [observed("a", 0)]
    assert list(second.events) == [observed("a", 1), end]
    assert third.grant is not None
    assert third.grant.as_dict() == {"a": 4.0}
    assert third.grant.credit.tolist() == [0.25]
    assert third.grant.size_credit.tolist() == [1.5]
    assert third.grant.owner_credit.tolist() == [-0.5]


def test_a_job_ends_once(store: SqliteStore) -> None:
    """The first end is the one that counts, and lets go of its cores."""
    store.submit(JobSpec(id="a"))
    store.started("a", 0.0)
    store.record(decision(0), grant())
    store.append([JobEnded(job_id="a", at=5.0, state=JobState.FAILED, reason="out of memory")])
    store.append([JobEnded(job_id="a", at=6.0, state=JobState.COMPLETED)])
    row = store.job("a")
    assert (row.state, row.reason, row.ended_at, row.cores) == (JobState.FAILED, "out of memory", 5.0, 0)
    assert store.allocations("a") == [(0.0, 4), (5.0, 0)]
    assert len(store.events("a")) == 1


def test_only_changes_of_cores_are_kept(store: SqliteStore) -> None:
    """A decision that leaves a job what it has adds nothing; one that does not name it takes everything."""
    store.submit(JobSpec(id="a"))
    for epoch, cores in enumerate([0.25, 0.25, 3.0]):
        taken = replace(decision(epoch), cores=np.array([cores]), loss=np.array([0.25]))
        store.record(taken, grant())
    store.record(replace(decision(3), ids=("b",)), grant())
    assert store.allocations("a") == [(0.0, 0.25), (6.0, 3), (9.0, 0)]
    assert store.allocations("a", since=1.0, limit=1) == [(6.0, 3)]
    assert (store.job("a").cores, store.job("a").reduction) == (0, 0.75)


def test_a_job_run_from_the_beginning_begins_another_curve(store: SqliteStore) -> None:
    """Its iterations count from the beginning again, and the curve of before can still be read."""
    store.submit(JobSpec(id="a"))
    assert store.begin_attempt("a", at=1.0) == 1
    store.append([observed("a", 0), observed("a", 1)])
    place = store.seq
    assert store.begin_attempt("a", at=2.0, log_start=99, fresh_curve=True) == 2
    row = store.job("a")
    assert (row.curve, row.iteration, row.loss, row.attempt_log_start) == (1, -1, None, 99)
    assert row.curve_seq > place
    store.append([replace(observed("a", 0), at=7.0)])
    assert store.observations("a").at.tolist() == [7.0]
    assert store.observations("a", curve=0).at.tolist() == [0.0, 1.0]
    assert len(store.events("a")) == 3
    assert [len(one.events) for one in store.events_since(0)] == [1]


def test_a_job_that_goes_on_keeps_its_curve(store: SqliteStore) -> None:
    """What it reports again after its checkpoint counts once; its first start stays its start."""
    store.submit(JobSpec(id="a"))
    store.begin_attempt("a", at=1.0)
    store.append([observed("a", iteration) for iteration in range(6)])
    assert store.begin_attempt("a", at=9.0, first_iteration=4, log_start=512) == 2
    store.append([observed("a", iteration) for iteration in range(4, 9)])
    row = store.job("a")
    assert store.observations("a").iteration.tolist() == list(range(9))
    assert (row.started_at, row.attempts, row.attempt_first_iteration) == (1.0, 2, 4)


def test_an_epoch_is_kept_whole_or_not_at_all(store: SqliteStore) -> None:
    """An error in the middle undoes all that was written in it, and the place in the log."""
    store.submit(JobSpec(id="a"))
    before = everything(store)

    def fail() -> None:
        with store.epoch():
            store.append([observed("a", 0)])
            store.record(decision(1), grant())
            store.submit(JobSpec(id="b"))
            assert len(store.rows()) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert everything(store) == before


def test_what_fails_inside_an_epoch_leaves_the_rest_of_it(store: SqliteStore) -> None:
    """A refused batch leaves no trace; what was written before and after it is kept."""
    store.submit(JobSpec(id="a"))
    with store.epoch():
        store.append([observed("a", 0)])
        with pytest.raises(UnknownJobError):
            store.append([observed("a", 1), observed("nobody", 0)])
        store.append([observed("a", 2)])
    assert store.observations("a").iteration.tolist() == [0, 2]
    assert store.seq == 2


def test_what_fails_halfway_inside_an_epoch_is_undone(store: SqliteStore) -> None:
    """A job that cannot be written down whole is not there at all, and the epoch goes on."""
    with store.epoch():
        with pytest.raises(TypeError):
            store.submit_job(JobSpec(id="a"), owner="", submission={"command": object()}, at=9.0)
        store.submit(JobSpec(id="b"))
    assert [row.id for row in store.rows()] == ["b"]


def test_a_loss_that_came_late_is_read_again_after_a_restart(store: SqliteStore) -> None:
    """An earlier iteration reported after the snapshot stands behind a later one reported before it."""
    store.submit(JobSpec(id="a"))
    store.append([observed("a", 5)])
    store.save_snapshot(b"", at=0.0)
    store.append([observed("a", 3)])
    assert [list(one.events) for one in store.events_since(store.seq - 1)] == [[observed("a", 3)]]


def test_nobody_sees_an_epoch_before_its_end(store: SqliteStore) -> None:
    """Other threads read the state before it, without waiting."""
    store.submit(JobSpec(id="a"))
    seen: list[int] = []
    with store.epoch():
        store.append([observed("a", 0)])
        reader = threading.Thread(target=lambda: seen.append(store.job("a").iteration))
        reader.start()
        reader.join(60)
    assert seen == [-1]
    assert store.job("a").iteration == 0


def test_threads_write_and_read_at_once(store: SqliteStore) -> None:
    """Nothing is lost between threads, and each reader sees whole batches only."""
    ids = [f"job-{number}" for number in range(4)]
    for job_id in ids:
        store.submit(JobSpec(id=job_id))
    torn: list[int] = []

    def append(job_id: str) -> None:
        for start in range(0, 100, 5):
            store.append([observed(job_id, iteration) for iteration in range(start, start + 5)])

    def read() -> None:
        for _ in range(50):
            torn.extend(len(store.observations(job_id).loss) for job_id in ids)

    threads = [threading.Thread(target=append, args=(job_id,)) for job_id in ids]
    threads += [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert [len(store.observations(job_id).loss) for job_id in ids] == [100] * 4
    assert [count for count in torn if count % 5] == []


def test_a_started_job_is_running_and_a_paused_one_is_not_queued(store: SqliteStore) -> None:
    """Jobs wait by arrival, then by submission; one that is started or paused no longer waits to be started."""
    for job_id, arrival in [("late", 5.0), ("held", 1.0), ("b", 2.0), ("a", 2.0)]:
        store.submit(JobSpec(id=job_id, arrival=arrival))
    store.change("held", paused=True)
    assert [spec.id for spec in store.queued()] == ["b", "a", "late"]
    store.started("b", 3.0)
    assert [spec.id for spec in store.queued()] == ["a", "late"]
    assert (store.job("b").state, store.job("b").started_at) == (JobState.RUNNING, 3.0)
    store.change("held", paused=False)
    assert [spec.id for spec in store.queued()] == ["held", "a", "late"]


def test_a_submission_comes_back_as_it_was_given(store: SqliteStore) -> None:
    """Whatever JSON holds is kept word for word, and can be searched by its tags."""
    asked = {
        "command": ["train", "--größe", "3"],
        "env": {"A": "b\n"},
        "tags": ["night", "öffentlich"],
        "deadline": None,
    }
    spec = JobSpec(id="a", trains=False, weight=0.1 + 0.2, deadline=1e12, owner="mia")
    row = store.submit_job(spec, owner="mia", submission=asked, at=1e9 + 0.125)
    assert (row.spec, dict(row.submission), row.owner) == (spec, asked, "mia")
    assert (row.submitted_at, store.last_time()) == (1e9 + 0.125, 1e9 + 0.125)
    assert [one.id for one in store.rows(tag="öffentlich")] == ["a"]
    assert store.owners(["a", "nobody"]) == {"a": "mia"}
    assert store.rows(tag="nigh") == []


def test_bytes_that_are_no_text_do_no_harm(store: SqliteStore) -> None:
    """An environment keeps them; a reason shows them; nobody has a job, tag or owner of such a name."""
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    row = store.submit_job(JobSpec(id="a"), owner="", submission={"env": {"A": odd}}, at=0.0)
    assert row.submission["env"]["A"] == odd
    store.append([JobEnded(job_id="a", at=1.0, state=JobState.FAILED, reason=f"no file {odd}")])
    assert store.job("a").reason == r"no file caf\udce9"
    assert store.rows(owner=odd) == store.rows(tag=odd) == []
    with pytest.raises(UnknownJobError):
        store.job(odd)
    with pytest.raises(UnknownJobError):
        store.append([observed(odd, 0)])


def test_a_job_can_be_changed(store: SqliteStore) -> None:
    """Columns and fields of the spec change alike, arrival in the queue too; others are refused by name."""
    store.submit(JobSpec(id="a"))
    store.submit(JobSpec(id="b"))
    demand = Demand(most=0.5, sizes=(0.25, 0.5))
    row = store.change("a", weight=2.5, demand=demand, tags=["x"], reason="waits", arrival=8.0)
    assert (row.spec.weight, row.spec.demand, row.tags, row.reason) == (2.5, demand, ("x",), "waits")
    assert [(spec.id, spec.arrival) for spec in store.queued()] == [("b", 0.0), ("a", 8.0)]
    for name in ("wieght", "id", "number", "submission", "iteration"):
        with pytest.raises(UnknownNameError, match=name):
            store.change("a", **{name: 1})
    with pytest.raises(UnknownJobError):
        store.change("nobody", paused=True)


_jobs = st.lists(
    st.tuples(
        st.sampled_from(["mia", "tom"]), st.sampled_from(list(JobState)), st.sampled_from(["", "x", "xy"])
    ),
    max_size=12,
)


_filters = st.fixed_dictionaries(
    {},
    optional={
        "states": st.sets(st.sampled_from(list(JobState))),
        "owner": st.sampled_from(["mia", "tom", "ann"]),
        "tag": st.sampled_from(["x", "xy"]),
        "after_number": st.integers(0, 13),
        "before_number": st.integers(0, 13),
        "limit": st.integers(0, 13),
    },
)


@given(jobs=_jobs, filters=_filters)
def test_listings_are_what_their_filters_say(
    jobs: list[tuple[str, JobState, str]], filters: dict[str, Any]
) -> None:
    """Each filter leaves out exactly the jobs it does not fit; order is that of submission."""
    with fresh_store() as store, store.epoch():
        for number, (owner, state, tag) in enumerate(jobs, start=1):
            spec = JobSpec(id=f"job-{number}")
            store.submit_job(spec, owner=owner, submission={"tags": [tag] if tag else []}, at=0.0)
            store.change(spec.id, state=state)
        expected = [
            f"job-{number}"
            for number, (owner, state, tag) in enumerate(jobs, start=1)
            if state in filters.get("states", [state])
            and owner == filters.get("owner", owner)
            and tag == filters.get("tag", tag)
            and filters.get("after_number", 0) < number < filters.get("before_number", math.inf)
        ]
        assert [row.id for row in store.rows(**filters)] == expected[: filters.get("limit")]
        assert len(store.rows()) == len(jobs)


@given(
    ends=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12),
    since=st.integers(0, 6),
    submitted=st.integers(0, 12),
    last=st.integers(1, 12),
)
def test_the_last_jobs_are_those_that_ended_last(
    ends: list[int | None], since: int, submitted: int, last: int
) -> None:
    """Filters by time leave out what they say; of the others the last come, in order, and all are counted."""
    with fresh_store() as store, store.epoch():
        for number, end in enumerate(ends, start=1):
            store.submit_job(JobSpec(id=f"job-{number}"), owner="mia", submission={}, at=float(number))
            if end is not None:
                store.change(f"job-{number}", state=JobState.COMPLETED, ended_at=float(end))
        fitting = [
            (number if end is None else end, number)
            for number, end in enumerate(ends, start=1)
            if (end is None or end >= since) and number >= submitted
        ]
        about: JobFilters = {"ended_since": float(since), "submitted_since": float(submitted)}
        assert store.count(**about) == len(fitting)
        expected = sorted(number for _, number in sorted(fitting)[-last:])
        assert [row.number for row in store.rows(last=last, **about)] == expected


@given(
    name=st.sampled_from(["a", "a-b", "é%_*"]),
    ids=st.sets(
        st.sampled_from(["a", "a-", "a-2", "a-7", "a-b", "a-b-12", "a-b-3x", "a.9", "é%_*-4", "a-é", "a-03"])
    ),
)
def test_the_next_number_of_a_name_is_beyond_all_of_its_own(name: str, ids: set[str]) -> None:
    """Of all ids that are the name, a dash and digits, the largest number is found; without any it is 1."""
    with fresh_store() as store, store.epoch():
        for job_id in ids:
            store.submit(JobSpec(id=job_id))
        ends = [job_id.removeprefix(f"{name}-") for job_id in ids if job_id.startswith(f"{name}-")]
        assert store.last_number(name) == max((int(end) for end in ends if end.isdecimal()), default=1)


@given(lengths=st.lists(st.integers(0, 40), max_size=5), most=st.integers(1, 50))
def test_curves_of_many_jobs_are_those_of_each(lengths: list[int], most: int) -> None:
    """Read together, curves are what they are alone: whole up to `most`, else evenly spaced with first and last."""
    with fresh_store() as store, store.epoch():
        for job, length in enumerate(lengths):
            store.submit(JobSpec(id=f"job-{job}"))
            store.append([observed(f"job-{job}", i) for i in range(length)])
        found = store.curves([f"job-{job}" for job in reversed(range(len(lengths)))], most)
        for job, length in enumerate(lengths):
            iterations = [row[0] for row in found[f"job-{job}"]]
            if length <= most:
                assert iterations == list(range(length))
                assert [row[2] for row in found[f"job-{job}"]] == store.observations(
                    f"job-{job}"
                ).loss.tolist()
            else:
                assert len(iterations) <= most + 1
                assert (iterations[0], iterations[-1]) == (0, length - 1)
                assert len(set(np.diff(iterations[:-1]))) <= 1


def test_curves_can_be_read_in_part_and_thinned(store: SqliteStore) -> None:
    """After an iteration, so many, every nth; the last one is there in any case."""
    store.submit(JobSpec(id="a"))
    store.append([observed("a", iteration) for iteration in range(11)])

    def read(**options: int) -> list[int]:
        return [int(one) for one in store.observations("a", **options).iteration]

    assert read(after=7) == [8, 9, 10]
    assert read(after=2, limit=2) == [3, 4]
    assert read(every_nth=4) == [0, 4, 8, 10]
    assert read(after=10) == []
    with pytest.raises(UnknownJobError):
        store.observations("nobody")


def test_notice_numbers_are_never_used_twice(tmp_path: Path) -> None:
    """Blocks follow each other, also over restarts."""
    taken: list[int] = []
    for _ in range(3):
        with SqliteStore(tmp_path / "slaq.db") as store:
            taken += [*store.next_notice(4), *store.next_notice(2)]
    assert taken == list(range(1, 19))


_floats = st.floats(allow_nan=True, allow_infinity=True)


@given(data=st.data(), count=st.integers(0, 5))
def test_decisions_come_back_to_the_last_bit(data: st.DataObject, count: int) -> None:
    """All arrays and values of a decision are read back as they were, NaN and infinity included."""
    floats = st.lists(_floats, min_size=count, max_size=count).map(
        lambda one: np.array(one, dtype=np.float64)
    )
    given_decision = replace(
        decision(data.draw(st.integers(0, 2**40))),
        time=data.draw(st.floats(0, 1e10)),
        ids=tuple(data.draw(st.lists(st.text(), min_size=count, max_size=count))),
        cores=data.draw(floats),
        loss=data.draw(floats),
        gain=data.draw(floats),
        marginal=np.zeros(count),
        expected=data.draw(floats),
        diverged=np.arange(count) % 2 == 0,
    )
    back = sqlite_packing.unpack_decision(sqlite_packing.pack_decision(given_decision))
    for one in fields(Decision):
        before, after = getattr(given_decision, one.name), getattr(back, one.name)
        if isinstance(before, np.ndarray):
            assert (before.dtype, before.shape) == (after.dtype, after.shape)
            assert before.tobytes() == after.tobytes()
        else:
            assert before == after


def test_decisions_are_found_by_epoch(store: SqliteStore) -> None:
    """One by its epoch, the last one, or those after an epoch."""
    store.submit(JobSpec(id="a"))
    assert store.decision() is None
    for epoch in (3, 4, 9):
        store.record(decision(epoch), grant())

    def epoch_of(one: Decision | None) -> int | None:
        return None if one is None else one.epoch

    assert [epoch_of(store.decision(epoch)) for epoch in (None, 3, 5)] == [9, 3, None]
    assert [one.epoch for one in store.decisions_since(3)] == [4, 9]
    assert [one.epoch for one in store.decisions_since(-1, limit=1)] == [3]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"id": "a"}, JobSpec(id="a")),
        ({"id": "a", "trains": False, "weight": 2.0}, JobSpec(id="a", trains=False, weight=2.0)),
        ({"id": "a", "colour": "of a later version"}, JobSpec(id="a")),
    ],
)
def test_specs_of_other_versions_can_be_read(stored: dict[str, object], expected: JobSpec) -> None:
    """A field that a spec was stored without takes its default, and one nobody knows is passed over."""
    assert sqlite_packing.spec_of(json.dumps(stored)) == expected


Broken = Callable[[SqliteStore], object]


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.job("nobody"),
        lambda store: store.events("nobody"),
        lambda store: store.allocations("nobody"),
        lambda store: store.begin_attempt("nobody", at=0.0),
    ],
)
def test_a_job_nobody_submitted_is_unknown_everywhere(store: SqliteStore, ask: Broken) -> None:
    """Every question about it, and every order, names the id."""
    with pytest.raises(UnknownJobError, match="'nobody'"):
        ask(store)


# Groups


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "lr", "wd"]), st.sampled_from(["ann", "bob"]), st.booleans()),
        max_size=12,
    ),
    st.sampled_from(["lr", "wd"]),
    st.sampled_from([None, "ann"]),
)
@shared_law
def test_the_jobs_of_a_group_are_found(
    jobs: list[tuple[str | None, str, bool]], group: str, owner: str | None
) -> None:
    """By its name and its owner, in the order of submission, whatever other jobs there are."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder, SqliteStore(Path(folder) / "slaq.db") as store:
        for number, (name, whose, ended) in enumerate(jobs):
            spec = JobSpec(id=str(number))
            store.submit_job(spec, owner=whose, submission={"group": name}, at=float(number))
            if ended:
                store.append([JobEnded(job_id=spec.id, at=99.0, state=JobState.COMPLETED)])
        wanted = [
            str(number)
            for number, (name, whose, _) in enumerate(jobs)
            if name == group and owner in (None, whose)
        ]
        assert [row.id for row in store.rows(group=group, owner=owner)] == wanted
        assert [row.id for row in store.rows(list(JobState), limit=2, group=group, owner=owner)] == wanted[:2]
        assert store.count(group=group, owner=owner) == len(wanted)
        ended_ones = [one for one in wanted if jobs[int(one)][2]]
        assert [row.id for row in store.rows([JobState.COMPLETED], group=group, owner=owner)] == ended_ones


@pytest.mark.parametrize("given_owner", [None, "ann"])
def test_a_group_is_found_by_an_index(store: SqliteStore, given_owner: str | None) -> None:
    """However many jobs there are, those of a group are looked up, and no others are read."""
    ended = [state for state in JobState if state.ended]
    asked: list[str] = []
    with store._file.writing() as transaction:
        # Reads of the same thread go through this connection.
        db = transaction.db
        db.set_trace_callback(asked.append)
        store.rows(ended, group="lr", owner=given_owner)
        store.rows(ended[:1], group="lr", owner=given_owner)
        store.rows(ended, limit=100, group="lr", owner=given_owner)
        store.rows(ended, last=100, group="lr", owner=given_owner)
        store.count(ended, group="lr", owner=given_owner)
        db.set_trace_callback(None)
        queries = [query for query in asked if "group_name" in query]
        plans = [" ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}")) for query in queries]
    assert len(plans) == 5
    assert [plan for plan in plans if "jobs_by_group" not in plan or "SCAN jobs" in plan] == []
