"""Has the tasks of a local session give way to its driver, so that jobs leave less unused between two stages."""

import contextlib
import os
import sys
from pathlib import Path

#: How a thread that runs tasks is called, as far as the kernel keeps names.
RUNS_TASKS = "Executor task l"
#: How nice they are to the driver's threads, which they outnumber. Several of those take turns before the next
#: stage begins, each waiting for a core; of 5 slots granted beside 3 to others, a job with iterations of about
#: half a second held 4.1 to 4.6 without this, 4.6 to 4.8 with 3, and 4.6 to 4.9 with 5.
NICENESS = 5
#: The most there is.
NICEST = 19


class Courtesy:
    """Lowers the priority of the threads that run tasks in one Java process, as they come.

    What these start, such as those that feed Python workers, has it from them. Nobody may raise it
    again without privilege; the threads end when they have been idle for a minute.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads = Path(f"/proc/{pid}/task")
        #: Threads that were there at the last look, and those that were there before that too.
        self._seen: set[str] = set()
        self._known: set[str] = set()

    def look(self) -> None:
        """Take in the threads that were started since the last time; does nothing outside Linux."""
        if sys.platform != "linux":
            return
        # The process, or a thread of it, may end at any moment; whoever runs as another user is left alone.
        with contextlib.suppress(OSError):
            there = set(os.listdir(self._threads))
            level = min(os.getpriority(os.PRIO_PROCESS, self._pid) + NICENESS, NICEST)
            for thread in there - self._known:
                with contextlib.suppress(OSError):
                    self._lower(thread, level)
            # Each is looked at twice, as one that has just been started has no name yet.
            self._known = self._seen & there
            self._seen = there

    def _lower(self, thread: str, level: int) -> None:
        name = (self._threads / thread / "comm").read_text().rstrip("\n")
        if name == RUNS_TASKS and os.getpriority(os.PRIO_PROCESS, int(thread)) < level:
            os.setpriority(os.PRIO_PROCESS, int(thread), level)
