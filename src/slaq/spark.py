"""A cluster on Spark: MLlib estimators and training programs in one Spark application."""

import inspect
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from typing_extensions import override

from slaq.bootstrap import go_live, name_of_policy
from slaq.core.allocation import Policy
from slaq.core.appraisal import usual_units_per_core
from slaq.core.errors import SparkSessionError
from slaq.engines.goals import Goal
from slaq.engines.spark.application import Application
from slaq.engines.spark.engine import SparkEngine, SparkSite
from slaq.engines.spark.runs import SparkJob
from slaq.engines.spark.session import session
from slaq.engines.spark.shares import Shares
from slaq.handle import Job
from slaq.jobs.context import Context, Program
from slaq.jobs.data import Dataset
from slaq.jobs.options import CLUSTER, FIT, SPARK_PROGRAM, FitOptions, SparkProgramOptions
from slaq.running import RunningCluster, check_program, name_of

__all__ = ["SparkCluster", "session"]

#: Partitions per slot that a program's data is cut into unless told otherwise: short tasks share slots finely.
PARTITIONS_PER_SLOT = 4

#: Work for Spark: called with the session or, if it takes two arguments, with the session and a context.
Work = Callable[..., Any]

_taken: "weakref.WeakKeyDictionary[Any, SparkCluster]" = weakref.WeakKeyDictionary()
_taking = threading.Lock()


class SparkCluster(RunningCluster):
    """Runs training jobs in one Spark application, and moves its slots to the jobs that improve most.

    The session must be a classic one whose scheduler is FAIR; `slaq.spark.session()` makes such a one. As a
    context manager it waits for its jobs at the end of the block, and cancels them if the block raises; the
    session stays the owner's, to go on with or to stop.
    """

    def __init__(  # noqa: PLR0913 (one keyword per thing a user may choose)
        self,
        spark: Any,
        policy: str | Policy = "total-quality",
        *,
        epoch_seconds: float = 1.0,
        directory: str | os.PathLike[str] | None = None,
        units_per_slot: int | None = None,
        concurrent: int | None = None,
        shares: str = "tokens",
        grace_seconds: float = 5.0,
    ) -> None:
        epoch_seconds = CLUSTER.options["epoch_seconds"].read(epoch_seconds)
        units_per_slot = replace(CLUSTER.options["units_per_core"], name="units_per_slot").read(
            units_per_slot
        )
        concurrent = CLUSTER.options["concurrent"].read(concurrent)
        super().__init__(epoch_seconds)
        #: The name of the policy.
        self.policy = name_of_policy(policy)
        application = Application(spark)
        with _taking:
            owner = _taken.get(application.context)
            if owner is not None and owner._thread.is_alive():
                raise SparkSessionError("this Spark session has a cluster already", "submit to that one")
            slots = max(application.slots(), 1)
            #: How many units make a slot.
            self.units_per_slot = units_per_slot or usual_units_per_core(slots)
            site = SparkSite(
                epoch_seconds=epoch_seconds,
                directory=self._home(directory),
                shares=Shares(shares),
                grace_seconds=grace_seconds,
            )
            self._live = go_live(
                policy,
                partial(SparkEngine, application, site),
                self,
                epoch_seconds=epoch_seconds,
                units_per_core=self.units_per_slot,
                concurrent=concurrent,
            )
            self._run(self._live)
            _taken[application.context] = self

    @property
    def slots(self) -> float:
        """How many tasks can run at once now, less what other work in the application is due."""
        return self.capacity

    @FIT.takes
    def submit(self, work: Work, **options: Unpack[FitOptions]) -> Job:
        """Start work on Spark beside the jobs there are; return its handle.

        `work(spark)` fits any estimator, pipeline or cross-validator, and its result is the job's;
        `work(spark, ctx)` can also report losses of its own with `ctx.report`. docs/options.md describes the
        options.
        """
        check_program(work)
        return self._run_on_spark(FIT.complete(options), name_of(work), _with_both(work), Dataset(), None)

    @SPARK_PROGRAM.takes
    def submit_program(
        self, program: Program, data: Any = None, **options: Unpack[SparkProgramOptions]
    ) -> Job:
        """Start a training program, as `slaq.Cluster.submit` does, its tasks on Spark over cached partitions."""
        check_program(program)
        asked = SPARK_PROGRAM.complete(options)
        dataset = Dataset.of(data)
        pieces = dataset.count(
            asked["partitions"]
            or getattr(program, "partitions", None)
            or round(PARTITIONS_PER_SLOT * self.slots)
        )

        def work(spark: Any, ctx: Context) -> Any:
            return program(ctx)

        return self._run_on_spark(asked, name_of(program), work, dataset, pieces)

    def _run_on_spark(
        self,
        asked: FitOptions,
        usual_name: str,
        work: Callable[[Any, Any], Any],
        data: Dataset,
        partitions: int | None,
    ) -> Job:
        """Submit work over partitions of data; None for work that has no data of slaq's."""
        job = SparkJob(
            work=work,
            data=data,
            partitions=partitions or 1,
            trains=asked["trains"],
            goal=Goal.asked(asked),
        )
        prepare = self._live.engine.prepare
        # No job can use more slots than it has tasks at a time.
        return self._submit(asked, usual_name, lambda spec: prepare(spec.id, job), partitions)

    @override
    def directory_of(self, job_id: str) -> Path:
        return self._live.engine.directory(job_id)


def _with_both(work: Work) -> Callable[[Any, Any], Any]:
    """Return the work as a function of session and context, whichever of both it takes.

    What has a default is its own business: `lambda spark, df=df: ...` takes the session alone.
    """
    try:
        parameters = list(inspect.signature(work).parameters.values())
    except ValueError:
        parameters = []
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [one for one in parameters if one.kind in places and one.default is inspect.Parameter.empty]
    if len(wanted) == 2:
        return work
    return lambda spark, ctx: work(spark)
