"""A driver process: runs the training program of one job."""

import faulthandler
import json
import math
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, Unpack

import cloudpickle
from typing_extensions import override

from slaq.core.errors import TaskError
from slaq.engines import checkpoints
from slaq.engines.node.programs.cpu_used import seconds_used
from slaq.engines.node.programs.job_orders import DriverOrders
from slaq.engines.node.programs.messages import FAILED, WAITS, MessageKind, pack_call
from slaq.engines.node.programs.worker import memory_limited
from slaq.engines.node.wire import Channel, Head, Message
from slaq.engines.packing import pack, pack_error, unpack, unpack_error
from slaq.jobs import variables
from slaq.jobs.context import Cancelled, Context, whole_number
from slaq.jobs.demands import reported_demand, written_demand
from slaq.jobs.options import DemandOptions
from slaq.jobs.share import FILE, share


class DriverContext(Context):
    """The context of a program whose tasks run on the node's workers."""

    def __init__(self, channel: Channel, orders: DriverOrders) -> None:
        self.data = orders.shape
        self.restored = None
        self._channel = channel
        self._orders = orders
        self._map = 0
        #: The number of the next report.
        self._iteration = 0
        #: How many iterations there will be in all, as last told.
        self._total = 0
        #: The loss of iteration 0, and whether a map was run since the last report.
        self._first = math.nan
        self._mapped = False
        self._ending = ""
        self._checkpoint = orders.directory / checkpoints.FILE
        if self._checkpoint.exists():
            self._restore()

    def _restore(self) -> None:
        """Go on from the last checkpoint; a damaged one is reported in the log and ignored."""
        try:
            kept = checkpoints.read(self._checkpoint)
        except ValueError as error:
            sys.stderr.write(f"slaq: {error}; the program starts from the beginning\n")
            return
        self._iteration, self._first = kept.reports, kept.first_loss
        self.restored = unpack(kept.state)

    @property
    @override
    def workers(self) -> float:
        self._look()
        held = share()
        # A file that cannot be read does not end a training.
        return 1.0 if held is None else held.workers

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        self._look()
        self._map += 1
        self._send(MessageKind.MAP, b=self._map, payload=pack_call(_pickled(function), args))
        self._mapped = True
        results: list[Any] = [None] * self.data.num_partitions
        while True:
            head, payload = self._next()
            if head.kind == MessageKind.GO:
                return results
            if head.b != self._map:
                continue
            if head.kind == MessageKind.LOST:
                raise TaskError(head.c, str(payload, "utf-8"))
            if head.flag == FAILED:
                error, text = unpack_error(payload)
                raise TaskError(head.c, text) if error is None else error
            results[head.c] = unpack(payload)

    @override
    def report(
        self, loss: float, *, step: float | None = None, total: float | None = None, **metrics: float
    ) -> None:
        value, iteration = float(loss), self._iteration if step is None else whole_number("step", step)
        said = json.dumps({name: float(one) for name, one in metrics.items()}) if metrics else ""
        self._look()
        if total is not None and total != self._total:
            self._total = whole_number("total", total)
            self._send(MessageKind.TOTAL, c=self._total)
        if iteration < self._iteration:
            return
        self._iteration = iteration
        # A program that maps waits for cores at its maps; one that works in the driver alone waits here.
        waits = not self._mapped
        self._send(
            MessageKind.REPORT, WAITS if waits else 0, c=self._iteration, y=value, payload=[said.encode()]
        )
        self._mapped = False
        self._finish_if_enough(value)
        self._iteration += 1
        while waits and self._next().head.kind != MessageKind.GO:
            pass

    @override
    def checkpoint(self, state: Any) -> None:
        checkpoints.write(self._checkpoint, self._iteration, self._first, pack(state))

    @override
    def announce(self, *, learning_rate: float) -> None:
        self._look()
        self._send(MessageKind.ANNOUNCE, y=float(learning_rate))

    @override
    def can_use(self, **reported: Unpack[DemandOptions]) -> None:
        demand = reported_demand(**reported)
        self._look()
        self._send(MessageKind.CAN_USE, payload=[json.dumps({"can_use": written_demand(demand)}).encode()])

    def _finish_if_enough(self, loss: float) -> None:
        """End the program at its next map or report, so that it can still checkpoint the model of this loss."""
        if not math.isfinite(self._first):
            self._first = loss
        goal = self._orders.goal
        reached = goal.astray(loss) or goal.reached(self._iteration, self._first, loss)
        self._ending = reached or self._ending

    @property
    @override
    def stopping(self) -> bool:
        while (message := self._channel.receive_now()) is not None:
            self._take(message)
        return bool(self._ending)

    def _look(self) -> None:
        """Handle the messages that have arrived; raises `Cancelled` if the job is to end."""
        if self.stopping:
            raise Cancelled(self._ending)

    def _next(self) -> Message:
        message = self._channel.receive()
        self._take(message)
        if self._ending and message.head.kind == MessageKind.END:
            raise Cancelled(self._ending)
        return message

    def _take(self, message: Message) -> None:
        if message.head.kind == MessageKind.END:
            self._ending = str(message.payload, "utf-8")

    def _send(
        self, kind: MessageKind, flag: int = 0, b: int = 0, c: int = 0, y: float = 0.0, payload: Any = ()
    ) -> None:
        self._channel.send(Head(kind, flag, b=b, c=c, x=seconds_used(), y=y), payload)


def _pickled(function: Callable[..., Any]) -> bytes:
    """Return a function by name where it can be imported, else by value.

    Each time anew: a function of a script may have changed by what it refers to.
    """
    try:
        return pickle.dumps(function, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(function, protocol=5))


def drive(channel: Channel) -> None:
    """Run the program of this process's job, and report how it ended."""
    orders: DriverOrders = pickle.loads(channel.receive().payload)
    log = channel.files.popleft()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ[variables.SHARE] = str(orders.directory / FILE)
    faulthandler.enable()
    while (message := channel.receive()).head.kind != MessageKind.GO:
        if message.head.kind == MessageKind.END:
            channel.send(Head(MessageKind.LEFT, x=seconds_used()))
            return
    kind, payload = _run(channel, orders)
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send(Head(kind, x=seconds_used()), payload)


def _run(channel: Channel, orders: DriverOrders) -> tuple[MessageKind, Any]:
    try:
        with memory_limited(orders.memory):
            context = DriverContext(channel, orders)
            program = pickle.loads(orders.program)
            return MessageKind.RETURNED, pack(program(context))
    except Cancelled as end:
        return MessageKind.LEFT, [str(end).encode()]
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: the job has failed with what its program raised.
        sys.excepthook(type(error), error, error.__traceback__)
        return MessageKind.RAISED, pack_error(error)
