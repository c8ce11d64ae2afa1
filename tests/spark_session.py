"""One Spark session for all tests of a process: starting one takes as long as many tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from slaq.spark import session

SLOTS = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with four slots."""
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    made = session(f"local[{SLOTS}]", settings=settings)
    yield made
    made.stop()
