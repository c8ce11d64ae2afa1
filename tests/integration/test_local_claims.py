"""Who gets the next free core, decided in virtual time: no process runs anything."""

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.engines.node.programs.core_arbiter import ALLOWANCE, NOBODY, UNFAIR, CoreArbiter
from slaq.engines.node.programs.driver_handle import MOMENT, DriverHandle, Turn
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.programs.program_run import ProgramRun
from slaq.engines.node.programs.shared_data import Segment
from slaq.jobs.data import Dataset

#: Units of the one core there is, and the length of an epoch.
UNITS, EPOCH = 32, 1.0


@pytest.fixture(scope="module")
def segment() -> Iterator[Segment]:
    segment = Segment(Dataset())
    yield segment
    segment.close()


def some(count: int, segment: Segment, tasks: int = 1) -> list[ProgramRun]:
    job = ProgramJob(program=b"", data=Dataset(), partitions=1)
    runs = []
    for number in range(count):
        run = ProgramRun(
            number=number,
            job_id=str(number),
            job=job,
            segment=segment,
            directory=Path(),
            log=-1,
            driver=DriverHandle(turn=Turn.MAPS),
        )
        run.map.queue.extend(range(tasks))
        run.bucket.learn(0.01)
        runs.append(run)
    return runs


def granted(runs: Sequence[ProgramRun], units: Sequence[int]) -> CoreArbiter:
    arbiter = CoreArbiter({run.job_id: run for run in runs}, lambda: 1.0, EPOCH)
    cores = {run.job_id: one / UNITS for run, one in zip(runs, units, strict=True)}
    arbiter.grant(cores, sum(cores.values()), 0.0)
    return arbiter


def leads(runs: Sequence[ProgramRun]) -> list[float]:
    return [run.bucket.lead() for run in runs]


def between(values: Sequence[float]) -> list[float]:
    return [value - values[0] for value in values]


#: Of each job: its units, and the CPU it has used in the first second.
jobs = st.lists(st.tuples(st.integers(1, UNITS), st.floats(0.0, 1.5)), min_size=1, max_size=8)


@given(jobs, st.data())
def test_a_free_core_goes_to_the_longest_lead_among_those_that_want_one(
    segment: Segment, asked: list[tuple[int, float]], data: st.DataObject
) -> None:
    """For a task or for a turn of its driver; to nobody where none wants it, or all would have to borrow."""
    runs = some(len(asked), segment)
    arbiter = granted(runs, [units for units, _ in asked])
    for run, (_, used) in zip(runs, asked, strict=True):
        run.bucket.pay(used)
        wish = data.draw(st.sampled_from(["nothing", "task", "turn"]))
        if wish != "task":
            run.map.queue.clear()
        if wish == "turn":
            run.driver.turn = Turn.WAITS
    arbiter.fill(1.0)
    before = leads(runs)
    wanting = [before[run.number] for run in runs if run.wants_core]
    # One unit that is left over counts as granted.
    lends = sum(units for units, _ in asked) > UNITS - 2
    chosen, _ = arbiter.choose(1.0)
    if wanting and (lends or max(wanting) >= -ALLOWANCE):
        assert chosen is not None
        assert chosen.wants_core
        assert before[chosen.number] == max(wanting)
    else:
        assert chosen is None
        assert leads(runs) == before


@given(jobs)
def test_what_is_lent_costs_nothing(segment: Segment, asked: list[tuple[int, float]]) -> None:
    """All are forgiven what the borrower lacks, so that no job gains on another by it."""
    runs = some(len(asked), segment)
    arbiter = granted(runs, [UNITS] * len(runs))
    for run, (_, used) in zip(runs, asked, strict=True):
        run.bucket.pay(1.0 + used)
    arbiter.fill(1.0)
    before = leads(runs)
    chosen, _ = arbiter.choose(1.0)
    assert chosen is not None
    assert chosen.bucket.lead() == pytest.approx(0.0)
    assert between(leads(runs)) == pytest.approx(between(before))


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.lists(st.floats(0.001, 0.05), min_size=4, max_size=4),
)
def test_none_runs_beyond_its_allowance_where_programs_may_not_borrow(
    segment: Segment, units: list[int], costs: list[float]
) -> None:
    """Part of the core is granted to no program: at any time each has used its grant, the allowance, one task."""
    runs = some(len(units), segment)
    arbiter = granted(runs, units)
    used = [0.0] * len(runs)
    now = 0.0
    while now < 5.0:
        run, _ = arbiter.choose(now)
        if run is None:
            now += 0.01
            continue
        cost = costs[run.number]
        run.bucket.learn(cost)
        run.bucket.pay(cost)
        used[run.number] += cost
        assert used[run.number] <= run.bucket.cores * (now + ALLOWANCE) + cost + 1e-9
        now += cost


def test_a_core_is_kept_for_one_that_is_away_for_a_moment(segment: Segment) -> None:
    """As long as it may come back with the better claim; then, or where turns are long, another gets the core."""
    away, other = runs = some(2, segment)
    arbiter = granted(runs, [UNITS // 2, UNITS // 2])
    other.bucket.pay(UNFAIR)
    away.map.queue.clear()
    away.driver.turn, away.driver.resumed_at = Turn.RUNS, 1.0
    back = 1.0 + MOMENT
    assert arbiter.choose(1.0) == (None, back)
    assert arbiter.choose(back) == (other, inf)
    away.driver.usual_seconds = MOMENT
    assert arbiter.choose(1.001) == (other, inf)


def test_few_tasks_are_not_given_ahead(segment: Segment) -> None:
    """A job with fewer tasks than there are workers, or a driver, waits until a core is really free."""
    (run,) = runs = some(1, segment, tasks=2)
    arbiter = granted(runs, [UNITS])
    assert arbiter.choose(1.0, least=3) == NOBODY
    assert arbiter.choose(1.0, least=2) == (run, inf)
    run.map.queue.clear()
    run.driver.turn = Turn.WAITS
    assert arbiter.choose(1.0, least=2) == NOBODY
    assert arbiter.choose(1.0) == (run, inf)


def test_who_is_granted_nothing_gets_nothing(segment: Segment) -> None:
    """Even where nobody else wants the core."""
    runs = some(2, segment)
    arbiter = granted(runs, [0, UNITS])
    runs[1].map.queue.clear()
    assert arbiter.choose(1.0) == NOBODY


@given(jobs)
def test_a_lead_that_all_who_work_have_is_no_claim(segment: Segment, asked: list[tuple[int, float]]) -> None:
    """On a machine that delivers less than was promised all lose as much, and shares stay as they were."""
    runs = some(len(asked), segment)
    arbiter = granted(runs, [units for units, _ in asked])
    for run, (_, used) in zip(runs, asked, strict=True):
        run.bucket.pay(used)
    arbiter.fill(1.0)
    before = leads(runs)
    arbiter.settle()
    assert min(leads(runs)) == pytest.approx(min(0.0, *before))
    assert between(leads(runs)) == pytest.approx(between(before))
