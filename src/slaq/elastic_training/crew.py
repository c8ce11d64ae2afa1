"""The driver and its workers: computes the gradients of an update on as many processes as the training holds."""

import logging
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board
from slaq.elastic_training.card_process import written_orders
from slaq.elastic_training.replica import Course, Gradients, Replica, copied, merged, published, same
from slaq.elastic_training.tree import SumTree, block_level
from slaq.elastic_training.update import Work
from slaq.elastic_training.weights import Weights
from slaq.elastic_training.worker_process import DONE, NONE, ORDER, READY, REPLY, TOKEN, run, take
from slaq.engines.packing import unpack_error
from slaq.engines.processes import how_it_ended

_log = logging.getLogger(__name__)

#: Workers that are not needed are kept so long, in seconds, because capacity comes and goes.
KEPT = 30.0
#: After so many lost workers in a row, none of which got anything done, the driver is alone for so many seconds.
MOST_LOST, ALONE = 6, 60.0
#: The program of a worker that is started afresh.
BEGIN = "import sys; from slaq.elastic_training.card_process import main; main(sys.argv[1:])"


@dataclass(slots=True)
class CrewMember:
    """A worker process, as its driver sees it."""

    pid: int
    orders: int
    replies: int
    #: The card of its own; None for a forked process.
    device: torch.device | None = None
    #: Whether it can be given something to do: a new process first loads its libraries.
    ready: bool = True
    #: Whether it holds a block.
    busy: bool = False
    #: When it last did.
    used: float = 0.0


class Crew:
    """Hands blocks to workers, computes some itself, and merges all in the order of the tree.

    A block counts only once its worker has said that it is done: of a worker that is killed, nothing before that is
    read. Blocks of the killed run elsewhere, at the latest in the driver.
    """

    def __init__(self, course: Course, board: Board) -> None:
        self._course = course
        self._board = board
        self._replica = Replica(course, board)
        self._weights = Weights(course.model, board, copied=course.afresh)
        #: What workers with a card of their own are told, as a file.
        self._orders: int | None = None
        self._workers: list[CrewMember] = []
        self._poll = select.poll()
        self._tokens: tuple[int, int] | None = None
        #: How many workers the last update was handed to, the driver among them.
        self.used = 1
        #: Seconds that the last change took for which workers were started; 0 before the first.
        self.change_seconds = 0.0
        #: Workers that ended by themselves since the last block one of them computed, and when the last one did.
        self._lost = 0
        self._last_lost = 0.0
        #: Whether a worker was seen to compute the same bits as the driver.
        self._checked = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers, the driver's not among them."""
        return tuple(worker.pid for worker in self._workers)

    def compute(self, work: Work, workers: int, scale: float = 1.0) -> Gradients:
        """Return the sum of the gradients over all micro-batches of an update."""
        if not self._weights.keep():
            self._end_workers()
        self._replica.buffers.publish()
        workers = 1 if self._unlucky() else min(workers, self._course.most_processes)
        level = block_level(work.micro_batches, workers)
        starts = list(range(0, work.micro_batches, 1 << level))
        wanted = min(workers, len(starts)) - 1
        self._resize(wanted)
        tree = SumTree(work.micro_batches, merged)
        if not all(worker.ready for worker in self._workers):
            self._receive(set(), tree, level, wait=False)
        helpers = [worker for worker in self._workers if worker.ready][:wanted]
        self.used = len(helpers) + 1
        try:
            helped = self._hand_out(work, level, scale, starts, helpers)
            first = self._replica.block(work, 0, level, scale)
            compared = None if self._checked or not helped else copied(first)
            tree.add(level, 0, first)
            missing = set(starts) - {0}
            while missing:
                start = self._next_block(missing, tree, level, helped)
                if start != NONE:
                    tree.add(level, start, self._replica.block(work, start, level, scale))
                    missing.discard(start)
            if compared is not None:
                self._check(compared, work, level, scale)
        except BaseException:
            # What the others still compute belongs to an update that will not be.
            self.close()
            raise
        self._replica.buffers.reduce(work)
        return tree.complete[0]

    def _hand_out(
        self, work: Work, level: int, scale: float, starts: list[int], workers: list[CrewMember]
    ) -> int:
        """Give each worker a block, and leave the others for whoever is free first; return how many work."""
        if not workers:
            return 0
        for start in starts[1 + len(workers) :]:
            os.write(self._token_pipe()[1], TOKEN.pack(start))
        now = time.monotonic()
        for worker, start in zip(workers, starts[1:], strict=False):
            worker.busy, worker.used = True, now
            fields = (work.update, work.passed, work.offset, work.samples, work.micro_batches)
            with suppress(BrokenPipeError):  # killed: its end of the other pipe tells
                os.write(worker.orders, ORDER.pack(*fields, start, level, scale))
        return len(workers)

    def _next_block(self, missing: set[int], tree: SumTree[Gradients], level: int, helped: int) -> int:
        """Take what workers have done, and return a block for the driver itself; NONE where others have them."""
        if not helped:
            return min(missing)
        self._receive(missing, tree, level, wait=False)
        start = take(self._token_pipe()[0])
        if start == NONE and missing:
            if not any(worker.busy for worker in self._workers):
                # Their workers were killed.
                return min(missing)
            self._receive(missing, tree, level, wait=True)
        return start

    def _check(self, compared: Gradients, work: Work, level: int, scale: float) -> None:
        """Have a worker compute what the driver did, once, and warn where the bits differ."""
        tree: SumTree[Gradients] = SumTree(work.micro_batches, merged, level=level)
        missing = {0}
        self._hand_out(work, level, scale, [0, 0], self._workers[:1])
        while missing and any(worker.busy for worker in self._workers):
            self._receive(missing, tree, level, wait=True)
        if missing:
            return
        self._checked = True
        if not same(compared, tree.complete[0]):
            _log.warning(
                "a worker computes other gradients than this process, so the result depends on the workers: does "
                "the loss, the model or the dataset use random numbers of its own, or what the loop changes?"
            )

    def _receive(self, missing: set[int], tree: SumTree[Gradients], level: int, *, wait: bool) -> None:
        by_file = {worker.replies: worker for worker in self._workers}
        for file, _ in self._poll.poll(None if wait else 0):
            worker = by_file[file]
            written = os.read(file, REPLY.size)
            if len(written) < REPLY.size:
                self._bury(worker)
                continue
            status, start, following, length = REPLY.unpack(written)
            if status == READY:
                worker.ready = True
                continue
            worker.busy = following != NONE
            if status != DONE:
                self._raise(_read(file, length), start)
            self._lost = 0
            missing.discard(start)
            tree.add(level, start, published(self._board, start, self._course.device))

    def _raise(self, payload: bytes, start: int) -> None:
        error, text = unpack_error(memoryview(payload))
        if error is None:
            raise ElasticError(f"a worker failed in micro-batch {start} or after it", f"it said:\n{text}")
        raise error

    def _resize(self, wanted: int) -> None:
        """Have so many workers at least, and end those not used for a while."""
        while self._tokens is not None and take(self._tokens[0]) != NONE:
            pass  # left by an update that failed
        now = time.monotonic()
        for worker in self._workers[wanted:]:
            if now - worker.used > KEPT:
                self._dismiss(worker)
        if len(self._workers) >= wanted:
            return
        self._weights.share()
        while len(self._workers) < wanted:
            worker = self._spawned() if self._course.afresh else self._forked()
            self._poll.register(worker.replies, select.POLLIN)
            self._workers.append(worker)
        self.change_seconds = time.monotonic() - now

    def _forked(self) -> CrewMember:
        tokens = self._token_pipe()
        (orders, ordering), (replying, replies) = os.pipe(), os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python 3.12 warns of other threads. The child runs none of their code, and takes none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            # Held open here, these would hide the end of the process that they belong to.
            for other in self._workers:
                os.close(other.orders)
                os.close(other.replies)
            for file in (ordering, replying, tokens[1]):
                os.close(file)
            run(self._course, self._board, parent, (orders, replies, tokens[0]))
        os.close(orders)
        os.close(replies)
        return CrewMember(pid, ordering, replying, used=time.monotonic())

    def _spawned(self) -> CrewMember:
        """Start a process afresh, for the first card that has none."""
        taken, others = [worker.device for worker in self._workers], self._course.others
        free = [one for one in others if taken.count(one) < others.count(one)]
        device = free[0] if free else self._course.device
        if self._orders is None:
            self._orders = written_orders(self._course, self._board.rows)
        tokens = self._token_pipe()
        (orders, ordering), (replying, replies) = os.pipe(), os.pipe()
        files = (self._orders, self._board.file, orders, replies, tokens[0])
        words = ["-c", BEGIN, str(os.getpid()), str(device), *map(str, files)]
        # Not waited for by this object: the pid is, as that of any worker.
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *words],
            {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, file, file) for file in files],
        )
        os.close(orders)
        os.close(replies)
        return CrewMember(pid, ordering, replying, device=device, ready=False, used=time.monotonic())

    def _token_pipe(self) -> tuple[int, int]:
        if self._tokens is None:
            self._tokens = os.pipe()
            os.set_blocking(self._tokens[0], False)
        return self._tokens

    def _unlucky(self) -> bool:
        """Return whether workers end as soon as they begin, as where memory is short."""
        return self._lost >= MOST_LOST and time.monotonic() - self._last_lost < ALONE

    def _bury(self, worker: CrewMember) -> None:
        how = self._dismiss(worker)
        self._lost += 1
        self._last_lost = time.monotonic()
        if self._lost < MOST_LOST:
            _log.warning("worker %d ended (%s); its micro-batches run elsewhere", worker.pid, how)
        elif self._lost == MOST_LOST:
            _log.warning(
                "%d workers ended one after another (%s, often for want of memory); this process computes alone "
                "for a while; more micro_batches take less memory each",
                self._lost,
                how,
            )

    def _dismiss(self, worker: CrewMember) -> str:
        """End a worker, and return how it ended."""
        self._workers.remove(worker)
        self._poll.unregister(worker.replies)
        os.close(worker.orders)
        os.close(worker.replies)
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        try:
            _, status = os.waitpid(worker.pid, 0)
        except ChildProcessError:  # somebody waits for all children of this process
            return "unknown"
        return how_it_ended(os.waitstatus_to_exitcode(status))

    def _end_workers(self) -> None:
        for worker in [*self._workers]:
            self._dismiss(worker)
        if self._orders is not None:
            os.close(self._orders)
            self._orders = None

    def close(self) -> None:
        """End all workers, and give the weights back to this process alone."""
        self._end_workers()
        self._weights.release()
        if self._tokens is not None:
            for file in self._tokens:
                os.close(file)
            self._tokens = None


def _read(file: int, length: int) -> bytes:
    return b"".join(_pieces(file, length))


def _pieces(file: int, length: int) -> Iterator[bytes]:
    while length and (piece := os.read(file, length)):
        yield piece
        length -= len(piece)
