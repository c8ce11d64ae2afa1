"""Laws of the replication's real runs: what is recorded, what is planned, and how it is measured."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.recorded_curves import AHEAD, RecordedCurve, every_place, forecasts, truths
from replication.catalogue import ACRONYMS, trainings
from replication.convergence import normalised_change
from replication.crowd import PROBE, QUICK, Probe, plan
from replication.diminishing_returns import course
from replication.experiment import CURVES, Settings, recorded_runs
from replication.forecast_errors import stratified
from replication.intervals import estimate, listed
from replication.iteration_cost import fitted, layer_sizes, predicted
from replication.quiet import busy_share, noise
from replication.record_curves import record
from slaq import Cluster, Context, Dataset, forecast
from slaq.algorithms import ALGORITHMS
from slaq.core.forecast import METHODS
from slaq.core.job import Observation
from slaq.jobs.inline import InlineContext


def test_the_recorded_runs_are_of_every_algorithm() -> None:
    """A hundred runs or more are kept, several of each of the nine, all of which improved, in under 2 MB."""
    runs = recorded_runs()
    assert runs is not None
    counts = Counter(job.algorithm for job in runs)
    assert len(runs) >= 100
    assert set(counts) == set(ACRONYMS)
    assert len(ACRONYMS) == len(ALGORITHMS)
    assert min(counts.values()) >= 5
    assert all(job.best_loss < job.losses[0] for job in runs)
    assert all(job.cpu_seconds_per_iteration > 0 for job in runs)
    assert sum(path.stat().st_size for path in CURVES.iterdir()) < 2_000_000


def test_the_catalogue_names_every_run_once() -> None:
    """Without outside data all nine algorithms have runs to record, and no two have the same name."""
    runs = list(trainings(None, (0.2,)))
    assert {run.acronym for run in runs} == set(ACRONYMS)
    assert len({run.name for run in runs}) == len(runs)
    assert len({type(run.program) for run in runs}) == len(ALGORITHMS)


def test_a_recording_is_what_the_algorithm_gives() -> None:
    """What is recorded on a cluster are the losses that the same algorithm has on the spot, with their cost."""
    run = next(each for each in trainings(None, (0.2,)) if each.acronym == "LinReg")
    (recorded,) = record([run], lambda share: None)
    ctx = InlineContext(run.draw())
    run.program(ctx)
    assert recorded.losses == pytest.approx(ctx.losses, rel=1e-6)
    assert recorded.algorithm == "LinReg"
    assert recorded.cpu_seconds_per_iteration > 0


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=20))
def test_normalised_change_is_a_share_that_starts_at_one(losses: list[float]) -> None:
    """Every change is from 0 to 1 of the largest so far; the first that is any change at all is 1."""
    change = normalised_change(np.array(losses))
    assert ((change >= 0) & (change <= 1)).all()
    moved = np.flatnonzero(np.diff(losses) != 0)
    assert not moved.size or change[moved[0]] == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_forecasts_of_many_curves_are_those_of_each(method: str) -> None:
    """Scoring all places of several curves in one pass forecasts what `slaq.forecast` does at each."""
    curves = [
        RecordedCurve(source="", family="a", losses=1.0 + 1.0 / np.arange(1.0, 30.0) ** power)
        for power in (0.5, 1.0)
    ]
    cases = every_place(curves, earliest=5)
    said = forecasts(METHODS[method], curves, cases, (1, AHEAD))
    true = truths(curves, cases, (1, AHEAD))
    assert (true[:, 1] == cases.truth).all()
    for place in (0, len(cases) // 2, len(cases) - 1):
        known = curves[cases.curve[place]].losses[: cases.known[place]]
        assert said[place] == pytest.approx(forecast(known, [1, AHEAD], method=method).mean, rel=1e-6)


def test_a_stratified_mean_counts_its_parts_alike() -> None:
    """The mean of estimates is the mean of theirs, and its interval is narrower than that of a single one."""
    parts = [estimate([1.0, 2.0, 3.0]), estimate([5.0, 6.0, 7.0])]
    made = stratified(parts)
    assert made["mean"] == pytest.approx(4.0)
    assert made["high"] - made["mean"] < parts[0]["high"] - parts[0]["mean"]


def test_a_plan_is_its_seeds() -> None:
    """A seed gives the same jobs every time, in the order of arrival, one the probe; another gives others."""
    (one, _), (same, _), (other, _) = (plan(QUICK, 2, seed, Settings(quick=True)) for seed in (1, 1, 2))
    assert [(job.name, job.arrival) for job in one] == [(job.name, job.arrival) for job in same]
    assert [job.arrival for job in one] != [job.arrival for job in other]
    assert [job.arrival for job in one] == sorted(job.arrival for job in one)
    assert sum(job.name == PROBE for job in one) == 1


def test_the_probe_tells_its_accuracy_on_other_rows() -> None:
    """With every loss comes the accuracy on the rows held out, which training improves."""
    jobs, _ = plan(QUICK, 2, 1, Settings(quick=True))
    probe = next(job for job in jobs if job.name == PROBE)
    assert isinstance(probe.program, Probe)
    ctx = InlineContext(probe.data)
    probe.program(ctx)
    accuracy = [beside["accuracy"] for beside in ctx.metrics]
    assert len(accuracy) == len(ctx.losses) == QUICK.probe_iterations + 1
    assert accuracy[-1] > accuracy[0]
    assert ctx.losses[-1] < ctx.losses[0]


def test_a_job_is_followed_until_it_has_converged() -> None:
    """A job whose loss no longer falls is ended, and its time starts with its first loss."""

    def train(ctx: Context) -> None:
        for iteration in range(100_000):
            ctx.map(len)
            ctx.report(1.0 + 0.5**iteration)

    with Cluster(1) as cluster:
        followed = course(cluster.submit(train, Dataset(np.zeros((2, 1)))))
    assert followed["converged"]
    assert followed["seconds"][0] == 0.0
    assert (np.diff(followed["seconds"]) >= 0).all()
    assert followed["losses"][:3] == pytest.approx([2.0, 1.5, 1.25])
    assert len(followed["losses"]) < 100


def test_the_runtime_model_learns_what_no_worker_shortens() -> None:
    """From iterations of 1 + 8 / n seconds with one and two workers it predicts those within a tenth."""

    def iteration(workers: int) -> Observation:
        return Observation(iteration=1, loss=0.0, cpu_seconds=8.0, wall_seconds=1.0 + 8.0 / workers)

    model = fitted({workers: [iteration(workers)] * 50 for workers in (1, 2)})
    assert predicted(model, [1, 2, 4]) == pytest.approx([9.0, 5.0, 3.0], rel=0.1)


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000, 10_000_000])
def test_a_model_has_the_size_asked_for(size: int) -> None:
    """The weights of the network take the bytes asked for, within 5%."""
    inputs, hidden, outputs = layer_sizes(size)
    weights = (inputs + 1) * hidden + (hidden + 1) * outputs
    assert 8 * weights == pytest.approx(size, rel=0.05)


def test_a_busy_machine_is_told() -> None:
    """The share others use is a share; the report mentions it only where it is not small."""
    share = busy_share(0.05)
    assert share is None or 0.0 <= share <= 1.0
    assert noise([0.01, 0.02]) == noise([None]) == ""
    assert "not quiet" in noise([0.5, 0.6])


def test_names_are_listed_as_a_sentence_has_them() -> None:
    """One name stands alone, the last of several follows "and"."""
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
