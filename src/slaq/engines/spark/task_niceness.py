"""Lowers the priority of a local session's tasks below its driver's, so that stages follow each other sooner."""

import contextlib
import os
import sys
from pathlib import Path

#: The name of threads that run tasks, cut to the length that the kernel keeps.
RUNS_TASKS = "Executor task l"
#: How nice they are to the driver's threads, which they outnumber. Several of those take turns before the next
#: stage begins, each waiting for a core; of 5 slots granted beside 3 to others, a job with iterations of about
#: half a second held 4.1 to 4.6 without this, 4.6 to 4.8 with 3, and 4.6 to 4.9 with 5.
NICENESS = 5
#: The largest value there is.
NICEST = 19


class TaskNiceness:
    """Lowers the priority of the threads that run tasks in one Java process, as they come.

    What these start, such as those that feed Python workers, has it from them. Nobody may raise it
    again without privilege; the threads end when they have been idle for a minute.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads = Path(f"/proc/{pid}/task")
        #: Threads of the last reading, and those that were in the one before too.
        self._seen: set[str] = set()
        self._known: set[str] = set()

    def look(self) -> None:
        """Handle the threads that were started since the last call; does nothing outside Linux."""
        if sys.platform != "linux":
            return
        # Processes and threads may end at any moment; those of other users are left alone.
        with contextlib.suppress(OSError):
            there = set(os.listdir(self._threads))
            level = min(os.getpriority(os.PRIO_PROCESS, self._pid) + NICENESS, NICEST)
            for thread in there - self._known:
                with contextlib.suppress(OSError):
                    self._lower(thread, level)
            # Read each twice, because a new thread has no name yet.
            self._known = self._seen & there
            self._seen = there

    def _lower(self, thread: str, level: int) -> None:
        name = (self._threads / thread / "comm").read_text().rstrip("\n")
        if name == RUNS_TASKS and os.getpriority(os.PRIO_PROCESS, int(thread)) < level:
            os.setpriority(os.PRIO_PROCESS, int(thread), level)
