"""What all tests share: the hypothesis profiles, chosen by HYPOTHESIS_PROFILE, and one process for Spark's."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share a Spark session in one process: each process would start a JVM of its own."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
