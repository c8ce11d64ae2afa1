"""The CPU time of a program's driver, with that of processes it forked, as those of an elastic training."""

import os
import resource
import time

from slaq.engines.processes import children, cpu_seconds


class _Forks:
    """Whether this process has forked; looking for children takes longer than a message does."""

    made = False

    @classmethod
    def note(cls) -> None:
        cls.made = True

    @classmethod
    def forget(cls) -> None:
        cls.made = False


os.register_at_fork(after_in_parent=_Forks.note, after_in_child=_Forks.forget)


def seconds_used() -> float:
    """Return the CPU seconds of this process, and of its children, those that have ended included."""
    own = time.process_time()
    if not _Forks.made:
        return own
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(cpu_seconds(pid) or 0.0 for pid in children())
    return own + ended.ru_utime + ended.ru_stime + living
