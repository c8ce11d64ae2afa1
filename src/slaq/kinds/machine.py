"""What this machine allows jobs: its memory and its file descriptors."""

import resource
from collections.abc import Sequence

from slaq.core.admission import DescriptorRoom, MemoryRoom, Rule
from slaq.engines.memory import memory_here
from slaq.engines.node.commands import descriptors


def rules() -> Sequence[Rule]:
    """Return the reasons of this machine to hold a job back."""
    memory = memory_here()
    return (
        MemoryRoom(lambda: memory),
        DescriptorRoom(descriptors.EACH, _descriptors),
    )


def _descriptors() -> int:
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - descriptors.RESERVED, 0)
