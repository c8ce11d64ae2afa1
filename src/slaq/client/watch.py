"""Calls back when jobs end; one event stream serves all jobs."""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from slaq.client.connection import Connection
from slaq.client.events import Stream
from slaq.core.errors import SlaqError

if TYPE_CHECKING:
    from slaq.client.job import ServiceJob

_log = logging.getLogger(__name__)
Callback = Callable[["ServiceJob"], object]
#: Notices after which a job may have ended: its end, and that notices were missed.
KINDS = ("job.ended", "missed")


class Watch:
    """Calls each callback once, when its job has ended; one thread runs while there are jobs to wait for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[ServiceJob, Callback]]] = {}
        self._stream: Stream | None = None

    def add(self, job: "ServiceJob", callback: Callback) -> None:
        """Call back once the job has ended; at once if it has ended already."""
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
            # The job may have ended before it was listed. The thread that removes the job from the list runs its
            # callback.
            self._look_at(job)

    def close(self) -> None:
        """Forget all callbacks, and end the thread."""
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
            # Nobody sees an exception of this thread, so that it is logged.
            with self._lock:
                owed = len(self._waiting)
            if owed:
                _log.error("jobs are no longer watched", extra={"reason": str(error), "callbacks": owed})
        finally:
            with self._lock:
                if self._stream is stream:
                    self._stream = None

    def _rest(self) -> None:
        """End the thread; the next callback starts another one."""
        if self._stream is not None:
            self._stream.stop()
            self._stream = None

    def _look_at_all(self) -> None:
        for waiting in list(self._waiting.values()):
            self._look_at(waiting[0][0])

    def _look_at(self, job: "ServiceJob") -> None:
        try:
            ended = job.done()
        except SlaqError as error:
            _log.warning("job not found", extra={"job": job.id, "reason": str(error)})
            return
        if ended:
            self._settle(job.id)

    def _settle(self, job_id: str) -> None:
        """Call back for a job that has ended."""
        with self._lock:
            owed = self._waiting.pop(job_id, [])
            if not self._waiting:
                self._rest()
        for job, callback in owed:
            _start(partial(_call, job, callback), f"slaq-callback-{job_id}")


def _call(job: "ServiceJob", callback: Callback) -> None:
    try:
        # The notice may arrive just before the service shows the end.
        job.wait()
        callback(job)
    except Exception:
        _log.exception("callback failed", extra={"job": job.id})


def _start(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()
