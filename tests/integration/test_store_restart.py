"""The law that a restart rests on: the last snapshot and the log after it are the scheduler as it was."""

from pathlib import Path

import numpy as np
import pytest

from slaq.bootstrap import make_forecaster, make_policy
from slaq.core.appraisal import Appraiser
from slaq.core.job import JobSpec, JobState
from slaq.core.roster import Roster
from slaq.scheduler import Scheduler
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.workload import SimulatedJob, Workload
from slaq.stores.sqlite import SqliteStore

EPOCHS = 14


def jobs() -> Workload:
    """Return a few jobs of different owners that all arrive at once, some of which end soon."""
    made = generate(8, np.random.default_rng(3), WorkloadShape())
    return Workload(
        tuple(
            SimulatedJob(
                spec=JobSpec(id=job.spec.id, owner=f"owner-{number % 2}"),
                losses=job.losses[: 6 + 6 * number],
                cpu_seconds_per_iteration=0.6 * (number + 1),
            )
            for number, job in enumerate(made.jobs)
        )
    )


def restored(store: SqliteStore) -> Roster:
    """Return the roster of the last snapshot with all that came after it."""
    roster = Roster(make_forecaster("slaq"))
    kept = store.snapshot()
    assert kept is not None
    blob, seq = kept
    roster.restore(blob)
    for batch in store.events_since(seq):
        roster.absorb(batch.events)
        if batch.decision is not None:
            assert batch.grant is not None
            rows = np.array([roster.ids[job_id] for job_id in batch.decision.ids], dtype=np.int64)
            roster.hold(rows, batch.grant, batch.decision.time)
    return roster


@pytest.mark.parametrize("snapshot_after", [0, 3, EPOCHS - 1])
def test_a_snapshot_and_the_log_after_it_are_the_scheduler_as_it_was(
    tmp_path: Path, snapshot_after: int
) -> None:
    """Whenever the snapshot was taken, what is restored is bit for bit what was there, credits included."""
    workload = jobs()
    clock = VirtualClock()
    with SqliteStore(tmp_path / "slaq.db") as store:
        for job in workload.jobs:
            store.submit(job.spec)
        scheduler = Scheduler(
            engine=SimulatedEngine(workload, clock, 5),
            store=store,
            clock=clock,
            policy=make_policy("total-quality"),
            appraiser=Appraiser(epoch_seconds=3.0),
            roster=Roster(make_forecaster("slaq")),
        )
        for epoch in range(EPOCHS):
            with store.epoch():
                assert scheduler.run_epoch() is not None
                if epoch == snapshot_after:
                    store.save_snapshot(scheduler.roster.dump(), at=clock.now())
            scheduler.wait()
        assert restored(store).dump() == scheduler.roster.dump()
        states = {row.state for row in store.rows()}
        assert states == {JobState.RUNNING, JobState.COMPLETED}
