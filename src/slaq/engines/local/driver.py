"""A driver: one process, one job, runs its training program."""

import faulthandler
import json
import math
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
from typing_extensions import override

from slaq.core.errors import TaskError
from slaq.engines.limits import why_enough
from slaq.engines.local import checkpoints
from slaq.engines.local.orders import Orders
from slaq.engines.local.tracebacks import unpack_error
from slaq.engines.local.wire import FAILED, WAITS, Channel, Head, Kind, Message, pack, pack_call, unpack
from slaq.engines.local.worker import memory_limited, pack_error
from slaq.jobs.context import Cancelled, Context


class DriverContext(Context):
    """The context of a program whose tasks run on the engine's workers."""

    def __init__(self, channel: Channel, orders: Orders, workers: float) -> None:
        self.data = orders.shape
        self.restored = None
        self._channel = channel
        self._orders = orders
        self._workers = workers
        self._map = 0
        #: The number of the next report.
        self._iteration = 0
        #: The loss of iteration 0, and the reports since the last map.
        self._first = math.nan
        self._mapped = False
        self._ending = ""
        self._checkpoint = Path(orders.directory) / checkpoints.FILE
        if self._checkpoint.exists():
            self._restore()

    def _restore(self) -> None:
        """Go on from the last checkpoint; one that a lost disk or a crash spoilt is told of and passed over."""
        try:
            kept = checkpoints.read(self._checkpoint)
        except ValueError as error:
            sys.stderr.write(f"slaq: {error}; the program begins anew\n")
            return
        self._iteration, self._first = kept.reports, kept.first_loss
        self.restored = unpack(kept.state)

    @property
    @override
    def workers(self) -> float:
        self._look()
        return self._workers

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        self._look()
        self._map += 1
        self._send(Kind.MAP, b=self._map, payload=pack_call(_pickled(function), args))
        self._mapped = True
        results: list[Any] = [None] * self.data.num_partitions
        while True:
            head, payload = self._next()
            if head.kind == Kind.GO:
                return results
            if head.b != self._map:
                continue
            if head.kind == Kind.LOST:
                raise TaskError(head.c, str(payload, "utf-8"))
            if head.flag == FAILED:
                error, text = unpack_error(payload)
                raise TaskError(head.c, text) if error is None else error
            results[head.c] = unpack(payload)

    @override
    def report(self, loss: float, **metrics: float) -> None:
        value = float(loss)
        said = json.dumps({name: float(one) for name, one in metrics.items()}) if metrics else ""
        self._look()
        # A program that maps is held back at its maps; one that does all its work itself, here.
        waits = not self._mapped
        self._send(Kind.REPORT, WAITS if waits else 0, c=self._iteration, y=value, payload=[said.encode()])
        self._mapped = False
        self._finish_if_enough(value)
        self._iteration += 1
        while waits and self._next().head.kind != Kind.GO:
            pass

    @override
    def checkpoint(self, state: Any) -> None:
        checkpoints.write(self._checkpoint, self._iteration, self._first, pack(state))

    @override
    def announce(self, *, learning_rate: float) -> None:
        self._look()
        self._send(Kind.ANNOUNCE, y=float(learning_rate))

    def _finish_if_enough(self, loss: float) -> None:
        """Let the program end at its next map or report, so that it can still checkpoint what this loss is of."""
        if self._iteration == 0 or not math.isfinite(self._first):
            self._first = loss
        self._ending = why_enough(self._orders, self._iteration, self._first, loss) or self._ending

    @property
    @override
    def stopping(self) -> bool:
        while (message := self._channel.receive_now()) is not None:
            self._take(message)
        return bool(self._ending)

    def _look(self) -> None:
        """Take in what has come, and end if the job is to end."""
        if self.stopping:
            raise Cancelled(self._ending)

    def _next(self) -> Message:
        message = self._channel.receive()
        self._take(message)
        if self._ending and message.head.kind == Kind.END:
            raise Cancelled(self._ending)
        return message

    def _take(self, message: Message) -> None:
        if message.head.kind == Kind.END:
            self._ending = str(message.payload, "utf-8")
        elif message.head.kind in (Kind.GO, Kind.RESULT):
            self._workers = message.head.x

    def _send(
        self, kind: Kind, flag: int = 0, b: int = 0, c: int = 0, y: float = 0.0, payload: Any = ()
    ) -> None:
        self._channel.send(Head(kind, flag, b=b, c=c, x=time.process_time(), y=y), payload)


def _pickled(function: Callable[..., Any]) -> bytes:
    """Return a function by name where it can be imported, else by value.

    Each time anew: a function of a script may have changed by what it refers to.
    """
    try:
        return pickle.dumps(function, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(function, protocol=5))


def drive(channel: Channel) -> None:
    """Run the program of the one job this process is for, and say how it ended."""
    orders: Orders = pickle.loads(channel.receive().payload)
    log = channel.files.popleft()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.enable()
    while (message := channel.receive()).head.kind != Kind.GO:
        if message.head.kind == Kind.END:
            channel.send(Head(Kind.LEFT, x=time.process_time()))
            return
    kind, payload = _run(channel, orders, message.head.x)
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send(Head(kind, x=time.process_time()), payload)


def _run(channel: Channel, orders: Orders, workers: float) -> tuple[Kind, Any]:
    try:
        with memory_limited(orders.memory_limit):
            context = DriverContext(channel, orders, workers)
            program = pickle.loads(orders.program)
            return Kind.RETURNED, pack(program(context))
    except Cancelled as end:
        return Kind.LEFT, [str(end).encode()]
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: whatever the program raised is how it ended.
        sys.excepthook(type(error), error, error.__traceback__)
        return Kind.RAISED, pack_error(error)
