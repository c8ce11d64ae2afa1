"""How many file descriptors commands take in the processes that supervise and read them."""

import errno
import os
import resource

#: Descriptors that each command holds, at most, in either process. In the reader: its reports, and the log or file
#: that its losses are in. In the supervisor: its CPU usage, and two sockets while it is started.
EACH = 4
#: Descriptors for everything else: sockets, libraries, and what is opened for a moment only.
RESERVED = 64
#: Descriptors that must be free for a command to start: more than a start, or a look at processes, opens at a time.
SPARE = 16


def check_room(commands: int) -> None:
    """Raise OSError where this process has no room for one more command beside so many."""
    if (commands + 1) * EACH > resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED:
        raise OSError(errno.EMFILE, f"{commands} commands hold all file descriptors")
    held: list[int] = []
    try:
        for _ in range(SPARE):
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in held:
            os.close(fd)
