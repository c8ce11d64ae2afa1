"""Errors that say nothing about what was tried: the system is short of something, and the same may work later."""

import errno

#: What a system says that is short of descriptors, processes or memory.
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})


def scarce(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, comes from a shortage of descriptors, processes or memory."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in SCARCE:
            return True
        error = error.__cause__ or error.__context__
    return False
