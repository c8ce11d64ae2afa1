"""The CPU time of a job is known whether or not it reports losses, adds up over attempts, and never decreases."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.bootstrap import make_forecaster
from slaq.cluster import Cluster
from slaq.core.events import CpuUsed, Event, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.roster import Roster
from slaq.jobs.context import Context
from slaq.service.service import Service
from slaq.stores.memory import MemoryStore
from slaq.stores.sqlite import SqliteStore
from tests.integration.opening import ME, in_state, python
from tests.integration.serving import until

#: Uses at least half a CPU second after its start.
BUSY = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.5: pass\n"


def used(store: SqliteStore) -> float:
    return store.job("a").cpu_seconds


def told(cpu: float) -> CpuUsed:
    return CpuUsed(job_id="a", at=0.0, cpu_seconds=cpu)


def lost(iteration: int, cpu: float) -> LossObserved:
    seen = Observation(iteration=iteration, loss=1.0, cpu_seconds=cpu)
    return LossObserved(job_id="a", at=0.0, observation=seen)


@given(events=st.lists(st.floats(0, 100) | st.floats(0, 100).map(str), max_size=20))
def test_a_row_holds_the_most_that_is_known(
    tmp_path_factory: pytest.TempPathFactory, events: list[float | str]
) -> None:
    """A job's CPU seconds are those of its losses, or what was told in all where that is more; never less."""
    with SqliteStore(tmp_path_factory.mktemp("store") / "slaq.db") as store:
        store.submit(JobSpec(id="a"))
        base = observed = most = 0.0
        for iteration, one in enumerate(events):
            if isinstance(one, str):
                observed += float(one)
                store.append([lost(iteration, float(one))])
                most = max(most, base + observed)
            else:
                store.append([told(one)])
                most = max(most, one)
            if iteration % 5 == 4:
                store.begin_attempt("a", at=0.0)
                base, observed = most, 0.0
            assert used(store) == pytest.approx(most)
        assert [type(event) for event in store.events("a")] == [
            LossObserved for one in events if isinstance(one, str)
        ]


def test_a_history_leaves_it_out() -> None:
    """CPU seconds told without a loss are no part of what happened to a job."""
    store = MemoryStore([JobSpec(id="a")])
    store.append([told(1.0), lost(0, 1.0), told(2.0)])
    assert list(store.events("a")) == [lost(0, 1.0)]


@pytest.mark.parametrize("told_between", [(), (told(3.0),)])
def test_it_changes_no_decision(told_between: Sequence[Event]) -> None:
    """A roster that is told of CPU seconds between losses is the same as one that is not."""
    roster, other = (Roster(make_forecaster("slaq")) for _ in range(2))
    for one in (roster, other):
        one.admit(JobSpec(id="a"), 0.0)
    losses = [lost(iteration, 1.0) for iteration in range(30)]
    roster.absorb(losses)
    other.absorb([event for loss in losses for event in (loss, *told_between)])
    assert roster.dump() == other.dump()


def test_a_command_without_losses_has_cpu_seconds(open_service: Callable[..., Service]) -> None:
    """A service shows them while the command runs, after its end, and after a restart of the service."""
    service = open_service()
    runs = service.submit(ME, python("while True: pass")).id
    ends = service.submit(ME, python(BUSY)).id
    until(lambda: in_state(service, ME, ends, JobState.COMPLETED))
    shown = service.job(ME, ends).cpu_seconds
    assert shown >= 0.5
    until(lambda: service.job(ME, runs).cpu_seconds > 0.0)
    before = service.job(ME, runs).cpu_seconds
    again = open_service()
    assert again.job(ME, ends).cpu_seconds == shown
    assert again.job(ME, runs).cpu_seconds >= before
    until(lambda: again.job(ME, runs).cpu_seconds > before + 1.0)


def test_what_comes_after_the_last_loss_counts(open_service: Callable[..., Service]) -> None:
    """A command that reports losses has all its CPU seconds too, each once."""
    service = open_service()
    code = f"import slaq\nslaq.report(1.0)\n{BUSY}slaq.report(0.5)\n{BUSY}"
    job = service.submit(ME, python(code)).id
    until(lambda: in_state(service, ME, job, JobState.COMPLETED))
    losses = sum(one["cpu_seconds"] for one in service.observations(ME, job))
    assert max(losses, 1.0) <= service.job(ME, job).cpu_seconds <= 4.0


def test_a_program_without_losses_has_cpu_seconds(tmp_path: Path) -> None:
    """On an embedded cluster they are known while it runs, of its tasks too, and at its end."""

    def works(ctx: Context) -> int:
        def task(_: object) -> int:
            began = time.process_time()
            while time.process_time() < began + 0.5:
                pass
            return 1

        done = sum(map(int, ctx.map(task)))
        while not (tmp_path / "go").exists():
            done += sum(map(int, ctx.map(task)))
        return done

    with Cluster(1, epoch_seconds=0.1) as cluster:
        job = cluster.submit(works)
        until(lambda: job.cpu_seconds > 0.4)
        (tmp_path / "go").touch()
        least = 0.45 * job.result()
    assert job.losses == []
    assert job.cpu_seconds >= least


def test_attempts_add_up_on_a_cluster(tmp_path: Path) -> None:
    """A command that is run again after it failed has the CPU seconds of both attempts."""
    with Cluster(directory=tmp_path) as cluster:
        job = cluster.submit_command(["python", "-c", BUSY + "raise SystemExit(1)"], retry=1)
        job.wait()
    assert job.cpu_seconds >= 1.0
