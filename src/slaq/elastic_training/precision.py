"""Numbers of fewer bits where that is wanted, and the same bits each time on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from slaq.core.errors import ElasticError


class Precision:
    """PyTorch's automatic mixed precision; numbers of 16 bits with a short exponent need a scaled loss."""

    def __init__(self, amp: Any, device: torch.device) -> None:
        self.dtype = _type_of(amp, device)
        self._scaler = torch.amp.GradScaler(device.type) if self.dtype is torch.float16 else None
        self._device = device

    @property
    def scale(self) -> float:
        """What multiplies the loss before gradients are computed."""
        if self._scaler is None:
            return 1.0
        # The scaler makes its tensors when it first scales something.
        self._scaler.scale(torch.zeros(1, device=self._device))
        return float(self._scaler.get_scale())

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Step the optimizer, unless gradients were too large for the numbers."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, for a checkpoint."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the scale of a checkpoint."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


def _type_of(amp: Any, device: torch.device) -> torch.dtype | None:
    if amp is None or amp is False:
        return None
    if isinstance(amp, torch.dtype) and amp in (torch.bfloat16, torch.float16):
        return amp
    if amp is not True:
        raise ElasticError(f"amp is {amp!r}", "give True, torch.bfloat16 or torch.float16")
    there = device.type != "cuda" or torch.cuda.is_bf16_supported()
    return torch.bfloat16 if there else torch.float16


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Have a GPU give the same bits each time, as far as PyTorch can; a CPU does with one thread."""
    if device.type == "cpu":
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    tried = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = tried


def prepare(device: torch.device) -> None:
    """Ask for the workspaces that cuBLAS needs to give the same bits each time, before it is loaded."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
