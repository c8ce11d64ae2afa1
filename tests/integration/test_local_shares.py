"""What a program is granted is what it gets: with real processes, judged by CPU time alone."""

import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from slaq.core.events import CpuUsed, LossObserved
from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.local.engine import LocalEngine
from slaq.engines.node.node import make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset, Partition


def maps(ctx: Context) -> None:
    def spin(_: Partition) -> None:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass

    while True:
        ctx.map(spin)
        ctx.report(1.0)


def drives(ctx: Context) -> None:
    while True:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass
        ctx.report(1.0)


@pytest.mark.parametrize("kinds", [(maps, maps), (drives, drives), (maps, drives)])
def test_the_cpu_time_of_two_programs_is_as_their_grants(
    kinds: tuple[object, object], tmp_path: Path
) -> None:
    """A job with three quarters of the cores gets about three quarters of the CPU that both use."""
    journal = Journal(WallClock())
    engine = LocalEngine(make_node(Site(cores=1, epoch_seconds=0.5, directory=tmp_path), journal))
    for name, program in zip(("large", "small"), kinds, strict=True):
        # Several tasks to a map: while a driver is between two maps, its core is lent to the other job.
        job = ProgramJob(program=cloudpickle.dumps(program), data=Dataset(np.zeros((4, 1))), partitions=4)
        engine.prepare(name, job)
        engine.start(JobSpec(id=name))
    engine.grant({"large": 0.75, "small": 0.25})
    used = {"large": 0.0, "small": 0.0}
    while sum(used.values()) < 1.5:
        time.sleep(0.05)
        for event in engine.poll():
            if isinstance(event, CpuUsed):
                continue
            assert isinstance(event, LossObserved)
            # The first holds the cost of starting.
            used[event.job_id] += event.observation.cpu_seconds * (event.observation.iteration > 0)
    engine.close()
    assert used["large"] / sum(used.values()) == pytest.approx(0.75, abs=0.08)


def test_a_program_leaves_to_others_what_it_was_not_granted(tmp_path: Path) -> None:
    """Where part of the capacity is granted to no program, no program borrows it."""
    journal = Journal(WallClock())
    engine = LocalEngine(make_node(Site(cores=1, epoch_seconds=0.5, directory=tmp_path), journal))
    job = ProgramJob(program=cloudpickle.dumps(maps), data=Dataset(), partitions=1)
    engine.prepare("held back", job)
    engine.start(JobSpec(id="held back"))
    engine.grant({"held back": 0.25})
    while not engine.poll():
        time.sleep(0.01)
    began = time.monotonic()
    time.sleep(2.0)
    seen = engine.poll()
    took = time.monotonic() - began
    engine.close()
    used = sum(event.observation.cpu_seconds for event in seen if isinstance(event, LossObserved))
    assert 0 < used < 0.25 * took + 0.3
