"""The simulated engine keeps the engine contract."""

import numpy as np
import pytest
from typing_extensions import override

from slaq.core.job import JobSpec
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.workload import SimulatedJob, Workload
from slaq.testing import Bench, EngineContract


class TestSimulatedEngine(EngineContract):
    @pytest.fixture
    @override
    def bench(self) -> Bench:
        workload = Workload(
            tuple(
                SimulatedJob(
                    spec=JobSpec(id=name),
                    losses=np.array([4.0, 2.0, 3.0, 1.0]),
                    cpu_seconds_per_iteration=cost,
                )
                for name, cost in (("quick", 0.4), ("even", 1.0), ("slow", 2.5))
            )
        )
        clock = VirtualClock()
        return Bench(
            engine=SimulatedEngine(workload, clock, 3.0),
            clock=clock,
            specs=workload.specs,
            step=1.0,
            patience=60.0,
        )
