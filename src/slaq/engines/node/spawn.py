"""Starts Python processes of a node's own, each at one end of a pair of sockets."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import IO

# The process finds the modules that this one finds, whatever its environment and working directory say.
_BOOT = (
    "import sys, json, importlib; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "getattr(importlib.import_module(sys.argv.pop(1)), sys.argv.pop(1))(*sys.argv[1:])"
)

#: A function of a module, called in the new process with the socket's descriptor, the parent's process id, and
#: further arguments, all as text.
Main = Callable[..., None]


def spawn(
    main: Main,
    *arguments: str,
    log: IO[bytes] | int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    isolated: bool = True,
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process that calls `main`, in a session of its own; return it with this process's socket to it.

    An isolated process ignores what environment variables say to Python: it is ours alone. One that will run
    its user's code is not isolated. Neither takes modules from the working directory, in which a `json.py` may lie.
    """
    ours, theirs = socket.socketpair()
    fixed = [json.dumps(sys.path), main.__module__, main.__qualname__, str(theirs.fileno()), str(os.getpid())]
    try:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I" if isolated else "-P", "-c", _BOOT, *fixed, *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # Ctrl-C in a terminal goes to this process, which decides what becomes of the jobs.
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return process, ours


def inherited(descriptor: str) -> socket.socket:
    """Return the socket that a process was started with.

    Programs that the process executes do not inherit it: one that held it would hide the process's death.
    """
    sock = socket.socket(fileno=int(descriptor))
    sock.set_inheritable(False)
    return sock
