"""Buffers of a model, such as the running means of batch normalisation: each micro-batch starts from the same."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from slaq.core.errors import ElasticError
from slaq.elastic_training.board import Board
from slaq.elastic_training.update import Work

#: Buffers of up to so many elements are compared; whether a larger one was written to is told by its version.
COMPARED = 65536


class ModelBuffers:
    """The buffers of the model in this process, and those on the board."""

    def __init__(self, model: nn.Module, board: Board) -> None:
        self._board = board
        self._homes = list(_homes(model))
        self._own = list(model.buffers())
        # Batch normalisation writes its means without counting a version.
        self._always = [isinstance(module, _NormBase) for module, _ in self._homes]
        #: What `_version` was, and which generation was read, when each was last equal to the board's.
        self._versions = [-1] * len(self._own)
        self._seen = [-1] * len(self._own)

    def load(self) -> None:
        """Make every buffer as it is on the board."""
        generations = self._board.generations.tolist()
        for place, (own, shared) in enumerate(zip(self._own, self._board.buffers, strict=True)):
            self._put_back(place)
            known = self._seen[place] == generations[place] and self._versions[place] == own._version
            if known and not self._always[place] and (own.numel() > COMPARED or _equal(own, shared)):
                continue
            with torch.no_grad():
                own.copy_(shared)
            self._versions[place], self._seen[place] = own._version, generations[place]

    def keep(self, row: int) -> None:
        """Write what a micro-batch changed to its row of the board."""
        for place, shared in enumerate(self._board.buffers):
            found = self._found(place)
            changed = self._changed(place, found, shared)
            self._board.changed[row, place] = changed
            if changed:
                self._board.results(row)[place].copy_(found)

    def publish(self) -> None:
        """Write to the board what was changed between updates; the driver alone calls this."""
        for place, shared in enumerate(self._board.buffers):
            found = self._found(place)
            if self._seen[place] < 0 or self._changed(place, found, shared):
                self._write(place, found)

    def reduce(self, work: Work) -> None:
        """Write the mean over the micro-batches, weighted by their samples; of whole numbers, the first's.

        Of differences, in a fixed order: where nothing differs, nothing is rounded.
        """
        rows = range(work.micro_batches)
        for place, shared in enumerate(self._board.buffers):
            changed = [row for row in rows if self._board.changed[row, place]]
            if not changed:
                continue
            if not shared.is_floating_point():
                self._write(place, self._board.results(changed[0])[place])
                continue
            before = shared.double()
            total = torch.zeros_like(before)
            for row in changed:
                after = self._board.results(row)[place].double()
                total += (after - before) * (work.size(row) / work.samples)
            self._write(place, before + total)
        self.load()

    def _write(self, place: int, value: Tensor) -> None:
        with torch.no_grad():
            self._board.buffers[place].copy_(value)
        self._board.generations[place] += 1
        own = self._own[place]
        if value is own:
            self._versions[place] = own._version
            self._seen[place] = int(self._board.generations[place])

    def _changed(self, place: int, found: Tensor, shared: Tensor) -> bool:
        if found is not self._own[place] or found._version != self._versions[place] or self._always[place]:
            return True
        return found.numel() <= COMPARED and not _equal(found, shared)

    def _found(self, place: int) -> Tensor:
        module, name = self._homes[place]
        found, own = module._buffers[name], self._own[place]
        if found is None or found.shape != own.shape or found.dtype != own.dtype:
            raise ElasticError(
                f"the buffer {name!r} of {type(module).__name__} changed its shape or type while training",
                "give it its final shape and type before slaq.elastic is called",
            )
        return found

    def _put_back(self, place: int) -> None:
        module, name = self._homes[place]
        own = self._own[place]
        if module._buffers[name] is not own:
            module._buffers[name] = own
            self._versions[place] = -1


def _homes(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for name, _ in model.named_buffers():
        path, _, last = name.rpartition(".")
        yield model.get_submodule(path), last


def _equal(own: Tensor, shared: Tensor) -> bool:
    # On a GPU the version alone tells, because looking at numbers would wait for it.
    return own.device.type != "cpu" or torch.equal(own, shared)
