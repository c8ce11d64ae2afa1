"""A cluster on Spark: MLlib estimators and training programs in one Spark application."""

import inspect
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.bootstrap import go_live_on_spark
from slaq.core.errors import SparkSessionError
from slaq.core.job import JobSpec, Kind
from slaq.engines.local.engine import usual_units_per_core
from slaq.engines.spark.application import Application
from slaq.engines.spark.engine import SparkSite
from slaq.engines.spark.runs import SparkJob
from slaq.engines.spark.session import session
from slaq.engines.spark.shares import Shares
from slaq.handle import Job
from slaq.jobs.context import Context, Program
from slaq.jobs.data import Dataset
from slaq.jobs.options import check_options
from slaq.running import RunningCluster, name_of

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
        policy: str = "total-quality",
        *,
        epoch_seconds: float = 1.0,
        directory: str | os.PathLike[str] | None = None,
        units_per_slot: int | None = None,
        shares: str = "tokens",
        grace_seconds: float = 5.0,
    ) -> None:
        if epoch_seconds <= 0 or (units_per_slot is not None and units_per_slot < 1):
            raise ValueError("a cluster needs at least one unit to a slot, and epochs above 0 seconds")
        super().__init__(epoch_seconds)
        self.policy = policy
        application = Application(spark)
        with _taking:
            owner = _taken.get(application.context)
            if owner is not None and owner._thread.is_alive():
                raise SparkSessionError("this Spark session has a cluster already", "submit to that one")
            slots = max(application.slots(), 1)
            #: How many units make a slot.
            self.units_per_slot = units_per_slot or usual_units_per_core(slots)
            site = SparkSite(
                units_per_slot=self.units_per_slot,
                epoch_seconds=epoch_seconds,
                directory=self._home(directory),
                shares=Shares(shares),
                grace_seconds=grace_seconds,
            )
            self._live = go_live_on_spark(policy, application, site, self)
            self._run(self._live)
            _taken[application.context] = self

    @property
    def slots(self) -> float:
        """How many tasks can run at once now, less what other work in the application is due."""
        return self.capacity / self.units_per_slot

    def submit(  # noqa: PLR0913 (one keyword per thing a user may ask for)
        self,
        work: Work,
        *,
        name: str | None = None,
        weight: float = 1.0,
        min_units: int = 0,
        max_units: int | None = None,
        target: float | None = None,
        stop_at: float | None = None,
        max_iterations: int | None = None,
        time_budget: float | None = None,
        trains: bool = True,
    ) -> Job:
        """Start work on Spark beside the jobs there are; return its handle.

        `work(spark)` fits any estimator, pipeline or cross-validator, and its result is the job's;
        `work(spark, ctx)` can also report losses of its own with `ctx.report`. Without `trains` it is other
        work, held at its fair share. The limits are those of `slaq.Cluster.submit`.
        """
        check_options(
            weight=weight,
            min_units=min_units,
            max_units=max_units,
            stop_at=stop_at,
            max_iterations=max_iterations,
            time_budget=time_budget,
        )
        job = SparkJob(
            work=_with_both(work),
            data=Dataset(),
            max_iterations=max_iterations,
            time_budget=time_budget,
            target=target,
            stop_at=stop_at,
        )
        handle = self._register(name or name_of(work), name is None, stop_at, target)
        spec = JobSpec(
            id=handle.id,
            kind=Kind.ML if trains else Kind.OTHER,
            weight=weight,
            min_units=min_units,
            max_units=max_units,
            target_loss=target,
        )
        return self._queue(handle, spec, partial(self._live.engine.prepare, handle.id, job))

    def submit_program(  # noqa: PLR0913 (one keyword per thing a user may ask for)
        self,
        program: Program,
        data: Any = None,
        *,
        name: str | None = None,
        partitions: int | None = None,
        weight: float = 1.0,
        min_units: int = 0,
        max_units: int | None = None,
        target: float | None = None,
        stop_at: float | None = None,
        max_iterations: int | None = None,
        time_budget: float | None = None,
    ) -> Job:
        """Start a training program, as `slaq.Cluster.submit` does, its tasks on Spark over cached partitions."""
        check_options(
            weight=weight,
            min_units=min_units,
            max_units=max_units,
            partitions=partitions,
            stop_at=stop_at,
            max_iterations=max_iterations,
            time_budget=time_budget,
        )
        dataset = Dataset.of(data)
        pieces = dataset.count(
            partitions or getattr(program, "partitions", None) or round(PARTITIONS_PER_SLOT * self.slots)
        )

        def work(spark: Any, ctx: Context) -> Any:
            return program(ctx)

        job = SparkJob(
            work=work,
            data=dataset,
            partitions=pieces,
            max_iterations=max_iterations,
            time_budget=time_budget,
            target=target,
            stop_at=stop_at,
        )
        handle = self._register(name or name_of(program), name is None, stop_at, target)
        # No job can use more slots than it has tasks at a time.
        most = pieces * self.units_per_slot
        spec = JobSpec(
            id=handle.id,
            weight=weight,
            min_units=min_units,
            max_units=most if max_units is None else min(max_units, most),
            target_loss=target,
        )
        return self._queue(handle, spec, partial(self._live.engine.prepare, handle.id, job))

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
