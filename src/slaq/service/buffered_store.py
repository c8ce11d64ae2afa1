"""The durable store as the scheduler uses it: one transaction per epoch; a full disk does not stop decisions."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.errors import StoreError
from slaq.core.events import Event, JobEnded
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite import SqliteStore

#: Events that are kept in memory while the disk is full; what commands report is in their files as well.
MOST_UNSAVED = 1_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Decided:
    decision: Decision
    grant: Grant


class BufferedStore(Store):
    """Collects what an epoch writes and writes it in one transaction; where that fails, it tries again later.

    A crash loses what is collected: at most the current epoch. Its losses are then read again from the jobs'
    files, and a job whose end was lost is started again.
    """

    def __init__(self, store: SqliteStore, live_jobs: LiveJobs) -> None:
        self._store = store
        self._live_jobs = live_jobs
        self._entries: list[Sequence[Event] | _Decided] = []
        self._unsaved = 0
        #: Why the store cannot be written; empty when all is well.
        self.trouble = ""

    @override
    def queued(self) -> Iterable[JobSpec]:
        return self._live_jobs.queued()

    @override
    def started(self, job_id: str, now: float) -> None:
        """Do nothing: `PreparingEngine.begin` stores the start."""

    @override
    def append(self, events: Sequence[Event]) -> None:
        if events:
            self._entries.append(events)
            self._unsaved += len(events)
            self._live_jobs.take(events)

    @override
    def record(self, decision: Decision, grant: Grant) -> None:
        self._entries.append(_Decided(decision, grant))

    def flush(self, now: float, snapshot: Callable[[], bytes] | None = None) -> bool:
        """Write what was collected, all in one transaction; return whether that could be done."""
        if not self._entries and snapshot is None:
            return True
        try:
            try:
                self._write(self._entries, now, snapshot)
            except StoreError:
                raise
            except Exception:
                _log.exception("epoch cannot be stored as a whole")
                self._write_each(now)
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

    def _write(
        self,
        entries: Sequence[Sequence[Event] | _Decided],
        now: float,
        snapshot: Callable[[], bytes] | None = None,
    ) -> None:
        with self._store.epoch():
            for entry in entries:
                if isinstance(entry, _Decided):
                    self._store.record(entry.decision, entry.grant)
                else:
                    self._store.append(entry)
            if snapshot is not None:
                self._store.save_snapshot(snapshot(), at=now)

    def _write_each(self, now: float) -> None:
        """Write what was collected piece by piece; drop what cannot be written, lest one job stop all others."""
        for entry in self._entries:
            for part in [entry] if isinstance(entry, _Decided) else [[event] for event in entry]:
                try:
                    self._write([part], now)
                except StoreError:
                    raise
                except Exception as error:
                    _log.error(
                        "dropped what cannot be stored", extra={"what": repr(part)[:500], "why": repr(error)}
                    )

    def _note(self, error: StoreError) -> None:
        if not self.trouble:
            _log.error("store cannot be written", extra={"reason": str(error)})
        self.trouble = str(error)

    def _make_room(self) -> None:
        """Drop decisions, and losses if there are too many; never the end of a job."""
        entries = [entry for entry in self._entries if not isinstance(entry, _Decided)]
        if self._unsaved > MOST_UNSAVED:
            kept = [event for entry in entries for event in entry if isinstance(event, JobEnded)]
            _log.error("losses dropped", extra={"count": self._unsaved - len(kept), "reason": self.trouble})
            entries, self._unsaved = ([kept] if kept else []), len(kept)
        self._entries = [*entries]
