"""The process that workers and drivers are forked from: it has the heavy imports, so each costs little memory.

When its parent hangs up or dies, the fork server kills all it forked, and ends.
"""

import contextlib
import errno
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

from slaq.engines import processes
from slaq.engines.node.programs.driver import drive
from slaq.engines.node.programs.messages import DRIVER, MessageKind
from slaq.engines.node.programs.worker import serve
from slaq.engines.node.spawn import inherited
from slaq.engines.node.wire import Channel, HangUpError, Head

#: What programs with sparse data need; optional, so it may not be installed.
PRELOADED_IF_INSTALLED = "scipy.sparse"
#: Seconds between two looks at whether the parent is still there.
LOOK_EVERY = 1.0


class ForkServer:
    """Forks workers and drivers on request, and reports their exits."""

    def __init__(self, channel: Channel, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        #: Children by pid, and pids by child.
        self._children: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._alarm, self._bell = socket.socketpair()

    def run(self) -> None:
        """Serve until the parent is gone."""
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
        """Kill every child and, on Linux, all their descendants."""
        for pid in self._children:
            processes.kill(pid)
        while True:
            for pid in processes.children():
                processes.kill(pid)
            try:
                os.wait()
            except ChildProcessError:
                return

    def _obey(self) -> None:
        (kind, flag, child, *_), _ = self._channel.receive()
        if kind == MessageKind.FORK:
            self._fork(child, is_driver=flag == DRIVER)
        elif kind == MessageKind.KILL and child in self._pids:
            processes.kill(self._pids[child])

    def _fork(self, child: int, *, is_driver: bool) -> None:
        """Fork a child; where the system refuses, report the exit of a child that has never existed."""
        if not self._channel.files:
            # There was no descriptor left to receive its socket.
            self._refuse(child, errno.EMFILE)
            return
        sock = socket.socket(fileno=self._channel.files.popleft())
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sock.close()
            self._refuse(child, error.errno or errno.EAGAIN)
            return
        if pid == 0:
            self._become(Channel(sock), server, is_driver=is_driver)
        sock.close()
        self._children[pid] = child
        self._pids[child] = pid
        self._channel.send(Head(MessageKind.FORKED, a=child, b=pid))

    def _refuse(self, child: int, reason: int) -> None:
        self._channel.send(Head(MessageKind.EXITED, a=child, c=reason))

    def _become(self, channel: Channel, server: int, *, is_driver: bool) -> None:
        """Turn a newly forked child into a worker or a driver; never returns."""
        try:
            # A group of its own, so that whatever a program starts can be killed with it.
            os.setpgid(0, 0)
            processes.die_with_parent(server)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for one in (self._channel, self._alarm, self._bell):
                one.close()
            # Otherwise all children would draw the same numbers.
            random.seed()
            numpy_random = sys.modules.get("numpy.random")
            if numpy_random is not None:
                numpy_random.seed()
            (drive if is_driver else serve)(channel)
        except HangUpError:
            # The dispatcher is gone: there is nothing left to do.
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        """Report every child that has exited, and kill the processes that it left behind."""
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
            processes.kill_group(pid)
            for orphan in processes.children():
                if orphan not in self._children:
                    processes.kill(orphan)
            code = os.waitstatus_to_exitcode(status)
            self._channel.send(Head(MessageKind.EXITED, a=child, b=pid, c=code & 0xFFFFFFFF))


def main(descriptor: str, parent: str, setup: str) -> None:
    """Import what all children need, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wanted = json.loads(setup)
    sys.argv[:] = [""]
    processes.adopt_orphans()
    # Line buffering: logs are up to date, and lines of several processes stay whole.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    for name in wanted["preload"]:
        importlib.import_module(name)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(PRELOADED_IF_INSTALLED)
    # Frozen objects are never collected, so that the memory pages of the imports stay shared.
    gc.collect()
    gc.freeze()
    server = ForkServer(Channel(inherited(descriptor)), int(parent))
    try:
        server.run()
    except HangUpError:
        # The dispatcher has closed the socket, or died.
        pass
    finally:
        server.kill_all()
        if wanted["temporary"] is not None and os.getppid() != int(parent):
            shutil.rmtree(wanted["temporary"], ignore_errors=True)
