"""The durable store as the scheduler sees it: jobs are admitted as there is room, and a full disk stops nothing."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.errors import StoreError
from slaq.core.events import Event, JobEnded
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.stores.sqlite import SqliteStore

#: Events that are kept in memory while the disk is full; what commands report stays in their files anyway.
MOST_UNSAVED = 1_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Decided:
    decision: Decision
    allocation: Allocation


class Steward(Protocol):
    """Looks after jobs on behalf of the ledger."""

    def room(self) -> int:
        """Return how many more jobs may run."""
        ...

    def admit(self, spec: JobSpec) -> bool:
        """Get a job ready to be started, or end it; return whether it is ready."""
        ...

    def take(self, events: Sequence[Event]) -> None:
        """Take note of what has happened."""
        ...


class Ledger(Store):
    """Collects what an epoch writes, so that it is one transaction, and keeps it where that fails.

    What is collected is lost in a crash: at most the current epoch. An end or a loss of it is then found
    again: the job is still known as running, and what it reported lies in its files.
    """

    def __init__(self, store: SqliteStore, steward: Steward) -> None:
        self._store = store
        self._steward = steward
        self._entries: list[Sequence[Event] | _Decided] = []
        self._unsaved = 0
        #: What the disk says; empty when all is well.
        self.trouble = ""

    @override
    def due(self, now: float) -> Sequence[JobSpec]:
        room = self._steward.room()
        if room <= 0 or self.trouble:
            return ()
        try:
            found = self._store.due(now, room)
        except StoreError as error:
            self._note(error)
            return ()
        return [spec for spec in found if self._steward.admit(spec)]

    @override
    def pending(self) -> bool:
        return True

    @override
    def append(self, events: Sequence[Event]) -> None:
        if events:
            self._entries.append(events)
            self._unsaved += len(events)
            self._steward.take(events)

    @override
    def record(self, decision: Decision, allocation: Allocation) -> None:
        self._entries.append(_Decided(decision, allocation))

    @override
    def checkpoint(self, job_id: str) -> bytes | None:
        return self._store.checkpoint(job_id)

    def flush(self, now: float, snapshot: Callable[[], bytes] | None = None) -> bool:
        """Write what was collected, all in one transaction; return whether that could be done."""
        if not self._entries and snapshot is None:
            return True
        try:
            with self._store.epoch():
                for entry in self._entries:
                    if isinstance(entry, _Decided):
                        self._store.record(entry.decision, entry.allocation)
                    else:
                        self._store.append(entry)
                if snapshot is not None:
                    self._store.save_snapshot(snapshot(), at=now)
        except StoreError as error:
            self._note(error)
            self._make_room()
            return False
        self._entries.clear()
        self._unsaved = 0
        if self.trouble:
            _log.warning("store can be written again")
            self.trouble = ""
        return True

    def _note(self, error: StoreError) -> None:
        if not self.trouble:
            _log.error("store cannot be written", extra={"reason": str(error)})
        self.trouble = str(error)

    def _make_room(self) -> None:
        """Let go of decisions, then of losses; never of the end of a job."""
        entries = [entry for entry in self._entries if not isinstance(entry, _Decided)]
        if self._unsaved > MOST_UNSAVED:
            kept = [event for entry in entries for event in entry if isinstance(event, JobEnded)]
            _log.error("losses dropped", extra={"count": self._unsaved - len(kept), "reason": self.trouble})
            entries, self._unsaved = ([kept] if kept else []), len(kept)
        self._entries = [*entries]
