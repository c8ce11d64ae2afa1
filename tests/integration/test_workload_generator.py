"""Laws of generated workloads."""

from pathlib import Path

import numpy as np
import pytest

from slaq.core.errors import UnknownNameError
from slaq.core.quality import first_and_best
from slaq.simulation.generator import ALGORITHMS, WorkloadShape, generate
from slaq.simulation.workload import Workload


def test_the_same_seed_gives_the_same_workload() -> None:
    """Chance is an argument, and the only one."""
    first, again, other = (generate(30, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_generated_workload_is_a_valid_file(tmp_path: Path) -> None:
    """What is generated passes the reader's checks and comes back the same."""
    workload = generate(60, np.random.default_rng(0))
    workload.write(tmp_path / "jobs.jsonl")
    assert Workload.read(tmp_path / "jobs.jsonl") == workload


def test_arrivals_and_costs_follow_the_load() -> None:
    """Mean time between arrivals, median and spread of costs, and the limits on cores are those asked for."""
    load = WorkloadShape(mean_arrival=5.0, median_cpu_seconds=300.0, sigma=0.5, max_cores=64)
    jobs = generate(3000, np.random.default_rng(3), load).jobs
    waits = np.diff([job.spec.arrival for job in jobs])
    assert jobs[0].spec.arrival == 0.0
    assert waits.mean() == pytest.approx(5.0, rel=0.06)
    assert waits.std() == pytest.approx(waits.mean(), rel=0.08)
    logs = np.log([job.total_cpu_seconds for job in jobs])
    assert np.median(logs) == pytest.approx(np.log(300.0), abs=0.05)
    assert logs.std() == pytest.approx(0.5, rel=0.06)
    assert {job.spec.demand.most for job in jobs} == {8, 16, 32, 64}


def test_one_core_is_the_least_limit() -> None:
    """On a machine of two cores nobody is limited to a quarter of one."""
    jobs = generate(40, np.random.default_rng(0), WorkloadShape(max_cores=2)).jobs
    assert {job.spec.demand.most for job in jobs} == {1, 2}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_curves_of_each_algorithm_improve_with_diminishing_returns(name: str) -> None:
    """Lengths are within bounds, the first half brings most of the fall, and only some algorithms rise."""
    shortest, longest = ALGORITHMS[name].iterations
    for job in generate(40, np.random.default_rng(7), algorithms=[name]):
        assert shortest <= job.iterations <= longest
        assert np.isfinite(job.losses).all()
        first, best = first_and_best(job.losses)
        middle = job.losses[: len(job.losses) // 2].min()
        assert first - middle > 0.6 * (first - best) > 0
        if name not in ("LDA", "MLPC", "LinReg"):
            assert np.all(np.diff(job.losses) <= 0)


def test_every_algorithm_of_the_paper_appears() -> None:
    """The nine of Table 1, evenly."""
    workload = generate(900, np.random.default_rng(0))
    counts = [sum(job.algorithm == name for job in workload) for name in ALGORITHMS]
    assert len(counts) == 9
    assert min(counts) > 60


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    """The error lists the known ones."""
    with pytest.raises(UnknownNameError, match="did you mean 'SVM'"):
        generate(1, np.random.default_rng(0), algorithms=["SVN"])


def test_an_empty_workload_can_be_asked_for() -> None:
    """No job is a number of jobs."""
    assert len(generate(0, np.random.default_rng(0))) == 0
