"""What all tests share: hypothesis profiles, chosen by HYPOTHESIS_PROFILE, and one Spark session for all."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Examples are derived from the test itself and never timed, so that a run on a busy machine gives the
# same verdict as one on an idle machine.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", settings.get_profile("ci"), max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell has what it starts in the background ignore Ctrl-C, and all that comes of it; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run no code of Spark's often enough for Java's second compiler to pay: without it they take two thirds of
# the CPU time. For drivers, and for the daemons of a standalone cluster.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

#: Modules, classes and tests that start services and engines, draw, or simulate: half of the time of all
#: tests without Spark, left out by `-m "not slow"`.
SLOW = (
    "tests/algorithms/test_agreement.py",
    "tests/contracts/test_local_engine.py",
    "tests/contracts/test_policies.py::TestHighFloors",
    "tests/integration/test_cli_run.py",
    "tests/integration/test_cli_serve.py",
    "tests/integration/test_cli_service.py",
    "tests/integration/test_local_faults.py",
    "tests/integration/test_local_shares.py",
    "tests/integration/test_processes_shares.py",
    "tests/integration/test_reports.py::test_any_run_can_be_shown",
    "tests/integration/test_service_kills.py",
    "tests/integration/test_simulation.py",
    "tests/integration/test_whatif.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that share a Spark session in one process, where it starts once, and mark what is slow.

    Where several processes share the tests, those that are slow come first: else one of them, begun last, keeps one
    process busy while the others have nothing left to do.
    """
    for item in items:
        on_spark = "spark" in getattr(item, "fixturenames", ())
        if on_spark:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if on_spark or item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
