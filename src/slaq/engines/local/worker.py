"""A worker: one process, one core, runs tasks of whatever jobs it is told to."""

import contextlib
import os
import pickle
import resource
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slaq.engines.local.shared import Partitions
from slaq.engines.local.wire import FAILED, NOTHING, Buffer, Channel, Head, Kind, pack, unpack, unpack_call

UNLIMITED = contextlib.nullcontext()
#: Functions kept unpickled.
FUNCTIONS = 64


class Attached:
    """What a worker keeps of one job: its data, its log, and the call it is in."""

    def __init__(self, orders: dict[str, Any], log: int, data: int) -> None:
        self.log = log
        self.memory_limit: int | None = orders["memory_limit"]
        self.partitions = Partitions(data, orders["layout"], orders["partitions"])
        self.map = -1
        self.call = NOTHING
        self.function: Callable[..., Any] | None = None
        self.args: tuple[Any, ...] = ()

    def close(self) -> None:
        """Let go of the job's log; its data is unmapped with the last array that views it."""
        os.close(self.log)


def serve(channel: Channel) -> None:
    """Run tasks until the engine hangs up."""
    jobs: dict[int, Attached] = {}
    functions: OrderedDict[bytes, Callable[..., Any]] = OrderedDict()
    # Output goes to the log of the job whose task runs.
    current = -1
    spent = time.process_time()
    while True:
        (kind, _, job, number, index, *_), payload = channel.receive()
        if kind == Kind.TASK:
            attached = jobs[job]
            if current != job:
                _print_to(attached.log)
                current = job
            flag, result = _run(attached, number, index, functions)
            used, spent = -spent, time.process_time()
            head = Head(Kind.DONE, flag, job, number, index, used + spent)
            channel.send(head, result)
            del result
        elif kind == Kind.CALL:
            jobs[job].map, jobs[job].call, jobs[job].function = number, payload, None
        elif kind == Kind.ATTACH:
            jobs[job] = Attached(pickle.loads(payload), channel.files.popleft(), channel.files.popleft())
        elif kind == Kind.DETACH:
            jobs.pop(job).close()


def _print_to(log: int) -> None:
    """Send what is printed from now on to a job's log; the rest of a line goes where it began."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
        os.dup2(log, number)


def _run(
    job: Attached, number: int, index: int, functions: OrderedDict[bytes, Callable[..., Any]]
) -> tuple[int, list[Buffer]]:
    """Return a flag and the packed result, or the packed error."""
    try:
        with UNLIMITED if job.memory_limit is None else memory_limited(job.memory_limit):
            if job.function is None:
                job.function, job.args = _unpickle(job.call, functions)
            return 0, pack(job.function(job.partitions[index], *job.args))
    except BaseException as error:
        # SystemExit and the like too: a task must not end its worker.
        return FAILED, pack_error(error)


def _unpickle(
    call: memoryview, functions: OrderedDict[bytes, Callable[..., Any]]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    digest, pickled, args = unpack_call(call)
    if digest not in functions:
        functions[digest] = pickle.loads(pickled)
        if len(functions) > FUNCTIONS:
            functions.popitem(last=False)
    functions.move_to_end(digest)
    return functions[digest], unpack(args)


def pack_error(error: BaseException) -> list[Buffer]:
    """Return an exception, as far as it can be sent, with the text of its traceback."""
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception):
        packed = pack((error, text))
        # Some exceptions can be pickled but not unpickled.
        unpack(memoryview(b"".join(packed)))
        return packed
    return pack((None, text))


@contextlib.contextmanager
def memory_limited(limit: int | None) -> Any:
    """Have allocations beyond so many bytes more than are in use now fail with a MemoryError."""
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _memory_in_use() + limit
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if before[1] < 0 else min(wanted, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _memory_in_use() -> int:
    """Return the bytes that count towards RLIMIT_DATA; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except OSError:
        return 0
