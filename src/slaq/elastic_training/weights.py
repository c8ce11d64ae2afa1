"""The weights of the driver's model, moved to shared memory while there are workers that read them."""

import torch
from torch import nn

from slaq.elastic_training.board import Board


class Weights:
    """The parameters of a model, whose memory is that of the board as long as other processes need them."""

    def __init__(self, model: nn.Module, board: Board, *, copied: bool = False) -> None:
        self._board = board
        #: Whether the board has a copy of the weights: workers with a card of their own copy them from there.
        self._copied = copied
        self._parameters = list(model.parameters())
        self._shared = False
        self._frozen = self._those_frozen()

    def share(self) -> None:
        """Have processes that are forked from now on see every change."""
        self._shared = True
        self.keep()

    def keep(self) -> bool:
        """Take in what the user's code did between updates; return whether workers may still be used.

        Weights that were replaced, not written to, are copied; workers that know other weights as frozen are of no
        use any more.
        """
        if self._shared:
            with torch.no_grad():
                for parameter, shared in zip(self._parameters, self._board.parameters, strict=True):
                    if self._copied:
                        shared.copy_(parameter)
                    elif parameter.data_ptr() != shared.data_ptr():
                        shared.copy_(parameter)
                        parameter.data = shared
        frozen = self._those_frozen()
        same = frozen == self._frozen
        self._frozen = frozen
        return same

    def release(self) -> None:
        """Move the weights back: processes that are forked later have their own."""
        if self._shared and not self._copied:
            for parameter in self._parameters:
                parameter.data = parameter.data.clone(memory_format=torch.preserve_format)
        self._shared = False

    def _those_frozen(self) -> list[bool]:
        return [parameter.requires_grad for parameter in self._parameters]
