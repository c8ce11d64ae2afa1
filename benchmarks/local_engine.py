"""What the local engine costs: round trips, one job alone, delivered shares, memory, the scheduler's own CPU."""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# As the engine's own processes have it; read when NumPy is loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import cloudpickle
import numpy as np

from slaq.cluster import Cluster
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Ending, Journal
from slaq.engines.local.engine import LocalEngine
from slaq.engines.node.node import make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.engines.packing import unpack
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset, Partition
from slaq.jobs.inline import InlineContext


class Watch:
    """Keeps how each job ended."""

    def __init__(self) -> None:
        self.endings: dict[str, Any] = {}
        self.cpu: dict[str, float] = {}

    def happened(self, event: Event, ending: Ending | None) -> None:
        if isinstance(event, LossObserved):
            self.cpu[event.job_id] = self.cpu.get(event.job_id, 0.0) + event.observation.cpu_seconds
        elif isinstance(event, JobEnded):
            self.endings[event.job_id] = ending


class Bench:
    """An engine without a scheduler: grants are given by hand."""

    def __init__(self, engine: LocalEngine, watch: Watch) -> None:
        self.engine, self.watch, self.cores = engine, watch, engine.capacity()

    def start(self, name: str, program: Callable[[Context], Any], data: Dataset, partitions: int) -> None:
        job = ProgramJob(program=cloudpickle.dumps(program), data=data, partitions=partitions)
        self.engine.prepare(name, job)
        self.engine.start(JobSpec(id=name))

    def grant(self, cores: dict[str, float]) -> None:
        self.engine.grant(cores)

    def result(self, name: str) -> Any:
        while name not in self.watch.endings:
            time.sleep(0.01)
        return unpack(self.watch.endings[name].result.payload)


@contextmanager
def bench(cores: int) -> Iterator[Bench]:
    watch = Watch()
    journal = Journal(WallClock(), watch)
    with tempfile.TemporaryDirectory() as directory:
        site = Site(cores=cores, epoch_seconds=1.0, directory=Path(directory))
        engine = LocalEngine(make_node(site, journal))
        yield Bench(engine, watch)
        engine.close()


def empty(partition: Partition) -> None:
    """Do nothing."""


def work(partition: Partition, rounds: int) -> float:
    """Take some milliseconds: `rounds` passes over an array that stays in the cache."""
    values = np.linspace(0.0, 1.0, 4096)
    for _ in range(rounds):
        values = np.sin(values)
    return float(values[0])


def rounds_for(seconds: float) -> int:
    """Return how many rounds of `work` take that long here."""
    partition = Dataset().cut(1)[0]
    work(partition, 10)
    took = min(_timed(lambda: work(partition, 200)) for _ in range(5))
    return max(1, round(200 * seconds / took))


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def round_trip(repeats: int) -> dict[str, float]:
    """Return milliseconds of a map of one empty task, and of a bare relay over sockets beside it."""

    def program(function: Callable[..., Any]) -> Callable[[Context], list[float]]:
        def train(ctx: Context) -> list[float]:
            return [_timed(lambda: ctx.map(function)) for _ in range(repeats)]

        return train

    # One is known everywhere by its name; the other, of this script, travels by value with every map.
    with bench(1) as b:
        for name, function in (("named", len), ("by_value", empty)):
            b.start(name, program(function), Dataset(), 1)
            b.grant({name: b.cores})
            b.result(name)
        named, by_value = b.result("named"), b.result("by_value")
    return {
        "median_ms": 1e3 * statistics.median(named),
        "fastest_ms": 1e3 * min(named),
        "by_value_median_ms": 1e3 * statistics.median(by_value),
        "bare_relay_median_ms": 1e3 * statistics.median(bare_relay(repeats)),
    }


def bare_relay(repeats: int) -> list[float]:
    """Return the seconds of a message passed on by one process, answered by another, and passed back."""
    near, near_end = socket.socketpair()
    far, far_end = socket.socketpair()
    children = []
    for relay in (True, False):
        pid = os.fork()
        if pid == 0:
            near.close()
            (far_end if relay else far).close()
            while relay and (message := near_end.recv(64)):
                far.send(message)
                near_end.send(far.recv(64))
            near_end.close()
            far.close()
            while not relay and (message := far_end.recv(64)):
                far_end.send(message)
            os._exit(0)
        children.append(pid)
    for end in (near_end, far, far_end):
        end.close()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        near.send(bytes(40))
        near.recv(64)
        times.append(time.perf_counter() - began)
    near.close()
    for pid in children:
        os.waitpid(pid, 0)
    return times


def alone(seconds_per_task: float, turns: int, cores: int) -> dict[str, float]:
    """Return the iterations of one job alone against those of the same loop inline, in turns.

    `within_ratio` compares with the time that the tasks themselves took where they ran: it leaves out that
    two busy cores may each be slower than one.
    """
    rounds, partitions = rounds_for(seconds_per_task), 8

    def task(partition: Partition) -> float:
        return _timed(lambda: work(partition, rounds))

    def iterate(ctx: Context) -> float:
        took = sum(ctx.map(task))
        ctx.report(1.0)
        return took

    def program(ctx: Context) -> list[tuple[float, float]]:
        times = []
        for number in range(turns):
            while not (folder / f"go-{number}").exists():
                time.sleep(0.001)
            began = time.perf_counter()
            within = sum(iterate(ctx) for _ in range(5))
            times.append((time.perf_counter() - began, within))
            (folder / f"done-{number}").touch()
        return times

    data = Dataset(np.zeros((partitions, 1)))
    inline = InlineContext(data, partitions=partitions)
    expected = []
    with tempfile.TemporaryDirectory() as name, bench(cores) as b:
        folder = Path(name)
        b.start("alone", program, data, partitions)
        b.grant({"alone": b.cores})
        for number in range(turns):
            expected.append(_timed(lambda: [iterate(inline) for _ in range(5)]))
            (folder / f"go-{number}").touch()
            while not (folder / f"done-{number}").exists():
                time.sleep(0.005)
        times = b.result("alone")
    ratios = [one / (cores * whole) for one, (whole, _) in zip(expected, times, strict=True)]
    within = [inside / (cores * whole) for whole, inside in times]
    return {"median_ratio": statistics.median(ratios), "within_ratio": statistics.median(within)}


def shares(seconds: float, cores: int) -> dict[str, Any]:
    """Return by how many points of all CPU delivered each of 8 jobs missed its share of the grants."""
    units = dict(zip("abcdefgh", (1, 2, 4, 6, 8, 10, 13, 20), strict=True))
    rounds = {name: rounds_for(0.002 + 0.002 * place) for place, name in enumerate(units)}

    def endless(mine: int) -> Callable[[Context], None]:
        def program(ctx: Context) -> None:
            while True:
                ctx.map(work, mine)
                ctx.report(1.0)

        return program

    with bench(cores) as b:
        for name in units:
            b.start(name, endless(rounds[name]), Dataset(np.zeros((8, 1))), 8)
        b.grant({name: b.cores * count / 64 for name, count in units.items()})
        while len(b.watch.cpu) < len(units):
            time.sleep(0.05)
        before = dict(b.watch.cpu)
        time.sleep(seconds)
        used = {name: b.watch.cpu[name] - before[name] for name in units}
    total = sum(used.values())
    off = {name: 100 * (used[name] / total - units[name] / 64) for name in units}
    return {"worst_points": max(map(abs, off.values())), "points": off, "cores_used": total / seconds}


def memory(jobs: int) -> dict[str, float]:
    """Return the memory that one more idle job costs: what its driver shares with no other process."""

    def program(ctx: Context) -> None:
        ctx.map(empty)
        ctx.report(float(os.getpid()))
        ctx.map(empty)
        time.sleep(3600)

    with Cluster(1) as cluster:
        handles = [cluster.submit(program, (np.zeros((1000, 10)), None)) for _ in range(jobs)]
        while not all(job.losses for job in handles):
            time.sleep(0.05)
        sizes = [_own_memory(int(job.losses[0])) for job in handles]
        cluster.shutdown(cancel=True)
    return {"mean_mb": statistics.mean(sizes) / 1e6, "most_mb": max(sizes) / 1e6}


def _own_memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return fields["Private_Clean"] + fields["Private_Dirty"]


def own_cpu(jobs: int, seconds: float) -> dict[str, float]:
    """Return what the cluster's own process uses, in parts of a core: decisions alone, and all of it."""
    rounds = rounds_for(0.01)

    def program(ctx: Context) -> None:
        for number in range(1_000_000):
            ctx.map(work, rounds)
            ctx.report(1.0 / (1 + number))

    with Cluster() as cluster:
        handles = [cluster.submit(program, (np.zeros((8, 1)), None)) for _ in range(jobs)]
        while not all(job.losses for job in handles):
            time.sleep(0.1)
        before, began, cpu = len(cluster.history.decisions()), time.monotonic(), time.process_time()
        time.sleep(seconds)
        took, used = time.monotonic() - began, time.process_time() - cpu
        decisions = cluster.history.decisions()[before:]
        cluster.shutdown(cancel=True)
    return {"decisions": sum(one.seconds for one in decisions) / took, "process": used / took}


def useful_cpu(seconds: float) -> dict[str, float]:
    """Return the CPU time delivered to jobs under total quality against that under fair shares."""
    rounds = rounds_for(0.01)

    def program(ctx: Context) -> None:
        for number in range(1_000_000):
            ctx.map(work, rounds)
            ctx.report(1.0 / (1 + number))

    delivered: dict[str, list[float]] = {"fair": [], "total-quality": []}
    for policy in ("fair", "total-quality") * 2:
        with Cluster(policy=policy) as cluster:
            handles = [cluster.submit(program, (np.zeros((8, 1)), None)) for _ in range(8)]
            while not all(job.losses for job in handles):
                time.sleep(0.05)
            before = sum(one.cpu_seconds for job in handles for one in job.observations)
            time.sleep(seconds)
            after = sum(one.cpu_seconds for job in handles for one in job.observations)
            delivered[policy].append(after - before)
            cluster.shutdown(cancel=True)
    mean = {policy: statistics.mean(seen) for policy, seen in delivered.items()}
    return {"ratio": mean["total-quality"] / mean["fair"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="one of the measurements")
    options = parser.parse_args()
    cores = min(os.cpu_count() or 1, 2)
    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        "round_trip": lambda: round_trip(3000),
        "alone": lambda: alone(0.01, 12, 1),
        "alone_all_cores": lambda: alone(0.01, 12, cores),
        "shares": lambda: shares(5.0, cores),
        "memory": lambda: memory(20),
        "own_cpu_50_jobs": lambda: own_cpu(50, 10.0),
        "useful_cpu": lambda: useful_cpu(4.0),
    }
    results = {}
    for name, measure in measurements.items():
        if options.only in (None, name):
            results[name] = measure()
            if not options.json:
                print(f"{name}: {json.dumps(results[name])}", flush=True)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
