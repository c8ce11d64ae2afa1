"""Sends a process's reports to a service elsewhere, through a file that survives the end of either.

A process that no service started, on any machine, reports to a job when SLAQ_URL names the service and
SLAQ_JOB names the job. Each report is appended to a spool file, which costs what any report costs; a thread
sends what is new. What could not be sent before the process ended is sent by the next process that reports to
the same job. A file beside the spool says what the job holds: `slaq.share` reads it.
"""

import atexit
import fcntl
import json
import logging
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from slaq.core.errors import ConflictError, MissingExtraError, SlaqError, UnknownJobError
from slaq.durable import write_durably
from slaq.jobs import variables
from slaq.jobs.share import Share, read_share, tell_share

if TYPE_CHECKING:
    from slaq.client import Client

#: Seconds between two looks at the spool, and for a last try when the process ends.
INTERVAL, FAREWELL = 0.5, 10.0
#: Bytes sent at a time, and the seconds to wait after a failure.
PIECE, PAUSE = 1 << 20, 2.0
#: Seconds between two questions what the job holds.
ASK_SECONDS = 2.0
#: After one of these the service will never take a report of this job.
_FINAL = (ConflictError, MissingExtraError, UnknownJobError)

_log = logging.getLogger(__name__)


def spool_for_this_process() -> str | None:
    """Return the file to report to, and begin to send it; None where the environment names no job."""
    job_id = os.environ.get(variables.JOB)
    if not job_id or not os.environ.get(variables.URL):
        return None
    spool = _spool(job_id)
    ReportUploader(spool, job_id).start()
    return str(spool)


class ReportUploader:
    """Sends one spool file in a thread; waits while another process sends the same file."""

    def __init__(self, spool: Path, job_id: str) -> None:
        self._spool = spool
        self._job_id = job_id
        self._source = spool.stem.rpartition(".")[2]
        self._note = spool.with_suffix(".sent")
        self._share = spool.with_suffix(".share")
        #: What the share file holds, and when to ask the service again.
        self._held: Share | None = None
        self._ask_at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slaq-report-uploader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        atexit.register(self.finish)
        tell_share(lambda: read_share(self._share))

    def finish(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._over.set()
        self._thread.join(FAREWELL)

    def _run(self) -> None:
        try:
            self._upload()
        except Exception as error:
            # The spool stays, and the next process sends it.
            _log.exception("reports not sent", extra={"job": self._job_id, "reason": str(error)})

    def _upload(self) -> None:
        with self._spool.with_suffix(".lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._over.wait(INTERVAL):
                        return
            # A process that was killed may have left one.
            self._share.unlink(missing_ok=True)
            try:
                self._send_all()
            except _FINAL as error:
                _log.warning("reports refused", extra={"job": self._job_id, "reason": str(error)})
            finally:
                self._share.unlink(missing_ok=True)

    def _send_all(self) -> None:
        # Here, so that a training loop need not wait while the client loads.
        from slaq.client import connect

        with connect(patience=FAREWELL) as client:
            sent = self._sent()
            while True:
                last = self._over.is_set()
                try:
                    while (lines := self._lines(sent)) != b"":
                        sent = client.report(self._job_id, lines, offset=sent, source=self._source)
                        self._note.write_text(str(sent))
                    self._fetch_share(client)
                except _FINAL:
                    raise
                except (SlaqError, OSError) as error:
                    _log.warning("reports not sent yet", extra={"job": self._job_id, "reason": str(error)})
                    self._over.wait(PAUSE)
                if last:
                    return
                self._over.wait(INTERVAL)

    def _fetch_share(self, client: "Client") -> None:
        """Ask the service what the job holds, now and then, and keep the answer for `slaq.share`."""
        if time.monotonic() < self._ask_at:
            return
        self._ask_at = time.monotonic() + ASK_SECONDS
        seen = client.show_job(self._job_id)
        # Without max_cores the job uses no cores of the cluster, and is given none.
        limited = seen["max_cores"] is not None
        held = Share(cores=seen["cores"], workers=seen["cores"]) if limited else None
        if held is not None and held != self._held:
            write_durably(self._share, [json.dumps(asdict(held)).encode()])
            self._held = held

    def _sent(self) -> int:
        with suppress(OSError, ValueError):
            return int(self._note.read_text())
        return 0

    def _lines(self, offset: int) -> bytes:
        """Return whole lines from the offset on; nothing where there is none yet."""
        with self._spool.open("rb") as file:
            file.seek(offset)
            piece = file.read(PIECE)
        return piece[: piece.rfind(b"\n") + 1]


def _spool(job_id: str) -> Path:
    """Return the spool file of a job on this machine: the one there is, or a new one."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "slaq" / "spool"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job_id)
    there = sorted(folder.glob(f"{name}.[0-9a-f]*.jsonl"))
    spool = there[0] if there else folder / f"{name}.{secrets.token_hex(8)}.jsonl"
    spool.touch(mode=0o600)
    return spool
