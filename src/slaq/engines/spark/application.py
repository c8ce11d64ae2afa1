"""All private parts of Spark that this engine uses, checked at the start."""

import json
import logging
import platform
import re
from collections.abc import Callable
from typing import Any

from slaq.core.errors import SparkApiError, SparkSessionError
from slaq.core.extras import needs
from slaq.engines.spark.losses import LOGGERS
from slaq.engines.spark.shares import PoolShare

#: The prefix of the names of our pools.
PREFIX = "slaq:"
STAGE = "org.apache.spark.status.StageDataWrapper"

_log = logging.getLogger(__name__)


def require_pyspark() -> Any:
    """Return the pyspark module, or say which extra brings it."""
    with needs("spark"):
        import pyspark
    return pyspark


class Application:
    """One Spark application, seen through py4j: its scheduler's pools, its status store, its loggers."""

    def __init__(self, spark: Any) -> None:
        require_pyspark()
        context = getattr(spark, "_sc", None)
        if context is None or getattr(spark, "_jsparkSession", None) is None:
            raise SparkSessionError(
                "this is a Spark Connect session, which has no scheduler to steer",
                "give a classic one, made with SparkSession.builder.master(...)",
            )
        if context._jsc is None:
            raise SparkSessionError("this Spark session was stopped", "make a new one")
        self.spark = spark
        self.context = context
        self.jvm = context._jvm
        self._scala = context._jsc.sc()
        self._check_mode()
        self._self_test()

    def _check_mode(self) -> None:
        from py4j.clientserver import ClientServer

        if not isinstance(self.context._gateway, ClientServer):
            raise SparkSessionError(
                "PYSPARK_PIN_THREAD is false, so that losses cannot be told apart by job", "unset it"
            )
        if self._scala.getSchedulingMode().toString() != "FAIR":
            raise SparkSessionError(
                "this Spark session schedules first in, first out",
                'make it with .config("spark.scheduler.mode", "FAIR"), or by slaq.spark.session()',
            )

    def _self_test(self) -> None:
        """Try every private part, because versions of Spark may move them."""
        probes: list[tuple[str, Callable[[], object]]] = [
            ("the task scheduler's root pool (TaskSchedulerImpl.rootPool)", self._find_pools),
            ("pools whose share can be set (Pool.minShare, Pool.weight)", self._try_pool),
            ("the stages of the status store (AppStatusStore.store, StageDataWrapper)", self._find_status),
            ("the executors of the status store (AppStatusStore.executorList)", self.slots),
            ("log4j2's configuration (LoggerContext.getConfiguration)", self._find_loggers),
            ("callbacks into Python (pyspark.java_gateway)", self._open_callbacks),
            ("cancelling a job's future Spark jobs", self._find_cancel),
        ]
        moved = []
        for what, probe in probes:
            try:
                probe()
            except Exception as error:
                _log.debug("self-test failed", extra={"what": what}, exc_info=True)
                moved.append(
                    (what, str(error).strip().splitlines()[0] if str(error).strip() else repr(error))
                )
        if moved:
            raise SparkApiError(self.versions(), moved)

    def versions(self) -> dict[str, str]:
        """Return the versions that matter when something does not work."""
        import py4j.version
        import pyspark

        return {
            "Spark": str(self.context.version),
            "PySpark": pyspark.__version__,
            "py4j": py4j.version.__version__,
            "Java": str(self.jvm.java.lang.System.getProperty("java.version")),
            "Python": platform.python_version(),
        }

    # Pools.

    def _find_pools(self) -> None:
        self.root = self._scala.taskScheduler().rootPool()
        self.root.schedulableQueue().size()
        self._mode = self.jvm.org.apache.spark.scheduler.SchedulingMode.withName("FIFO")

    def _try_pool(self) -> None:
        pool = self.jvm.org.apache.spark.scheduler.Pool(f"{PREFIX}self-test", self._mode, 0, 1)
        self._fields = tuple(pool.getClass().getDeclaredField(name) for name in ("minShare", "weight"))
        for field in self._fields:
            field.setAccessible(True)
        self.set_share(pool, PoolShare(7, 3))
        if self.share_of(pool) != (7, 3) or pool.runningTasks() != 0:
            raise RuntimeError(f"minShare and weight were set to 7 and 3 and are {self.share_of(pool)}")

    def make_pool(self, name: str) -> Any:
        """Add a pool of that name to the scheduler."""
        pool = self.jvm.org.apache.spark.scheduler.Pool(name, self._mode, 0, 1)
        self.root.addSchedulable(pool)
        return pool

    def remove_pool(self, pool: Any) -> None:
        """Take a pool out of the scheduler; Spark makes a plain one if its name is used again."""
        self.root.removeSchedulable(pool)

    def share_of(self, pool: Any) -> PoolShare:
        """Return a pool's present share."""
        return PoolShare(int(pool.minShare()), int(pool.weight()))

    def set_share(self, pool: Any, share: PoolShare) -> None:
        """Change a pool's share; the scheduler reads it for every task."""
        for field, value in zip(self._fields, share, strict=True):
            field.setInt(pool, value)

    def foreign_pools(self) -> list[Any]:
        """Return the pools of other work that have something to run now."""
        pools = []
        for pool in self.root.schedulableQueue().toArray():
            if not pool.name().startswith(PREFIX) and not pool.schedulableQueue().isEmpty():
                pools.append(pool)
        return pools

    # The status store.

    def _find_status(self) -> None:
        self._status = self._scala.statusStore()
        self._stage_class = self.jvm.java.lang.Class.forName(STAGE)
        mapper = self.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        mapper.registerModule(self.jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        self._mapper = mapper
        self.stages_from(self.next_stage())

    def next_stage(self) -> int:
        """Return the id of the first stage that is not known yet; reads the last known one, as a check."""
        view = self._status.store().view(self._stage_class).index("stageId").reverse().max(1)
        known = json.loads(self._mapper.writeValueAsString(view))
        return int(known[0]["info"]["stageId"]) + 1 if known else 0

    def stages_from(self, stage_id: int) -> list[dict[str, Any]]:
        """Return what is known of every stage from that id on: one call, whatever their number."""
        view = self._status.store().view(self._stage_class).index("stageId").first(stage_id)
        return [wrapper["info"] for wrapper in json.loads(self._mapper.writeValueAsString(view))]

    def stages(self, ids: list[int]) -> list[dict[str, Any]]:
        """Return what is known of these stages; those that are forgotten are left out."""
        from py4j.protocol import Py4JJavaError

        found = []
        for stage_id in ids:
            try:
                stage = self._status.lastStageAttempt(stage_id)
            except Py4JJavaError:
                continue
            found.append(json.loads(self._mapper.writeValueAsString(stage)))
        return found

    def slots(self) -> int:
        """Return how many tasks can run at once now."""
        executors = json.loads(self._mapper.writeValueAsString(self._status.executorList(True)))
        per_task = int(self._scala.conf().get("spark.task.cpus", "1"))
        return sum(int(executor["totalCores"]) // per_task for executor in executors)

    def process_of_tasks(self) -> int | None:
        """Return the process in which tasks run beside the driver; None where executors have their own."""
        if not re.fullmatch(r"local(\[.*\])?", str(self.context.master)):
            return None
        return int(self.jvm.java.lang.ProcessHandle.current().pid())

    # Loggers and callbacks.

    def _find_loggers(self) -> None:
        self._loggers = self.jvm.org.apache.logging.log4j.LogManager.getContext(False)
        self._loggers.getConfiguration().getLoggerConfig(next(iter(LOGGERS))).getLevel()
        results = self.jvm.java.lang.Class.forName("org.apache.logging.log4j.core.Filter$Result")
        self._verdicts = {one.toString(): one for one in results.getEnumConstants()}

    def _open_callbacks(self) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(self.context._gateway)

    def listen(self, appender: Any, telling: str) -> Callable[[], None]:
        """Attach an appender for the lines that match, beside the present ones; return its detach function."""
        core = self.jvm.org.apache.logging.log4j.core
        chosen = core.filter.RegexFilter.createFilter(
            telling, None, False, self._verdicts["ACCEPT"], self._verdicts["DENY"]
        )
        configuration = self._loggers.getConfiguration()
        before = []
        for name, level in LOGGERS.items():
            # The logger of this name, or of the nearest package above it.
            closest = configuration.getLoggerConfig(name)
            before.append((name, closest if closest.getName() == name else None))
            finer = self.jvm.org.apache.logging.log4j.Level.toLevel(level)
            logger = core.config.LoggerConfig(name, finer, False)
            for other in closest.getAppenders().values():
                logger.addAppender(other, closest.getLevel(), None)
            logger.addAppender(appender, finer, chosen)
            configuration.removeLogger(name)
            configuration.addLogger(name, logger)
        self._loggers.updateLoggers()

        def silence() -> None:
            for name, logger in before:
                configuration.removeLogger(name)
                if logger is not None:
                    configuration.addLogger(name, logger)
            self._loggers.updateLoggers()

        return silence

    # Settings and the end.

    def set_conf(self, name: str, value: str) -> Callable[[], None]:
        """Change a setting that Spark reads for every stage; return the function that restores it."""
        conf = self._scala.conf()
        before = conf.get(name) if conf.contains(name) else None
        conf.set(name, value)
        return lambda: conf.remove(name) if before is None else conf.set(name, before)

    def _find_cancel(self) -> None:
        self._scala.cancelJobGroupAndFutureJobs("slaq self-test: nobody has this group")

    def cancel(self, group: str) -> None:
        """Cancel the Spark jobs of a group, and those that it will still start."""
        self._scala.cancelJobGroupAndFutureJobs(group)

    def stopped(self) -> bool:
        """Return whether the application has ended."""
        try:
            return self.context._jsc is None or bool(self._scala.isStopped())
        except Exception:
            # The JVM itself is gone.
            return True
