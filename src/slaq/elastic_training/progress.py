"""All that a checkpoint holds: weights, optimizer, schedule, and where the training stands in its data."""

from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from slaq.core.errors import ElasticError
from slaq.elastic_training.checkpoint import CheckpointFile, kept, revived
from slaq.elastic_training.options import Settings
from slaq.elastic_training.pace import FixedPace, Pace, ScaledPace
from slaq.elastic_training.position import Position
from slaq.elastic_training.precision import Precision
from slaq.elastic_training.replica import Course, Gradients, squared_norm
from slaq.elastic_training.update import Update, Work
from slaq.engines.processes import cores_here


class TrainingProgress:
    """How far a training has come, and how it takes a step further."""

    def __init__(
        self, course: Course, optimizer: Optimizer, settings: Settings, precision: Precision, saved: Any
    ) -> None:
        self.course = course
        self.precision = precision
        self.batch_size = settings.batch_size
        self.position = Position()
        self._optimizer = optimizer
        self._settings = settings
        self._saved = saved
        #: Micro-batches of a base batch; once chosen, they stay, because the bits depend on them.
        self.parts = settings.micro_batches or (saved or {}).get("micro_batches") or settings.default_parts
        self._samples = len(course.samples)
        self.pace: Pace
        if settings.mode == "exact":
            self._most = 1
            self.pace = FixedPace(settings.scheduler)
        else:
            self._most = settings.max_scale
            self.pace = ScaledPace(optimizer, settings, self.parts)
        #: Progress that one told loss stands for, in base updates: what one update can make here. Once chosen, it
        #: stays, because losses are numbered by it.
        self.stride = (saved or {}).get("stride") or min(self._most, max(cores_here() // self.parts, 1))
        path = settings.checkpoint
        self.file = None if path is None else CheckpointFile(Path(path), settings.checkpoint_every)

    @property
    def rows(self) -> int:
        """How many micro-batches an update can have."""
        return self.parts * self._most

    @property
    def ended(self) -> bool:
        """Whether all passes are made."""
        return self.position.passes >= self._settings.passes

    @property
    def total(self) -> int:
        """How many base updates the training takes."""
        return ceil(self._samples / self.batch_size) * self._settings.passes

    @property
    def trace(self) -> list[int]:
        """The multiple of every update so far."""
        if isinstance(self.pace, ScaledPace):
            return self.pace.trace.copy()
        return [1] * self.position.updates

    def next_work(self, workers: int) -> Work:
        """Return the coming update."""
        multiple = self.pace.multiple(workers, self.position.updates)
        size = ceil(self.batch_size / self.parts)
        return self.position.work(self._samples, batch=self.batch_size, size=size, multiple=multiple)

    def take(self, work: Work, records: NDArray[Any], found: Gradients) -> float:
        """Take the sum of the gradients of an update as those of the model; return the mean loss."""
        loss, count, summed = _mean(records)
        there = [one for one in found if one is not None]
        if summed and there:
            torch._foreach_mul_(there, 1.0 / count)
        norms = None
        if self.course.measures(work):
            scale = self.precision.scale**2
            counts = records[:, 1].tolist()
            # Each is the share of its micro-batch in the mean over the update, or a sum over its terms.
            shares = counts if summed else [one / count for one in counts]
            squares = [
                norm / (share * share * scale) if share else 0.0
                for norm, share in zip(records[:, 3].tolist(), shares, strict=True)
            ]
            norms = counts, squares, squared_norm(there) / scale
        self.pace.begins(work, norms)
        for parameter, gradient in zip(self.course.model.parameters(), found, strict=True):
            parameter.grad = gradient
        self.precision.unscale(self._optimizer)
        return loss

    def step(self, work: Work) -> tuple[float, float, float]:
        """Make the update; return its factor, gain and rate."""
        pace = self.pace
        factor, gain = pace.factor, pace.gain
        rate = float(self._optimizer.param_groups[0].get("lr", 0.0)) * factor
        if self._settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.course.model.parameters(), self._settings.clip_norm)
        self.precision.step(self._optimizer)
        pace.stepped()
        self.position = self.position.after(work, self._samples)
        return factor, gain, rate

    def save(self, context: Any, last: Update | None, *, wait: bool) -> None:
        """Save where the training stands; `last` is an update whose turn of the loop has not ended."""
        if self.file is not None:
            self.file.save(self.position.updates, self._state(last), wait=wait)
        elif context is not None:
            context.checkpoint(kept(self._state(last)))

    def restore(self, context: Any) -> Update | None:
        """Go on from a checkpoint, if there is one; return the update whose turn of the loop had not ended."""
        state, self._saved = self._saved, None
        if state is None:
            if self.file is not None:
                self.file.begin(0, self._state(None))
            return None
        _check(self._signature(), state["signature"], self.file)
        with torch.no_grad():
            model = self.course.model
            weights, buffers = list(model.parameters()), list(model.buffers())
            for own, saved in zip([*weights, *buffers], state["weights"] + state["buffers"], strict=True):
                own.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
        if self._settings.scheduler is not None:
            self._settings.scheduler.load_state_dict(state["scheduler"])
        self.pace.load_state_dict(state["pace"])
        self.precision.load_state_dict(state["precision"])
        self.position = Position(**state["position"])
        last: Update | None = None if state["last"] is None else Update(**state["last"])
        return last

    def _state(self, last: Update | None) -> dict[str, Any]:
        model, scheduler = self.course.model, self._settings.scheduler
        return {
            "signature": self._signature(),
            "micro_batches": self.parts,
            "stride": self.stride,
            "weights": list(model.parameters()),
            "buffers": list(model.buffers()),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if scheduler is None else scheduler.state_dict(),
            "pace": self.pace.state_dict(),
            "precision": self.precision.state_dict(),
            "position": asdict(self.position),
            "last": None if last is None else asdict(last),
        }

    def _signature(self) -> dict[str, Any]:
        """Return what must not differ between a checkpoint and the training that goes on from it."""
        settings, model = self._settings, self.course.model
        tensors = [*model.named_parameters(), *model.named_buffers()]
        return {
            "mode": settings.mode,
            "batch_size": settings.batch_size,
            "micro_batches": self.parts,
            "seed": settings.seed,
            "number of samples": self._samples,
            "model": [(name, tuple(one.shape), str(one.dtype)) for name, one in tensors],
            "optimizer": type(self._optimizer).__name__,
            "number of parameter groups": len(self._optimizer.param_groups),
            "scheduler": type(settings.scheduler).__name__,
        }


def saved_state(path: Any, context: Any) -> Any:
    """Return the state that an earlier run left, in its file or with its job; None where there is none."""
    if path is not None:
        return CheckpointFile(Path(path), 1.0).read()
    found = None if context is None else context.restored
    return None if found is None else revived(found)


def _mean(records: NDArray[Any]) -> tuple[float, float, bool]:
    """Return the mean loss of an update, how much it counts, and whether it was given in sums."""
    kinds = set(records[:, 2].tolist())
    if len(kinds) > 1:
        raise ElasticError(
            "the loss is now a mean and now (sum, count)", "return the same for every micro-batch"
        )
    total, count = sum(records[:, 0].tolist()), sum(records[:, 1].tolist())
    if count <= 0:
        raise ElasticError("the loss counted nothing in a whole batch", "return a count above 0")
    return total / count, count, bool(kinds.pop())


def _check(own: Mapping[str, Any], saved: Mapping[str, Any], file: CheckpointFile | None) -> None:
    where = "of this job" if file is None else str(file.path)
    for name, value in own.items():
        found = saved.get(name)
        if found == value:
            continue
        told = "another model" if name == "model" else f"{name} {found!r}, and this training's is {value!r}"
        raise ElasticError(
            f"the checkpoint {where} is of a training with {told}",
            "give what it was made with, or another path to train from the beginning",
        )
