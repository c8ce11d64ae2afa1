"""The laws of every store and its history: subclass StoreContract and supply `open_store`."""

import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.demand import Demand
from slaq.core.errors import DuplicateJobError, SlaqError
from slaq.core.events import CapacityChanged, CpuUsed, Event, JobDelayed, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.ports import History, Store
from slaq.testing.strategies import shared_law

#: Where files are kept in memory, for laws tried with many stores; None for the usual place.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class SubmittingStore(Store, History, Protocol):
    """A store with its reading side, into which jobs can be submitted."""

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        ...


def decision(epoch: int) -> Decision:
    """Return a decision of that epoch: job "a" holds 4 cores."""
    one = np.ones(1)
    return Decision(
        epoch=epoch,
        time=3.0 * epoch,
        capacity=4.0,
        unit=0.5,
        ids=("a",),
        cores=np.array([4.0]),
        loss=one,
        gain=one,
        marginal=one,
        expected=one,
        expected_low=one,
        expected_high=one,
        diverged=np.zeros(1, dtype=np.bool_),
        seconds=0.001,
    )


def grant() -> Grant:
    """Return the grant of that decision."""
    return Grant(ids=("a",), cores=np.array([4.0]), credit=np.zeros(1), size_credit=np.zeros(1))


def observed(job_id: str, iteration: int) -> LossObserved:
    """Return an observation of that iteration."""
    return LossObserved(
        job_id=job_id,
        at=float(iteration),
        observation=Observation(iteration=iteration, loss=1.0 / (1 + iteration)),
    )


class StoreContract:
    """The laws of `slaq.ports.Store` and `slaq.ports.History`."""

    @staticmethod
    def open_store(specs: Sequence[JobSpec]) -> SubmittingStore:
        """Return a fresh store into which these jobs were submitted."""
        raise NotImplementedError

    @shared_law
    @given(arrivals=st.lists(st.floats(0, 100), max_size=8), data=st.data())
    def test_jobs_are_queued_by_arrival_until_they_start(
        self, arrivals: list[float], data: st.DataObject
    ) -> None:
        """Whatever jobs start in whatever order, the others stay queued, by arrival and then by submission."""
        specs = [JobSpec(id=str(index), arrival=arrival) for index, arrival in enumerate(arrivals)]
        store = self.open_store(specs)
        waiting = sorted(specs, key=lambda spec: spec.arrival)
        for spec in data.draw(st.permutations(specs)):
            assert list(store.queued()) == waiting
            store.started(spec.id, 100.0)
            waiting.remove(spec)
        assert list(store.queued()) == []

    def test_asking_for_the_queue_changes_nothing(self) -> None:
        """A job is queued however often that is asked, even after its arrival."""
        spec = JobSpec(id="a")
        store = self.open_store([spec])
        assert [list(store.queued()) for _ in range(3)] == [[spec]] * 3

    def test_a_job_submitted_late_is_queued_at_its_arrival(self) -> None:
        """Jobs may be submitted at any time, even while others run, and even after their arrival."""
        store = self.open_store([JobSpec(id="a", arrival=1.0), JobSpec(id="c", arrival=5.0)])
        store.started("a", 2.0)
        store.submit(JobSpec(id="b", arrival=0.5))
        assert [spec.id for spec in store.queued()] == ["b", "c"]

    def test_an_id_belongs_to_one_job(self) -> None:
        """A second job of the same id is refused, and the first stays as it was."""
        first = JobSpec(id="a")
        store = self.open_store([first])
        with pytest.raises(DuplicateJobError, match="'a'"):
            store.submit(JobSpec(id="a", weight=2.0))
        assert list(store.jobs()) == [first]
        assert list(store.queued()) == [first]

    def test_jobs_are_listed_in_the_order_of_submission(self) -> None:
        """Neither arrival nor id changes the order, nor does a start."""
        specs = [JobSpec(id="b", arrival=9.0), JobSpec(id="a", arrival=1.0), JobSpec(id="c")]
        store = self.open_store(specs)
        store.started("a", 5.0)
        assert list(store.jobs()) == specs

    def test_specs_are_kept_whole(self) -> None:
        """Every field of a spec is read back as it was submitted."""
        demand = Demand(least=0.5, most=6.0, sizes=(1.0, 2.0, 4.0), memory=10**9)
        spec = JobSpec(
            id="a", trains=False, weight=2.5, demand=demand, target_loss=0.1, reserved=1.5, owner="ann",
            deadline=60.0, stop_at=0.9, after=("b", "c"), after_any=("d",), maximize=True, max_iterations=9,
        )  # fmt: skip
        store = self.open_store([spec])
        assert list(store.jobs()) == [spec]
        assert list(store.queued()) == [spec]

    def test_events_are_kept_by_job_and_in_order(self) -> None:
        """Events that were appended are read back, whole and in order."""
        store = self.open_store([JobSpec(id="a"), JobSpec(id="b")])
        end = JobEnded(job_id="a", at=2.0, state=JobState.FAILED, reason="out of memory")
        store.append(
            [observed("a", 0), observed("b", 0), CapacityChanged(at=0.5, capacity=3.0), observed("a", 1)]
        )
        store.append([])
        store.append([end])
        assert list(store.events("a")) == [observed("a", 0), observed("a", 1), end]
        assert list(store.events("b")) == [observed("b", 0)]

    def test_a_job_that_ended_in_the_queue_is_not_queued(self) -> None:
        """A job may end before it starts; then it no longer waits to be started."""
        store = self.open_store([JobSpec(id="a"), JobSpec(id="b")])
        store.append([JobEnded(job_id="a", at=1.0, state=JobState.CANCELLED, reason="not wanted any more")])
        assert [spec.id for spec in store.queued()] == ["b"]

    def test_passing_events_are_no_part_of_the_history(self) -> None:
        """A store takes events that say how things are now, and does not read them back."""
        store = self.open_store([JobSpec(id="a")])
        store.append(
            [
                CpuUsed(job_id="a", at=1.0, cpu_seconds=0.5),
                observed("a", 0),
                JobDelayed(job_id="a", at=1.0, reason="short of memory"),
            ]
        )
        assert list(store.events("a")) == [observed("a", 0)]

    def test_events_are_kept_all_or_none(self) -> None:
        """A batch with an event of a job that nobody submitted is refused, and nothing of it is kept."""
        store = self.open_store([JobSpec(id="a")])
        batch: list[Event] = [observed("a", 0), observed("nobody", 0)]
        with pytest.raises(SlaqError, match="nobody"):
            store.append(batch)
        assert list(store.events("a")) == []

    def test_decisions_are_kept_in_order(self) -> None:
        """Every decision is read back with its numbers."""
        store = self.open_store([JobSpec(id="a")])
        for epoch in range(3):
            store.record(decision(epoch), grant())
        read = store.decisions()
        assert [(one.epoch, one.time, one.ids) for one in read] == [(e, 3.0 * e, ("a",)) for e in range(3)]
        assert all(one.cores.tolist() == [4.0] and one.unit == 0.5 for one in read)
