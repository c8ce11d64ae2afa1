"""A cluster on Spark as its user sees it: submit, watch, share, stop."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression, RandomForestClassifier
from pyspark.ml.clustering import KMeans
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import StandardScaler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

from slaq import Cancelled, Context, Dataset, Job, share
from slaq.core.errors import JobOptionError, SparkApiError, SparkSessionError, UnknownNameError
from slaq.core.events import CurveBegan
from slaq.core.job import JobState
from slaq.engines.spark.application import Application
from slaq.engines.spark.task_niceness import NICENESS
from slaq.jobs.inline import InlineContext
from slaq.jobs.options import FIT, SPARK_PROGRAM
from slaq.spark import SparkCluster
from tests.algorithms.samples import CASES
from tests.integration.refused_options import REFUSED, sentence_of
from tests.spark_session import SLOTS, spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

#: Seconds after which what has not happened never will.
PATIENCE = 120.0


@pytest.fixture
def cluster(spark: Any, tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(spark, epoch_seconds=0.2, directory=tmp_path, grace_seconds=2.0) as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    """Labelled rows in several partitions for each slot."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    y = (x @ [2.0, -1.0, 0.5, 0.0] + rng.normal(size=400) > 0).astype(float)
    rows = [(Vectors.dense(a), float(b)) for a, b in zip(x, y, strict=True)]
    made = spark.createDataFrame(rows, ["features", "label"]).repartition(2 * SLOTS).cache()
    made.count()
    return made


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)


def endless(spark: Any, ctx: Context) -> None:
    while True:
        ctx.map(len)
        ctx.report(1.0)


def ended(job: Job) -> JobState:
    job.wait(timeout=PATIENCE)
    return job.state


def _of_part(part: Any, w: Any) -> Any:
    return part.index, part.start, (part.x @ w).tolist(), part.y.tolist()


def test_fits_share_the_application(cluster: SparkCluster, frame: Any) -> None:
    """Two fits run side by side, each with its losses, its cost and its model; the allocation is recorded."""
    jobs = [
        cluster.submit(
            lambda spark, c=c: LogisticRegression(maxIter=8, regParam=c).fit(frame), name=f"lr-{c}"
        )
        for c in (0.1, 0.001)
    ]
    for job in jobs:
        model = job.result(PATIENCE)
        assert job.losses[1:] == pytest.approx(model.summary.objectiveHistory[1:], rel=1e-5)
        assert sum(one.cpu_seconds for one in job.observations) > 0
    together = [set(decision.ids) for decision in cluster.history.decisions()]
    assert {"lr-0.1", "lr-0.001"} in together
    assert all(d.cores.sum() <= SLOTS for d in cluster.history.decisions())


# The validator leaves its pool of threads to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_several_models_of_one_job_are_curves_of_their_own(cluster: SparkCluster, frame: Any) -> None:
    """A pipeline inside a cross-validator, its folds in threads of their own: each fit begins a curve anew."""
    lr = LogisticRegression(maxIter=4, featuresCol="scaled")
    pipeline = Pipeline(stages=[StandardScaler(inputCol="features", outputCol="scaled"), lr])
    grid = ParamGridBuilder().addGrid(lr.regParam, [0.1, 0.01]).build()
    validator = CrossValidator(
        estimator=pipeline,
        estimatorParamMaps=grid,
        evaluator=BinaryClassificationEvaluator(),
        numFolds=2,
        parallelism=2,
        seed=1,
    )
    job = cluster.submit(lambda spark: validator.fit(frame), name="validator")
    assert job.result(PATIENCE).bestModel is not None
    began = [one for one in cluster.history.events("validator") if isinstance(one, CurveBegan)]
    assert 1 <= len(began) <= 5
    assert len(job.losses) >= 8
    assert [one.iteration for one in job.observations] == list(range(len(job.losses)))


def test_a_job_learns_what_it_holds_and_says_what_it_can_use(cluster: SparkCluster) -> None:
    """It is given no more than it says; `slaq.share()` tells in its own thread, and nowhere else."""

    def modest(spark: Any, ctx: Context) -> float:
        ctx.can_use(max_cores=1)
        while (held := share()) is None or held.cores != 1.0:
            ctx.report(1.0)
            time.sleep(0.05)
        assert ctx.workers == held.workers
        return held.cores

    job = cluster.submit(modest)
    assert job.result(PATIENCE) == 1.0
    assert job.demand is not None
    assert share() is None


def test_programs_run_as_they_do_inline(cluster: SparkCluster) -> None:
    """Results come in the order of the partitions; errors of tasks arrive as they were raised."""
    x, y = np.arange(60.0).reshape(20, 3), np.arange(20.0)

    def program(ctx: Context) -> list[Any]:
        assert ctx.workers > 0
        ctx.report(1.0)
        parts = ctx.map(_of_part, np.ones(3))
        ctx.checkpoint(len(parts))
        ctx.report(0.5, step=3, total=9, size=len(parts))
        ctx.report(0.7, step=3)
        return parts

    job = cluster.submit_program(program, (x, y), partitions=5)
    inline = program(InlineContext(Dataset(x, y), partitions=5))
    assert job.result(PATIENCE) == inline
    assert (job.directory / "checkpoint").exists()
    assert [dict(one) for one in job.metrics] == [{}, {"size": 5.0}]
    assert ([one.iteration for one in job.observations], job.total) == ([0, 3], 9)

    def faulty(ctx: Context) -> None:
        ctx.map(lambda part: 1 // (part.index - 2))

    with pytest.raises(ZeroDivisionError):
        cluster.submit_program(faulty, (x, y), partitions=5).result(PATIENCE)


def test_the_nine_algorithms_train_as_they_do_inline(cluster: SparkCluster) -> None:
    """Each reports the same losses over cached Spark partitions as in this process."""
    cases = {type(algorithm): (algorithm, data) for algorithm, data in CASES.values()}
    assert len(cases) == 9
    jobs = {}
    for kind, (algorithm, data) in cases.items():
        program = replace(algorithm, iterations=2)
        jobs[kind] = cluster.submit_program(program, data(), partitions=2, name=kind.__name__)
    for kind, (algorithm, data) in cases.items():
        inline = InlineContext(Dataset(*data()), partitions=2)
        replace(algorithm, iterations=2)(inline)
        jobs[kind].result(PATIENCE)
        assert jobs[kind].losses == pytest.approx(inline.losses, rel=1e-9), kind


def test_work_that_tells_no_loss_holds_its_fair_share_and_its_owner_is_told(
    cluster: SparkCluster, frame: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A forest competes with nobody; a job that reports beside it does not take its share."""
    gate = threading.Event()

    def forest(spark: Any) -> Any:
        model = RandomForestClassifier(numTrees=2, maxDepth=2, seed=1).fit(frame)
        gate.wait(PATIENCE)
        return model

    quiet = cluster.submit(forest, name="forest")
    loud = cluster.submit(endless, name="endless")
    eventually(lambda: "no loss" in quiet.log())
    eventually(lambda: quiet.cores == cluster.capacity / 2)
    assert "job forest tells no loss" in caplog.text
    assert "ctx.report" in quiet.log()
    gate.set()
    assert quiet.result(PATIENCE).getNumTrees == 2
    loud.cancel()


def test_other_work_in_the_application_keeps_its_fair_share(cluster: SparkCluster, spark: Any) -> None:
    """While the user's own thread runs Spark jobs, one job beside it holds half of the slots."""
    whole = cluster.capacity
    job = cluster.submit(endless, name="endless")
    over = threading.Event()

    def work() -> None:
        data = spark.sparkContext.parallelize(range(64), 4 * SLOTS)
        while not over.is_set():
            data.map(lambda _: time.sleep(0.02)).count()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        eventually(lambda: job.cores == whole / 2)
    finally:
        over.set()
        thread.join()
    eventually(lambda: job.cores == whole)
    job.cancel()


def test_what_fails_or_is_cancelled_leaves_the_others_alone(cluster: SparkCluster, frame: Any) -> None:
    """Work that raises, exits, is cancelled in a fit or in a loop, each ends alone and says why."""
    good = cluster.submit(lambda spark: KMeans(k=2, maxIter=20, tol=0.0, seed=1).fit(frame), name="good")
    raises = cluster.submit(lambda spark: LogisticRegression(featuresCol="none").fit(frame), name="raises")
    leaves = cluster.submit(lambda spark: exit(3), name="leaves")  # noqa: PLR1722
    spins = cluster.submit(lambda spark: _spin(), name="spins")
    fits = cluster.submit(lambda spark: [LogisticRegression().fit(frame) for _ in range(10**6)], name="fits")
    eventually(lambda: len(fits.losses) > 2)
    fits.cancel()
    spins.cancel()
    assert ended(raises) is JobState.FAILED
    assert "none" in str(raises.exception())
    assert "IllegalArgument" in raises.log()
    assert ended(leaves) is JobState.FAILED
    assert isinstance(leaves.exception(), SystemExit)
    assert ended(fits) is JobState.CANCELLED
    assert ended(spins) is JobState.CANCELLED
    with pytest.raises(CancelledError):
        fits.result()
    assert good.result(PATIENCE).summary.numIter >= 1


def _spin() -> None:
    while True:
        sum(range(1000))


def test_jobs_end_when_they_have_done_what_was_asked(cluster: SparkCluster) -> None:
    """By iterations, by a target, by time: completed, with what the program returned or last kept."""

    def program(ctx: Context) -> str:
        try:
            for done in range(10**6):
                ctx.checkpoint(done)
                ctx.report(1.0 / (1 + done))
                time.sleep(0.01)
        except Cancelled:
            return "caught"
        return "never"

    def careless(ctx: Context) -> None:
        for done in range(10**6):
            ctx.report(1.0)
            ctx.checkpoint(done)
            time.sleep(0.01)

    bounded = cluster.submit_program(program, max_iterations=5)
    content = cluster.submit_program(program, target_loss=0.1, stop_at=0.5)
    timed = cluster.submit_program(careless, time_budget=0.5)
    assert bounded.result(PATIENCE) == "caught"
    assert [one.iteration for one in bounded.observations][-1] == 5
    assert content.result(PATIENCE) == "caught"
    assert "has reached the requested" in content.reason
    assert timed.result(PATIENCE) > 0
    assert {ended(job) for job in (bounded, content, timed)} == {JobState.COMPLETED}


def test_a_fit_ended_early_is_completed_without_a_model(cluster: SparkCluster, frame: Any) -> None:
    """MLlib gives no model before its last iteration: the result is None, and the reason says why it ended."""
    job = cluster.submit(
        lambda spark: LogisticRegression(maxIter=1000, tol=0.0, regParam=0.001).fit(frame), max_iterations=3
    )
    assert job.result(PATIENCE) is None
    assert ended(job) is JobState.COMPLETED
    assert "3 iterations" in job.reason


def test_bad_input_is_refused_before_anything_starts(cluster: SparkCluster, spark: Any) -> None:
    """Options, policies, a second cluster, a session without a scheduler of ours: one sentence each."""
    for name, options in REFUSED:
        for taken, submit in ((FIT, cluster.submit), (SPARK_PROGRAM, cluster.submit_program)):
            if options.keys() <= taken.options.keys():
                with pytest.raises(JobOptionError) as refused:
                    submit(lambda spark: None, **options)
                assert str(refused.value) == sentence_of(name, options, taken)
    with pytest.raises(SparkSessionError, match="already"):
        SparkCluster(spark)
    with pytest.raises(SparkSessionError, match="Connect"):
        Application(object())
    assert cluster.jobs() == []


def test_a_cap_of_two_cores_reaches_the_engine_as_two_slots(cluster: SparkCluster) -> None:
    """Of a fit and of a program alike."""
    cluster.submit(lambda spark: None, max_cores=2).result(PATIENCE)
    cluster.submit_program(lambda ctx: None, np.zeros((8, 1)), partitions=4, max_cores=2).result(PATIENCE)
    assert [spec.demand.most for spec in cluster.history.jobs()] == [2.0, 2.0]


def test_an_unknown_policy_is_refused(spark: Any) -> None:
    """And leaves the application free for another try."""
    with pytest.raises(UnknownNameError, match="total-quality"):
        SparkCluster(spark, "clairvoyant")
    SparkCluster(spark).shutdown()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which sockets are whose")
def test_a_local_session_is_out_of_reach_of_other_machines(spark: Any) -> None:
    """Spark's own sockets, which run whatever they are sent, listen on the loopback interface alone."""
    jvm = spark.sparkContext._gateway.proc.pid
    links = [link for link in Path(f"/proc/{jvm}/fd").iterdir() if link.is_symlink()]
    inodes = {match[1] for link in links if (match := re.match(r"socket:\[(\d+)\]", str(link.readlink())))}
    listening = []
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/{jvm}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1].partition(":")[0])
    # As the kernel writes them: 127.0.0.1, and the same inside IPv6.
    assert listening
    assert set(listening) <= {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_tasks_of_a_local_session_give_way_to_its_driver(cluster: SparkCluster, spark: Any) -> None:
    """Every thread that runs tasks is nicer than the one that makes stages of jobs."""
    jvm = spark.sparkContext._gateway.proc.pid

    def niceness(name: str) -> set[int]:
        found = set()
        for thread in Path(f"/proc/{jvm}/task").iterdir():
            with suppress(OSError):
                if (thread / "comm").read_text().startswith(name):
                    found.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
        return found

    usual = os.getpriority(os.PRIO_PROCESS, jvm)
    cluster.submit(endless)
    eventually(lambda: niceness("Executor task") == {usual + NICENESS})
    assert niceness("dag-scheduler") == {usual}


def test_the_self_test_names_what_moved(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private part that is not where it was is named, with all versions."""
    monkeypatch.setattr("slaq.engines.spark.application.STAGE", "org.apache.spark.status.Moved")
    with pytest.raises(SparkApiError, match="status store") as caught:
        Application(spark)
    assert caught.value.versions["Spark"] in str(caught.value)
    assert {"Spark", "PySpark", "py4j", "Java", "Python"} == set(caught.value.versions)


def test_a_closed_cluster_leaves_the_application_as_it_was(spark: Any, frame: Any, tmp_path: Path) -> None:
    """Pools, settings and loggers are put back, and fits go on as ever."""

    def state() -> tuple[Any, ...]:
        scala = spark.sparkContext._jsc.sc()
        loggers = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getContext(False)
        known = loggers.getConfiguration().getLoggers().keySet().toString()
        pools = sorted(pool.name() for pool in scala.taskScheduler().rootPool().schedulableQueue().toArray())
        return scala.conf().get("spark.locality.wait"), known, [p for p in pools if p != "default"]

    before = state()
    with SparkCluster(spark, directory=tmp_path) as cluster:
        cluster.submit(lambda spark: KMeans(k=2, maxIter=2, seed=1).fit(frame)).result(PATIENCE)
    assert state() == before
    assert LogisticRegression(maxIter=1).fit(frame).numFeatures == 4
