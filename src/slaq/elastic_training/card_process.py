"""A worker process with a card of its own, started afresh because CUDA forbids to fork."""

import os
import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import torch
from torch import nn

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board, anonymous_file
from slaq.elastic_training.precision import prepare, reproducible
from slaq.elastic_training.replica import Course
from slaq.elastic_training.worker_process import NONE, READY, REPLY, become_worker, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOrders:
    """What a worker needs to begin: it is sent once, and read by each worker that is started."""

    course: Course
    #: Whether each module was in training mode at the start.
    modes: list[bool]
    rows: int


def written_orders(course: Course, rows: int) -> int:
    """Return a file in memory that holds the orders; raises ElasticError for what cannot be pickled."""
    try:
        # Without its device, so that a process for one card takes no memory of another.
        model = deepcopy(course.model).cpu()
        modes = [mode for _, mode in course.modes]
        orders = CardOrders(course=replace(course, model=model, modes=[]), modes=modes, rows=rows)
        payload = cloudpickle.dumps(orders, protocol=5)
    except Exception as error:
        raise ElasticError(
            f"the loss, the model or the dataset cannot be sent to the process of another card "
            f"({type(error).__name__}: {error})",
            "keep files, locks and generators out of them, or train on one device",
        ) from error
    file = anonymous_file("slaq-orders", 0)
    with open(file, "wb", closefd=False) as out:
        out.write(payload)
    return file


def main(arguments: list[str]) -> None:
    """Be a worker, told its parent, its device, and the files of the orders, the board and the pipes."""
    parent, device = int(arguments[0]), torch.device(arguments[1])
    file, shared, ordering, replies, tokens = map(int, arguments[2:])
    become_worker(parent)
    torch.set_num_threads(1)
    prepare(device)
    with open(file, "rb", closefd=False) as written:
        written.seek(0)
        orders: CardOrders = pickle.load(written)
    course = orders.course
    model = course.model
    board = Board(list(model.parameters()), list(model.buffers()), orders.rows, torch.device("cpu"), shared)
    model.to(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    course = replace(course, device=device, modes=list(zip(model.modules(), orders.modes, strict=True)))
    os.write(replies, REPLY.pack(READY, NONE, NONE, 0))
    with reproducible(device):
        serve(course, board, (ordering, replies, tokens), _refresher(model, board))


def _refresher(model: nn.Module, board: Board) -> Callable[[], None]:
    """Return a function that copies the driver's weights to the card."""
    pairs: list[tuple[Any, Any]] = list(zip(model.parameters(), board.parameters, strict=True))

    def refresh() -> None:
        with torch.no_grad():
            for own, shared in pairs:
                own.copy_(shared)

    return refresh
