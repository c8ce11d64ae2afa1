"""What this machine allows jobs: its memory and its file descriptors."""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from slaq.core.admission import DescriptorRoom, MemoryRoom, Rule
from slaq.engines.node.commands import descriptors

CGROUPS = Path("/sys/fs/cgroup")


def rules() -> Sequence[Rule]:
    """Return the reasons of this machine to hold a job back."""
    memory = memory_here()
    return (
        MemoryRoom(lambda: memory),
        DescriptorRoom(descriptors.EACH, _descriptors),
    )


def memory_here() -> int:
    """Return the bytes of memory that jobs may take: those of the machine, or of the control group around us."""
    there_are = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([there_are, *_group_limits()])


def _descriptors() -> int:
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - descriptors.RESERVED, 0)


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
