"""The memory of this machine: what jobs may take in all, and what is free."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")


def memory_here() -> int:
    """Return the bytes of memory that jobs may take: those of the machine, or of the control group around us."""
    there_are = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([there_are, *_group_limits()])


def memory_available() -> int | None:
    """Return the bytes that can be taken now without swapping, whoever took the others; None if unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _group_limits() -> Iterator[int]:
    """Yield the memory limits of the control groups that this process is in, of version 1 and 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if "memory" in controllers.split(","):
            root, file = CGROUPS / "memory", "memory.limit_in_bytes"
        elif not controllers:
            root, file = CGROUPS, "memory.max"
        else:
            continue
        group = PurePosixPath(name)
        for one in (group, *group.parents):
            # In a container the group is not below its own mount point, which then is the group itself.
            with suppress(OSError, ValueError):
                yield int((root / str(one).lstrip("/") / file).read_text(encoding="ascii"))
