"""The model in one process, which computes micro-batches for a training."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board
from slaq.elastic_training.buffers import ModelBuffers
from slaq.elastic_training.position import order
from slaq.elastic_training.samples import Samples, moved
from slaq.elastic_training.seeds import MODEL, SAMPLES, seed_for, set_seeds
from slaq.elastic_training.tree import SumTree
from slaq.elastic_training.update import Work

#: One gradient for each parameter; None for one that is frozen, or that the loss does not depend on.
Gradients = list[Tensor | None]
Loss = Callable[[nn.Module, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is trained, on what, and how: the same in every process of a training."""

    loss: Loss
    model: nn.Module
    samples: Samples
    seed: int
    transform: Callable[[Any], Any] | None = None
    #: The type of numbers that PyTorch's autocast uses; None without.
    amp: torch.dtype | None = None
    #: The modules, and whether each was in training mode at the start.
    modes: list[tuple[nn.Module, bool]] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    #: Those of workers that are processes with a card each.
    others: tuple[torch.device, ...] = ()
    #: The norms of gradients are measured in every so many updates; 0 for never.
    measured_every: int = 0

    @property
    def afresh(self) -> bool:
        """Whether workers are started afresh: PyTorch with a card in sight computes no gradients in forked ones."""
        return bool(self.others) or torch.cuda.device_count() > 0

    @property
    def most_processes(self) -> int:
        """How many processes can compute: on the CPU any number, else one for each device."""
        return len(self.others) + 1 if self.others or self.device.type != "cpu" else sys.maxsize

    def measures(self, work: Work) -> bool:
        """Return whether the norm of each micro-batch's gradient is wanted in this update."""
        every = self.measured_every
        return every > 0 and work.update % every == 0 and work.micro_batches > 1


class Replica:
    """Computes blocks of micro-batches: gradients are returned, losses and buffers go to the board."""

    def __init__(self, course: Course, board: Board) -> None:
        self._course = course
        self._board = board
        self._parameters = list(course.model.parameters())
        self.buffers = ModelBuffers(course.model, board)

    def block(self, work: Work, start: int, level: int, scale: float = 1.0) -> Gradients:
        """Return the sum of the gradients over a block: a node of the tree."""
        for module, mode in self._course.modes:
            if module.training is not mode:
                module.training = mode
        # Those of the update before would be added to.
        self._taken()
        tree = SumTree(work.micro_batches, merged, level=level)
        losses = []
        with torch.enable_grad():
            for index in range(start, min(start + (1 << level), work.micro_batches)):
                losses.append(self._micro_batch(work, index, scale))
                taken = self._taken()
                if self._course.measures(work):
                    self._board.records[index, 3] = squared_norm(taken)
                tree.add(0, index, taken)
        # Read at the end only, because a GPU is waited for.
        for index, (value, count, summed) in enumerate(losses, start):
            loss = value.item()
            self._board.records[index, :3] = (loss if summed else loss * count, count, summed)
        return tree.complete[start]

    def _micro_batch(self, work: Work, index: int, scale: float) -> tuple[Tensor, float, bool]:
        batch = self._fetch(work, index)
        self.buffers.load()
        set_seeds(seed_for(self._course.seed, work, index, MODEL))
        with self._autocast():
            found = self._course.loss(self._course.model, batch)
        size = work.size(index)
        value, count, summed = told(found, size)
        factor = scale if summed else scale * (size / work.samples)
        (value if factor == 1.0 else value * factor).backward()  # type: ignore[no-untyped-call]
        self.buffers.keep(index)
        return value.detach(), count, summed

    def _fetch(self, work: Work, index: int) -> Any:
        course = self._course
        begin, end = work.bounds(index)
        set_seeds(seed_for(course.seed, work, index, SAMPLES))
        batch = course.samples.fetch(order(course.seed, work.passed, len(course.samples))[begin:end])
        if course.transform is not None:
            batch = course.transform(batch)
        return batch if course.device.type == "cpu" else moved(batch, course.device)

    def _autocast(self) -> Any:
        course = self._course
        return nullcontext() if course.amp is None else torch.autocast(course.device.type, course.amp)

    def _taken(self) -> Gradients:
        taken = [one.grad for one in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return taken


def told(found: Any, size: int) -> tuple[Tensor, float, bool]:
    """Return the value of a loss, how many samples or terms it counts, and whether it is a sum."""
    if isinstance(found, tuple) and len(found) == 2:
        value, count = found
        counted = float(count)
        if _is_scalar(value) and counted >= 0:
            return value, counted, True
    elif _is_scalar(found):
        return found, float(size), False
    raise ElasticError(
        f"the loss is {_described(found)}",
        "return the mean over the samples as a tensor of one number that depends on the weights, or (sum, count)",
    )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 0 and value.requires_grad


def _described(found: Any) -> str:
    if isinstance(found, Tensor):
        if found.dim() == 0:
            return "a number without a gradient"
        return f"a tensor of shape {tuple(found.shape)}"
    if isinstance(found, tuple):
        return f"a tuple of {len(found)}: {', '.join(_described(one) for one in found[:3])}"
    return f"of type {type(found).__name__}"


def merged(left: Gradients, right: Gradients) -> Gradients:
    """Return the sum of two nodes of the tree, in the memory of the left one."""
    into: list[Tensor] = []
    added: list[Tensor] = []
    for a, b in zip(left, right, strict=True):
        if a is not None and b is not None:
            into.append(a)
            added.append(b)
    if into:
        torch._foreach_add_(into, added)
    return [b if a is None else a for a, b in zip(left, right, strict=True)]


def copied(gradients: Gradients) -> Gradients:
    """Return gradients in memory of their own."""
    return [None if one is None else one.clone() for one in gradients]


def same(left: Gradients, right: Gradients) -> bool:
    """Return whether two gradients have the same bits."""
    pairs = zip(left, right, strict=True)
    return all(a is b or (a is not None and b is not None and _same_bits(a, b)) for a, b in pairs)


def _same_bits(left: Tensor, right: Tensor) -> bool:
    if torch.equal(left, right):
        return True
    # What is no number is not equal to itself.
    return bool(torch.equal(torch.nan_to_num(left), torch.nan_to_num(right)))


def squared_norm(gradients: Sequence[Tensor | None]) -> float:
    """Return the sum of the squares of all elements."""
    there = [one.detach() for one in gradients if one is not None]
    if not there:
        return 0.0
    norms = torch.stack([norm.double() for norm in torch._foreach_norm(there)])
    return float((norms * norms).sum())


def modes_of(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Return the mode of each module, so that an evaluation between updates need not put it back."""
    return [(module, module.training) for module in model.modules()]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: sums over more come in another order, and give other bits."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def publish(board: Board, row: int, gradients: Sequence[Tensor | None]) -> None:
    """Write the gradients of a block to its place on the board."""
    places = board.gradients(row)
    for column, (place, gradient) in enumerate(zip(places, gradients, strict=True)):
        board.touched[row, column] = gradient is not None
        if gradient is not None:
            place.copy_(gradient)


def published(board: Board, row: int, device: torch.device) -> Gradients:
    """Return the gradients of a block that a worker wrote, on this device."""
    touched = board.touched[row].tolist()
    places = zip(board.gradients(row), touched, strict=True)
    return [place.to(device) if there else None for place, there in places]
