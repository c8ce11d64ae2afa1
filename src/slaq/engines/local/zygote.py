"""The process all others are forked from: it has the heavy imports, so that another one costs little memory.

Started as `python -m slaq.engines.local.zygote FD`, FD being its socket. It ends, and kills all it forked, when
the engine hangs up or dies.
"""

import gc
import importlib
import json
import os
import random
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable

from slaq.engines.local import ancestry
from slaq.engines.local.wire import DRIVER, Channel, HangUpError, Head, Kind

#: What nearly every training program needs.
PRELOADED = ("numpy", "scipy.sparse", "cloudpickle", "slaq.jobs.data")
#: Seconds between two looks at whether the engine's process is still there.
LOOK_EVERY = 1.0


class Zygote:
    """Forks workers and drivers on request, and tells when they have exited."""

    def __init__(self, channel: Channel, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        #: Children by pid, and pids by child.
        self._children: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._alarm, self._bell = socket.socketpair()

    def run(self) -> None:
        """Serve until the engine is gone."""
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._alarm, selectors.EVENT_READ)
            while os.getppid() == self._parent:
                for key, _ in selector.select(LOOK_EVERY):
                    if key.fileobj is self._alarm:
                        self._alarm.recv(4096)
                        self._reap()
                    else:
                        self._obey()

    def kill_all(self) -> None:
        """Kill every child and, where the system hands them over, all their descendants."""
        for pid in self._children:
            ancestry.kill(pid)
        while True:
            for pid in ancestry.children():
                ancestry.kill(pid)
            try:
                os.wait()
            except ChildProcessError:
                return

    def _obey(self) -> None:
        (kind, flag, child, *_), _ = self._channel.receive()
        if kind == Kind.FORK:
            self._fork(child, is_driver=flag == DRIVER)
        elif kind == Kind.KILL and child in self._pids:
            ancestry.kill(self._pids[child])

    def _fork(self, child: int, *, is_driver: bool) -> None:
        sock = socket.socket(fileno=self._channel.files.popleft())
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(Channel(sock), zygote, is_driver=is_driver)
        sock.close()
        self._children[pid] = child
        self._pids[child] = pid
        self._channel.send(Head(Kind.FORKED, a=child, b=pid))

    def _become(self, channel: Channel, zygote: int, *, is_driver: bool) -> None:
        """Turn this fresh child into a worker or a driver, for the rest of its life."""
        try:
            # A group of its own, so that whatever a program starts can be killed with it.
            os.setpgid(0, 0)
            ancestry.die_with_parent(zygote)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for one in (self._channel, self._alarm, self._bell):
                one.close()
            # Else all children would draw the same numbers.
            random.seed()
            numpy_random = sys.modules.get("numpy.random")
            if numpy_random is not None:
                numpy_random.seed()
            live: Callable[[Channel], None]
            if is_driver:
                from slaq.engines.local.driver import drive as live
            else:
                from slaq.engines.local.worker import serve as live
            live(channel)
        except HangUpError:
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Tell of every child that has exited, and kill what it left behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue
            del self._pids[child]
            ancestry.kill_group(pid)
            for orphan in ancestry.children():
                if orphan not in self._children:
                    ancestry.kill(orphan)
            code = os.waitstatus_to_exitcode(status)
            self._channel.send(Head(Kind.EXITED, a=child, b=pid, c=code & 0xFFFFFFFF))


def main() -> None:
    """Load what all need, then serve."""
    parent = os.getppid()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = json.loads(sys.argv[2])
    sys.path[:] = setup["path"]
    os.environ.pop("PYTHONPATH", None)
    os.environ.update(setup["environment"])
    sys.argv[:] = [""]
    ancestry.adopt_orphans()
    # What programs and tasks print is in their log at the end of each line, and lines of several stay whole.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    for name in (*PRELOADED, "slaq.engines.local.driver", "slaq.engines.local.worker", *setup["preload"]):
        importlib.import_module(name)
    # What is collected later is not what all share: pages of the imports stay untouched, hence shared.
    gc.collect()
    gc.freeze()
    zygote = Zygote(channel, parent)
    try:
        zygote.run()
    except HangUpError:
        pass
    finally:
        zygote.kill_all()
        if setup["temporary"] is not None and os.getppid() != parent:
            shutil.rmtree(setup["temporary"], ignore_errors=True)


if __name__ == "__main__":
    main()
