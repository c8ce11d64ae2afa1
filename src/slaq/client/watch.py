"""Waits for the ends of many jobs over one event stream, and calls back."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from slaq.client.connection import Connection
from slaq.client.events import Stream
from slaq.core.errors import SlaqError

if TYPE_CHECKING:
    from slaq.client.job import Job

_log = logging.getLogger(__name__)
Callback = Callable[["Job"], object]
#: What may mean that a job has ended: its end, or that notices were missed.
KINDS = ("job.ended", "missed")


class Watch:
    """Calls each callback once, when its job has ended; one thread, while there are jobs to wait for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[Job, Callback]]] = {}
        self._stream: Stream | None = None

    def add(self, job: "Job", callback: Callback) -> None:
        """Call back once the job has ended, which may be now."""
        if job.done():
            _start(partial(_call, job, callback), f"slaq-callback-{job.id}")
            return
        stream = None
        with self._lock:
            self._waiting.setdefault(job.id, []).append((job, callback))
            if self._stream is None:
                stream = self._stream = Stream(self._connection, kinds=KINDS, opened=self._look_at_all)
        if stream is not None:
            _start(partial(self._follow, stream), "slaq-watch")
        else:
            # It may have ended while it was put down; whoever takes it out of the list calls back.
            self._look_at(job)

    def close(self) -> None:
        """Wait for no more ends."""
        with self._lock:
            self._waiting.clear()
            self._rest()

    def _follow(self, stream: Stream) -> None:
        try:
            for told in stream:
                if told.job_id is None:
                    self._look_at_all()
                else:
                    self._settle(told.job_id)
        except Exception as error:
            # Nobody calls this thread; the callbacks it owes are the user's only to miss.
            with self._lock:
                owed = len(self._waiting)
            if owed:
                _log.error("jobs are no longer watched", extra={"reason": str(error), "callbacks": owed})
        finally:
            with self._lock:
                if self._stream is stream:
                    self._stream = None

    def _rest(self) -> None:
        """Let the thread end; whoever comes next starts another."""
        if self._stream is not None:
            self._stream.stop()
            self._stream = None

    def _look_at_all(self) -> None:
        for waiting in list(self._waiting.values()):
            self._look_at(waiting[0][0])

    def _look_at(self, job: "Job") -> None:
        try:
            ended = job.done()
        except SlaqError as error:
            _log.warning("job not found", extra={"job": job.id, "reason": str(error)})
            return
        if ended:
            self._settle(job.id)

    def _settle(self, job_id: str) -> None:
        """Make the calls that are owed for a job that has ended."""
        with self._lock:
            owed = self._waiting.pop(job_id, [])
            if not self._waiting:
                self._rest()
        for job, callback in owed:
            _start(partial(_call, job, callback), f"slaq-callback-{job_id}")


def _call(job: "Job", callback: Callback) -> None:
    try:
        # The notice of an end may be a moment ahead of what the service shows.
        job.wait()
        callback(job)
    except Exception:
        _log.exception("callback failed", extra={"job": job.id})


def _start(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()
