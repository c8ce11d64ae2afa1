"""Every store keeps the store contract."""

from collections.abc import Sequence

from typing_extensions import override

from slaq.core.events import CapacityChanged
from slaq.core.job import JobSpec
from slaq.stores.memory import MemoryStore
from tests.contracts.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @override
    @staticmethod
    def open_store(specs: Sequence[JobSpec]) -> MemoryStore:
        return MemoryStore(specs)

    def test_events_of_the_cluster_are_kept(self) -> None:
        """Changes of capacity belong to no job and are read on their own."""
        store = MemoryStore()
        store.append([CapacityChanged(at=1.0, capacity=2)])
        assert list(store.cluster_events()) == [CapacityChanged(at=1.0, capacity=2)]
