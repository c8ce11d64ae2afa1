"""One Spark session for all tests of a process: starting one takes as long as many tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from slaq.spark import session

SLOTS = 4


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A local session with four slots, in one process of those that run tests."""
    if getattr(request.config.option, "loadgroup", False):
        grouped = [item for item in request.session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid for item in grouped), "pytest-xdist does not keep tests in their groups"
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    made = session(f"local[{SLOTS}]", settings=settings)
    yield made
    made.stop()
