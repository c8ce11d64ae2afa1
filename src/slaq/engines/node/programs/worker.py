"""A worker process: runs tasks of all jobs, one at a time, on one core."""

import contextlib
import os
import pickle
import resource
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slaq.engines.node.programs.messages import FAILED, MessageKind, unpack_call
from slaq.engines.node.programs.shared_data import Partitions
from slaq.engines.node.wire import NOTHING, Channel, Head
from slaq.engines.packing import Buffer, pack, pack_error, unpack
from slaq.jobs import variables

UNLIMITED = contextlib.nullcontext()
#: Functions kept unpickled.
FUNCTIONS = 64


class Attached:
    """What a worker keeps of one job: its data, its log, and its present call."""

    def __init__(self, orders: dict[str, Any], log: int, data: int) -> None:
        self.log = log
        self.share: str = orders["share"]
        self.memory: int | None = orders["memory"]
        self.partitions = Partitions(data, orders["layout"], orders["partitions"])
        self.map = -1
        self.call = NOTHING
        self.function: Callable[..., Any] | None = None
        self.args: tuple[Any, ...] = ()

    def close(self) -> None:
        """Close the job's log; its data is unmapped with the last array that views it."""
        os.close(self.log)


def serve(channel: Channel) -> None:
    """Run tasks until the dispatcher hangs up; raises HangUpError then."""
    jobs: dict[int, Attached] = {}
    functions: OrderedDict[bytes, Callable[..., Any]] = OrderedDict()
    # The job whose task ran last.
    current = -1
    spent = time.process_time()
    while True:
        (kind, _, job, number, index, *_), payload = channel.receive()
        if kind == MessageKind.TASK:
            attached = jobs[job]
            if current != job:
                _turn_to(attached)
                current = job
            flag, result = _run(attached, number, index, functions)
            used, spent = -spent, time.process_time()
            head = Head(MessageKind.DONE, flag, job, number, index, used + spent)
            channel.send(head, result)
            del result
        elif kind == MessageKind.CALL:
            jobs[job].map, jobs[job].call, jobs[job].function = number, payload, None
        elif kind == MessageKind.ATTACH:
            jobs[job] = Attached(pickle.loads(payload), channel.files.popleft(), channel.files.popleft())
        elif kind == MessageKind.DETACH:
            jobs.pop(job).close()


def _turn_to(job: Attached) -> None:
    """Switch the output to this job's log and `share` to this job; an unfinished line stays in the other log."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
        os.dup2(job.log, number)
    os.environ[variables.SHARE] = job.share


def _run(
    job: Attached, number: int, index: int, functions: OrderedDict[bytes, Callable[..., Any]]
) -> tuple[int, list[Buffer]]:
    """Return a flag and the packed result, or the packed error."""
    try:
        with UNLIMITED if job.memory is None else memory_limited(job.memory):
            if job.function is None:
                job.function, job.args = _unpickle(job.call, functions)
            return 0, pack(job.function(job.partitions[index], *job.args))
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: a task must not end its worker.
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


@contextlib.contextmanager
def memory_limited(limit: int | None) -> Any:
    """Make allocations fail with a MemoryError beyond `limit` bytes more than are in use now."""
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
