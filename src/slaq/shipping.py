"""Sends what a process reports to a service elsewhere: kept in a file first, so that neither side need be up.

A process that no service started, on any machine, reports to a job when SLAQ_URL says where the service is and
SLAQ_JOB which of its jobs this is. Every report is appended to a spool, which costs no more than a report
always does; a thread sends what is new. What could not be sent by the end of the process is sent by the next
one that reports to the same job.
"""

import atexit
import fcntl
import logging
import os
import re
import secrets
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from slaq.core.errors import ConflictError, MissingExtraError, SlaqError, UnknownJobError

JOB_VARIABLE, URL_VARIABLE = "SLAQ_JOB", "SLAQ_URL"
#: Seconds between two looks at the spool, and for a last try when the process ends.
INTERVAL, FAREWELL = 0.5, 10.0
#: Bytes sent at a time, and the seconds to wait after a failure.
PIECE, PAUSE = 1 << 20, 2.0
#: After these nothing that is sent will ever be taken.
_FINAL = (ConflictError, MissingExtraError, UnknownJobError)

_log = logging.getLogger(__name__)


def spool_for_this_process() -> str | None:
    """Return the file that reports go to, which is being sent from now on; None where there is nowhere to."""
    job_id = os.environ.get(JOB_VARIABLE)
    if not job_id or not os.environ.get(URL_VARIABLE):
        return None
    spool = _spool(job_id)
    Shipper(spool, job_id).start()
    return str(spool)


class Shipper:
    """Sends one spool in a thread of its own; where another process does, it leaves that to it."""

    def __init__(self, spool: Path, job_id: str) -> None:
        self._spool = spool
        self._job_id = job_id
        self._source = spool.stem.rpartition(".")[2]
        self._note = spool.with_suffix(".sent")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slaq-shipper", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()
        atexit.register(self.finish)

    def finish(self) -> None:
        """Send the rest, if that can be done soon."""
        self._over.set()
        self._thread.join(FAREWELL)

    def _run(self) -> None:
        with self._spool.with_suffix(".lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._over.wait(INTERVAL):
                        return
            try:
                self._send_all()
            except _FINAL as error:
                _log.warning("reports not taken", extra={"job": self._job_id, "reason": str(error)})

    def _send_all(self) -> None:
        # By name, and in this thread: engines know how jobs report, but nothing of clients, and a training loop
        # need not wait until one is loaded.
        connect = import_module("slaq.client").connect
        with connect(patience=FAREWELL) as client:
            sent = self._sent()
            while True:
                last = self._over.is_set()
                try:
                    while (lines := self._lines(sent)) != b"":
                        sent = client.report(self._job_id, lines, offset=sent, source=self._source)
                        self._note.write_text(str(sent))
                except _FINAL:
                    raise
                except (SlaqError, OSError) as error:
                    _log.warning("reports wait", extra={"job": self._job_id, "reason": str(error)})
                    self._over.wait(PAUSE)
                if last:
                    return
                self._over.wait(INTERVAL)

    def _sent(self) -> int:
        with suppress(OSError, ValueError):
            return int(self._note.read_text())
        return 0

    def _lines(self, offset: int) -> bytes:
        """Return whole lines from there on; nothing where there is none yet."""
        with self._spool.open("rb") as file:
            file.seek(offset)
            piece = file.read(PIECE)
        return piece[: piece.rfind(b"\n") + 1]


def _spool(job_id: str) -> Path:
    """Return the spool of a job on this machine, the one there is or a new one."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "slaq" / "spool"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job_id)
    there = sorted(folder.glob(f"{name}.[0-9a-f]*.jsonl"))
    spool = there[0] if there else folder / f"{name}.{secrets.token_hex(8)}.jsonl"
    spool.touch(mode=0o600)
    return spool
