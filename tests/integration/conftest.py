"""Fixtures that several integration tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.opening import open_service
from tests.integration.serving import Served, serving

__all__ = ["open_service"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with sockets and two cores, the same for a whole module."""
    with serving(tmp_path_factory.mktemp("home"), cores=2) as found:
        yield found


@pytest.fixture
def here(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to type in, with the service as the usual one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLAQ_HOME", str(served.settings.home))
    for name in ("SLAQ_URL", "SLAQ_TOKEN", "SLAQ_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
