"""Runs what owners asked to be run when their jobs have ended: as these owners, and not for long."""

import logging
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from typing_extensions import override

from slaq.core.errors import SlaqError
from slaq.engines.node.commands.marks import MARK, kill_bearing, mark
from slaq.engines.processes import how_it_ended
from slaq.kinds.accounts import account_of
from slaq.service.parts import EndedJob, Notifier

#: Seconds that a command may take.
SECONDS = 60.0
#: Commands of one owner that wait for another one of that owner.
MOST_WAITING = 1_000
#: Goes to the folder as the owner, who may not be allowed to; then the owner's own shell words run.
_IN_FOLDER = 'cd -- "$0" 2>/dev/null || cd; exec /bin/sh -c "$1"'

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Queue:
    """The commands of one owner: one runs at a time, in a thread that ends with the last of them."""

    waiting: deque[Callable[[], None]] = field(default_factory=deque)


class ShellNotifier(Notifier):
    """Gives commands to the shell, those of one owner one after the other, so that nobody keeps others waiting."""

    def __init__(self, secret: str, seconds: float = SECONDS) -> None:
        """Take the secret that processes are marked with, so that the next service ends what a killed one left."""
        self._secret = secret
        self._seconds = seconds
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._running: set[str] = set()
        self._closed = False

    @override
    def check(self, owner: str) -> None:
        account_of(owner)

    @override
    def notify(self, job: EndedJob, told: Callable[[str], None]) -> None:
        with self._lock:
            if self._closed:
                return
            queue = self._queues.get(job.owner)
            full = queue is not None and len(queue.waiting) >= MOST_WAITING
            if queue is not None and not full:
                queue.waiting.append(partial(self._run, job, told))
            elif queue is None:
                queue = self._queues[job.owner] = _Queue(deque([partial(self._run, job, told)]))
                name = f"slaq-notify-{job.owner}"
                threading.Thread(target=self._work, args=(job.owner, queue), name=name, daemon=True).start()
        if full:
            told(f"{MOST_WAITING:,} others of {job.owner} wait already")

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
            for queue in self._queues.values():
                queue.waiting.clear()
        for made in running:
            kill_bearing(made)

    def _work(self, owner: str, queue: _Queue) -> None:
        while True:
            with self._lock:
                if not queue.waiting:
                    del self._queues[owner]
                    return
                run = queue.waiting.popleft()
            try:
                run()
            except Exception:
                _log.exception("notification failed", extra={"owner": owner})

    def _run(self, job: EndedJob, told: Callable[[str], None]) -> None:
        made = mark(self._secret, f"notify-{next(self._numbers)}")
        with self._lock:
            if self._closed:
                return
            self._running.add(made)
        try:
            problem = self._outcome(job, made)
        except (OSError, ValueError, SlaqError) as error:
            problem = f"it could not be started: {error}"
        finally:
            # Whatever it has started ends with it.
            kill_bearing(made)
            with self._lock:
                self._running.discard(made)
        if not self._closed:
            told(problem)

    def _outcome(self, job: EndedJob, made: str) -> str:
        """Run a command; return what went wrong, or nothing."""
        account = account_of(job.owner)
        as_owner = {}
        if account.run_as.uid != os.getuid():
            run_as = account.run_as
            as_owner = {"user": run_as.uid, "group": run_as.gid, "extra_groups": list(run_as.groups)}
        process = subprocess.Popen(
            ["/bin/sh", "-c", _IN_FOLDER, job.cwd or account.home, job.command],
            cwd="/",
            env=account.environment() | dict(job.env) | {MARK: made},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **as_owner,  # type: ignore[call-overload]
        )
        try:
            status = process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            kill_bearing(made)
            process.kill()
            process.wait()
            return f"it took longer than {self._seconds:g} seconds"
        return how_it_ended(status) if status else ""
