"""A Spark standalone cluster on loopback: a master and two workers, each a JVM of its own, and what is tried there.

Run as a script, in a process of its own, because a process can have one Spark application only. Prints JSON.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CORES, WORKERS, PATIENCE = 2, 2, 240.0


class Standalone:
    """Starts the daemons, and ends them and their executors."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        deploy = "org.apache.spark.deploy"
        master = self._start("master", f"{deploy}.master.Master", "--port", "0", "--webui-port", "0")
        self.url = self._wait_for(master, r"(spark://\S+?:\d+)")
        self.workers = []
        for number in range(WORKERS):
            log = self._start(
                f"worker{number}",
                f"{deploy}.worker.Worker",
                *("--webui-port", "0", "--cores", str(CORES), "--memory", "600m"),
                *("--work-dir", str(folder / f"work{number}"), self.url),
            )
            self._wait_for(log, r"(Successfully registered)")
            self.workers.append(self._processes[-1])

    def _start(self, name: str, *words: str) -> Path:
        log = self._folder / f"{name}.log"
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        with log.open("wb") as file:
            words = (str(self._class), words[0], "--host", "127.0.0.1", *words[1:])
            self._processes.append(
                subprocess.Popen(words, stdout=file, stderr=file, env=env, start_new_session=True)
            )
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, log.read_text(errors="replace"))):
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)
        return found[1]

    def kill_worker(self) -> None:
        """SIGKILL a worker with its executor."""
        _kill_tree(self.workers[0].pid)

    def close(self) -> None:
        """End all that was started."""
        for process in self._processes:
            _kill_tree(process.pid)
            process.wait()


def _kill_tree(pid: int) -> None:
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    # Stopped first, so that a worker does not start another executor in the place of the one that goes.
    for one, what in ((pid, signal.SIGSTOP), *((int(p), signal.SIGKILL) for p in children.stdout.split())):
        _signal(one, what)
    _signal(pid, signal.SIGKILL)


def _signal(pid: int, what: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.05)


def frame_of(spark: Any) -> Any:
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as sql

    columns = [sql.randn(seed=place) for place in range(4)]
    label = (columns[0] - columns[1] + sql.randn(seed=9) > 0).cast("double")
    made = spark.range(0, 400, 1, 8).select(
        array_to_vector(sql.array(*columns)).alias("features"), label.alias("label")
    )
    return made.cache()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        standalone = Standalone(Path(folder))
        try:
            print(json.dumps(try_out(standalone, Path(folder))))
        finally:
            standalone.close()


def try_out(standalone: Standalone, folder: Path) -> dict[str, Any]:
    """Two fits and a program survive the loss of a worker; the end of the session ends the rest."""
    from pyspark.ml.classification import LogisticRegression

    from slaq.core.errors import SparkSessionError
    from slaq.spark import SparkCluster, session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        # As the tests have it for drivers; tests/conftest.py says why.
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    spark = session(standalone.url, settings=settings)
    cluster = SparkCluster(spark, epoch_seconds=0.3, directory=folder / "jobs", grace_seconds=3.0)
    told: dict[str, Any] = {}
    eventually(lambda: cluster.slots == CORES * WORKERS)
    told["slots"] = cluster.slots
    frame = frame_of(spark)
    frame.count()
    plain = LogisticRegression(maxIter=6, regParam=0.01).fit(frame).summary.objectiveHistory
    killed = threading.Event()

    def fit(spark: Any) -> list[float]:
        # Over and over, so that the worker is lost in the middle of one.
        ends: list[float] = []
        while len(ends) < 2 or not killed.is_set():
            model = LogisticRegression(maxIter=6, regParam=0.01).fit(frame)
            ends.append(model.summary.objectiveHistory[-1])
        return ends

    def program(ctx: Any) -> list[int]:
        sums: list[int] = []
        while not (killed.is_set() and len(sums) > 20) and len(sums) < 10_000:
            sums.append(sum(ctx.map(lambda part: int(part.x.sum()))))
            ctx.report(1.0 / len(sums))
        return sums

    import numpy as np

    fits = [cluster.submit(fit, name=f"fit-{number}") for number in range(2)]
    mapped = cluster.submit_program(program, np.ones((64, 1)), partitions=8, name="program")
    eventually(lambda: all(len(job.losses) >= 3 for job in (*fits, mapped)))
    standalone.kill_worker()
    killed.set()
    told["plain"] = plain[-1]
    told["fits"] = [job.result(PATIENCE) for job in fits]
    told["sums"] = sorted(set(mapped.result(PATIENCE)))
    eventually(lambda: cluster.slots == CORES)
    told["slots_left"] = cluster.slots

    def endless(ctx: Any) -> None:
        while True:
            ctx.report(1.0)
            time.sleep(0.05)

    last = cluster.submit_program(endless)
    eventually(lambda: len(last.losses) > 2)
    spark.stop()
    last.wait(timeout=PATIENCE)
    told["stopped"] = [str(last.state), last.reason]
    try:
        cluster.submit(lambda spark: None)
    except SparkSessionError as error:
        told["refused"] = str(error)
    cluster.shutdown()
    return told


if __name__ == "__main__":
    main()
