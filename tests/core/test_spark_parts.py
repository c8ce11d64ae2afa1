"""Laws of the parts of the Spark engine that decide, without a Spark."""

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.engines.buckets import Bucket
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.spark.pools import LONGEST, SparkPool
from slaq.engines.spark.runs import PATIENCE, SILENCE, SparkJob, SparkRun
from slaq.engines.spark.shares import AHEAD, IDLE_ALLOWED, NOTHING, SCALE, Shares, settle, share_of, to_hold
from slaq.engines.spark.usage import Usage
from slaq.jobs.data import Dataset
from slaq.spark import _with_both

TOKENS = st.floats(-20, 20)
GRANTS = st.lists(st.tuples(st.floats(0, 8), TOKENS), min_size=1, max_size=6)


def buckets(grants: list[tuple[float, float]]) -> dict[str, Bucket]:
    made = {}
    for place, (cores, tokens) in enumerate(grants):
        bucket = made[str(place)] = Bucket()
        bucket.cores, bucket.tokens = cores, tokens
    return made


@given(GRANTS)
def test_shares_follow_grants_and_make_good_what_is_owed(grants: list[tuple[float, float]]) -> None:
    """A pool without a grant has no minimum share; the others have some, larger if they are owed more."""
    for bucket in buckets(grants).values():
        plain, steered = (share_of(bucket, how) for how in (Shares.POOLS, Shares.TOKENS))
        if bucket.cores == 0:
            assert plain == steered == NOTHING
            continue
        assert plain == (max(round(SCALE * bucket.cores), 1), 1)
        if bucket.tokens >= 0:
            assert steered.least >= plain.least
        elif bucket.tokens < -AHEAD * bucket.cores:
            assert steered.least == 0
            assert 1 <= steered.weight <= plain.least
        else:
            assert 1 <= steered.least <= plain.least


@given(GRANTS)
def test_settling_changes_no_difference_of_leads(grants: list[tuple[float, float]]) -> None:
    """Centring makes the tokens sum to 0 and keeps the differences between leads."""
    made = buckets(grants)
    granted = [bucket for bucket in made.values() if bucket.cores > 1e-3]
    if len(granted) != len([bucket for bucket in made.values() if bucket.cores > 0]) or not granted:
        return
    before = [bucket.tokens / bucket.cores for bucket in granted]
    settle(made.values())
    after = [bucket.tokens / bucket.cores for bucket in granted]
    assert sum(bucket.tokens for bucket in granted) == pytest.approx(0.0, abs=1e-6)
    assert [a - after[0] for a in after] == pytest.approx([b - before[0] for b in before], abs=1e-6)


def test_who_ran_ahead_waits_while_a_busy_one_is_behind() -> None:
    """A pool that ran ahead is held until it is ahead no longer; it does not wait for pools without tasks."""
    made = buckets([(4.0, 2.0), (2.0, -1.0), (2.0, -0.5 * AHEAD)])
    assert to_hold(made, [], busy=["0"]) == {"1"}
    assert to_hold(made, ["2"], busy=["0"]) == {"1", "2"}
    assert to_hold(made, [], busy=["1"]) == set()
    assert to_hold(made, ["0"], busy=["0"]) == set()
    held = ["1", "2"]
    assert to_hold(made, held, busy=["0"], idle=1.1 * IDLE_ALLOWED) == {"1"}
    assert to_hold(made, held, busy=["0"], idle=2.1 * IDLE_ALLOWED) == set()


class FakePool:
    """A pool whose number of running tasks is set by the test."""

    def __init__(self) -> None:
        self.tasks = 0

    def runningTasks(self) -> int:  # noqa: N802
        return self.tasks


@given(st.lists(st.integers(0, 8), min_size=2, max_size=40), st.floats(2, 8))
def test_a_pool_pays_for_the_slots_it_held(tasks: list[int], cores: float) -> None:
    """A pool pays the mean of two looks times the time between them, and earns its grant meanwhile."""
    pool = SparkPool(name="a", handle=FakePool())
    pool.bucket.grant(cores, 1.0, 1.0)
    used = 0.0
    for place, running in enumerate(tasks):
        pool.handle.tasks = running
        pool.look(1.0 + 0.05 * place, 1.0)
        used += 0.05 * (tasks[place - 1] + running) / 2 if place else 0.0
    assert pool.slot_seconds == pytest.approx(used)
    assert pool.slots_by(3.0) == pytest.approx(used + tasks[-1] * (3.0 - pool.looked_at))
    assert pool.bucket.tokens == pytest.approx(cores * 0.05 * (len(tasks) - 1) - used)


@given(st.floats(0.1, 4), st.floats(0.0, 30.0))
def test_what_an_iteration_overdraws_is_remembered_while_it_lasts(cores: float, seconds: float) -> None:
    """A pool goes into debt during a long iteration, to a limit, because other work ends no iteration."""
    pool = SparkPool(name="a", handle=FakePool())
    pool.bucket.grant(cores, 1.0, 1.0)
    pool.handle.tasks = 8
    for place in range(int(seconds / 0.05)):
        pool.look(1.0 + 0.05 * place, 1.0)
    lead = pool.bucket.tokens / cores
    owed = (pool.slot_seconds - cores * (pool.looked_at - 1.0)) / cores if pool.looked_at else 0.0
    assert lead == pytest.approx(-owed, abs=1e-6) or -(owed + 1e-6) <= lead <= -LONGEST


def test_a_job_is_silent_when_it_could_have_told_a_loss_and_did_not() -> None:
    """A job is not silent after few slot seconds, nor during a fit, unless the fit takes very long."""
    job = SparkJob(work=lambda spark, ctx: None, data=Dataset())
    pool = SparkPool(name="a", handle=FakePool())
    run = SparkRun(
        job_id="a",
        job=job,
        directory=Path(),
        pool=pool,
        started_at=0.0,
        journal=Journal(WallClock()),
        read_usage=lambda: None,
    )
    assert not run.is_silent(100.0), "it has not begun"
    run.began_at = 100.0
    assert not run.is_silent(101.0 + SILENCE), "it has had no slots"
    pool.slot_seconds = 2 * SILENCE
    assert run.is_silent(101.0 + SILENCE)
    run.begun.add(threading.current_thread())
    assert not run.is_silent(101.0 + SILENCE), "it fits what tells its loss"
    assert run.is_silent(101.0 + PATIENCE)
    run.followed = threading.current_thread()
    assert not run.is_silent(101.0 + PATIENCE), "it has told one"
    run.tells = False
    assert run.is_silent(101.0), "it fits what never does"


class FakeStages:
    """An application whose stages are set by the test."""

    def __init__(self) -> None:
        self.known: dict[int, dict[str, Any]] = {}

    def set(self, stage_id: int, status: str, cpu: float, pool: str = "a", attempt: int = 0) -> None:
        self.known[stage_id] = {
            "stageId": stage_id,
            "attemptId": attempt,
            "status": status,
            "schedulingPool": pool,
            "executorCpuTime": int(cpu * 1e9),
            "executorDeserializeCpuTime": 0,
        }

    def next_stage(self) -> int:
        return max(self.known, default=-1) + 1

    def stages_from(self, stage_id: int) -> list[dict[str, object]]:
        return [stage for key, stage in sorted(self.known.items()) if key >= stage_id]

    def stages(self, ids: list[int]) -> list[dict[str, object]]:
        return [self.known[stage_id] for stage_id in ids if stage_id in self.known]


def test_every_second_of_cpu_is_counted_once() -> None:
    """The usage of a stage grows until the stage ends, is forgotten by Spark, or begins a second attempt."""
    stages = FakeStages()
    usage = Usage(stages)
    stages.set(0, "COMPLETE", 1.0)
    stages.set(1, "ACTIVE", 2.0)
    stages.set(2, "PENDING", 0.0, "b")
    usage.read()
    usage.read()
    assert usage.cpu_seconds == {"a": 3.0, "b": 0.0}
    stages.set(1, "COMPLETE", 5.0)
    stages.set(2, "ACTIVE", 1.0, "b")
    stages.set(3, "ACTIVE", 0.5)
    usage.read()
    assert usage.cpu_seconds == {"a": 6.5, "b": 1.0}
    stages.set(2, "ACTIVE", 0.25, "b", attempt=1)
    del stages.known[3]
    usage.read()
    usage.read()
    assert usage.cpu_seconds == {"a": 6.5, "b": 1.25}


@pytest.mark.parametrize(
    ("work", "given"),
    [
        (lambda spark: ("one", spark), ("one", "S")),
        (lambda spark, ctx: ("two", spark, ctx), ("two", "S", "C")),
        (lambda spark, depth=3: ("default", spark, depth), ("default", "S", 3)),
        (lambda *arguments: ("any", *arguments), ("any", "S")),
        (str, "S"),
    ],
)
def test_work_is_called_with_what_it_requires(work: Any, given: Any) -> None:
    """A function is given the session, and the context too if its second argument has no default."""
    assert _with_both(work)("S", "C") == given
