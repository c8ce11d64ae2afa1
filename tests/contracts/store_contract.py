"""The laws of every Store and its History: subclass StoreContract and supply `open_store`."""

import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.errors import DuplicateJobError, SlaqError
from slaq.core.events import CapacityChanged, Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.ports import History, Store

#: Where files are kept in memory, for laws tried with many stores; None for the usual place.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class FullStore(Store, History, Protocol):
    """A store with its reading side, into which jobs can be submitted."""

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        ...


def decision(epoch: int) -> Decision:
    """Return some decision of that epoch."""
    one = np.ones(1)
    return Decision(
        epoch=epoch,
        time=3.0 * epoch,
        capacity=4,
        ids=("a",),
        units=np.array([4], dtype=np.int64),
        loss=one,
        gain=one,
        marginal=one,
        expected=one,
        expected_low=one,
        expected_high=one,
        diverged=np.zeros(1, dtype=bool),
        seconds=0.001,
    )


def allocation() -> Allocation:
    """Return the allocation of that decision."""
    return Allocation(ids=("a",), units=np.array([4], dtype=np.int64), credit=np.zeros(1))


def observed(job_id: str, iteration: int) -> LossObserved:
    """Return some observation of that iteration."""
    return LossObserved(
        job_id=job_id,
        at=float(iteration),
        observation=Observation(iteration=iteration, loss=1.0 / (1 + iteration)),
    )


_ARRIVALS = st.lists(st.floats(0, 100), max_size=8)


class StoreContract:
    """What every store promises."""

    @staticmethod
    def open_store(specs: Sequence[JobSpec]) -> FullStore:
        """Return a fresh store into which these jobs were submitted."""
        raise NotImplementedError

    # Every store runs the same law: that is what a contract is for.
    @settings(suppress_health_check=[HealthCheck.differing_executors])
    @given(arrivals=_ARRIVALS, moments=_ARRIVALS)
    def test_each_job_is_due_once_at_its_arrival(self, arrivals: list[float], moments: list[float]) -> None:
        """Whatever the moments asked for, each job comes in the first that is not before its arrival."""
        specs = [JobSpec(id=str(index), arrival=arrival) for index, arrival in enumerate(arrivals)]
        store = self.open_store(specs)
        previous = -1.0
        for moment in [*sorted(moments), 100.0]:
            due = store.due(moment)
            expected = sorted(
                (spec for spec in specs if previous < spec.arrival <= moment), key=lambda spec: spec.arrival
            )
            assert list(due) == expected
            previous = max(previous, moment)
            assert store.pending() == any(spec.arrival > previous for spec in specs)

    def test_a_job_submitted_late_is_still_due(self) -> None:
        """Jobs may be submitted at any time, even after their arrival."""
        store = self.open_store([JobSpec(id="a", arrival=5.0)])
        assert [spec.id for spec in store.due(10.0)] == ["a"]
        store.submit(JobSpec(id="b", arrival=1.0))
        assert store.pending()
        assert [spec.id for spec in store.due(10.0)] == ["b"]
        assert not store.pending()

    def test_an_id_belongs_to_one_job(self) -> None:
        """A second job of the same id is refused, and the first stays as it was."""
        first = JobSpec(id="a")
        store = self.open_store([first])
        with pytest.raises(DuplicateJobError, match="'a'"):
            store.submit(JobSpec(id="a", weight=2.0))
        assert list(store.jobs()) == [first]
        assert list(store.due(0.0)) == [first]

    def test_jobs_are_listed_in_the_order_of_submission(self) -> None:
        """Neither arrival nor id changes the order, nor does becoming due."""
        specs = [JobSpec(id="b", arrival=9.0), JobSpec(id="a", arrival=1.0), JobSpec(id="c")]
        store = self.open_store(specs)
        store.due(5.0)
        assert list(store.jobs()) == specs

    def test_events_are_kept_by_job_and_in_order(self) -> None:
        """What was appended is read back, whole and in order."""
        store = self.open_store([JobSpec(id="a"), JobSpec(id="b")])
        end = JobEnded(job_id="a", at=2.0, state=JobState.FAILED, reason="out of memory")
        store.append(
            [observed("a", 0), observed("b", 0), CapacityChanged(at=0.5, capacity=3), observed("a", 1)]
        )
        store.append([])
        store.append([end])
        assert list(store.events("a")) == [observed("a", 0), observed("a", 1), end]
        assert list(store.events("b")) == [observed("b", 0)]

    def test_events_are_kept_all_or_none(self) -> None:
        """One event of a job that nobody submitted, and none of the batch is kept."""
        store = self.open_store([JobSpec(id="a")])
        batch: list[Event] = [observed("a", 0), observed("nobody", 0)]
        with pytest.raises(SlaqError, match="nobody"):
            store.append(batch)
        assert list(store.events("a")) == []

    def test_decisions_are_kept_in_order(self) -> None:
        """Every decision is read back with its numbers."""
        store = self.open_store([JobSpec(id="a")])
        for epoch in range(3):
            store.record(decision(epoch), allocation())
        read = store.decisions()
        assert [(one.epoch, one.time, one.ids) for one in read] == [(e, 3.0 * e, ("a",)) for e in range(3)]
        assert all(one.units.tolist() == [4] for one in read)

    def test_a_job_that_never_wrote_one_has_no_checkpoint(self) -> None:
        """None says that the job starts afresh."""
        assert self.open_store([JobSpec(id="a")]).checkpoint("a") is None
