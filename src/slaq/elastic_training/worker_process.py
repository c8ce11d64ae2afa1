"""A worker process: computes the blocks that its driver hands to it, until the driver ends."""

import gc
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import NoReturn

from slaq.elastic_training.board import Board
from slaq.elastic_training.replica import Course, Replica, publish
from slaq.elastic_training.update import Work
from slaq.engines.packing import pack_error
from slaq.engines.processes import die_with_parent

#: Down: the fields of an update's work, the first block's begin, the level of the blocks, the scale of the loss.
ORDER = struct.Struct("<qqqqiiid")
#: Up: how the block went, where it began, which one the worker takes next, and the length of an error that follows.
REPLY = struct.Struct("<iiii")
#: A block that nobody has taken yet.
TOKEN = struct.Struct("<i")
DONE, FAILED, READY = 0, 1, 2
NONE = -1


def serve(
    course: Course, board: Board, pipes: tuple[int, int, int], refresh: Callable[[], None] | None = None
) -> NoReturn:
    """Compute until the driver closes its end; `refresh` fetches the weights, where they are not shared."""
    orders, replies, tokens = pipes
    replica = Replica(course, board)
    while True:
        written = os.read(orders, ORDER.size)
        if len(written) < ORDER.size:
            os._exit(0)
        update, passed, offset, samples, micro_batches, start, level, scale = ORDER.unpack(written)
        work = Work(update=update, passed=passed, offset=offset, samples=samples, micro_batches=micro_batches)
        if refresh is not None:
            refresh()
        while start != NONE:
            try:
                publish(board, start, replica.block(work, start, level, scale))
            except BaseException as error:
                payload = b"".join(pack_error(error))
                _write(replies, REPLY.pack(FAILED, start, NONE, len(payload)) + payload)
                break
            following = take(tokens)
            os.write(replies, REPLY.pack(DONE, start, following, 0))
            start = following


def take(tokens: int) -> int:
    """Return a block that nobody has taken yet, which nobody else then gets; NONE where there is none."""
    try:
        return int(TOKEN.unpack(os.read(tokens, TOKEN.size))[0])
    except BlockingIOError:
        return NONE


def become_worker(parent: int) -> None:
    """Prepare a forked process: it ends with its driver, and leaves signals to it."""
    die_with_parent(parent)
    # A notice to leave goes to the whole tree; the driver needs its workers to finish the update.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # What was there before is not this process's to collect; looking at it would copy its pages.
    gc.freeze()


def run(course: Course, board: Board, parent: int, pipes: tuple[int, int, int]) -> NoReturn:
    """Be a worker, in a process that was just forked; never return."""
    status = 1
    try:
        become_worker(parent)
        serve(course, board, pipes)
    except BaseException as error:
        sys.stderr.write(f"slaq: a worker of an elastic training ended: {error!r}\n")
    finally:
        os._exit(status)


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
