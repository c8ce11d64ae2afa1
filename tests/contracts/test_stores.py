"""Every store keeps the store contract."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from slaq.core.events import CapacityChanged
from slaq.core.job import JobSpec
from slaq.stores.memory import MemoryStore
from slaq.stores.sqlite import SqliteStore
from slaq.testing import StoreContract
from slaq.testing.store_contract import IN_MEMORY


class TestMemoryStore(StoreContract):
    @override
    @staticmethod
    def open_store(specs: Sequence[JobSpec]) -> MemoryStore:
        return MemoryStore(specs)

    def test_events_of_the_cluster_are_kept(self) -> None:
        """Changes of capacity belong to no job and are read on their own."""
        store = self.open_store([])
        store.append([CapacityChanged(at=1.0, capacity=2.0)])
        assert list(store.cluster_events()) == [CapacityChanged(at=1.0, capacity=2.0)]


class TestSqliteStore(StoreContract):
    _opened: ClassVar[list[SqliteStore]] = []

    @override
    @classmethod
    def open_store(cls, specs: Sequence[JobSpec]) -> SqliteStore:
        store = SqliteStore(Path(tempfile.mkdtemp(prefix="slaq-store-", dir=IN_MEMORY)) / "slaq.db")
        cls._opened.append(store)
        for spec in specs:
            store.submit(spec)
        return store

    @pytest.fixture(autouse=True)
    def _leave_nothing(self) -> Iterator[None]:
        yield
        while self._opened:
            store = self._opened.pop()
            store.close()
            for left in store.path.parent.iterdir():
                left.unlink()
            store.path.parent.rmdir()

    def test_events_of_the_cluster_are_kept(self) -> None:
        """Changes of capacity belong to no job and are read on their own."""
        store = self.open_store([])
        store.append([CapacityChanged(at=1.0, capacity=2.0)])
        assert list(store.cluster_events()) == [CapacityChanged(at=1.0, capacity=2.0)]
