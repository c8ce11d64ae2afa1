"""What the experiments on elastic training learn: generated images, and a small network that counts its samples."""

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

#: Fifty batches a pass, so that all are whole, and what each sample weighs in an update is a power of two.
SAMPLES, BATCH, CLASSES, SIDE = 12_800, 256, 10, 16
RATE, MOMENTUM = 0.05, 0.9

Batch = tuple[Tensor, Tensor, Tensor]


def images() -> Batch:
    """Return noisy images of ten classes, their classes, and their indices; always the same."""
    generator = torch.Generator().manual_seed(0)
    shapes = torch.randn(CLASSES, 1, SIDE, SIDE, generator=generator)
    classes = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    noise = torch.randn(SAMPLES, 1, SIDE, SIDE, generator=generator)
    return shapes[classes] + 2.0 * noise, classes, torch.arange(SAMPLES)


class CountingNetwork(nn.Module):
    """A small convolutional network, whose weights also tell how often each sample was learned from.

    The loss has a term of value 0 whose gradient at `visits` is one over the size of the batch for each sample of
    it. So what `visits` has moved by is a part of the weights like any other: an update that is lost takes its
    samples along, wherever it is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(16 * (SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, CLASSES),
        )  # fmt: skip
        self.visits = nn.Parameter(torch.zeros(SAMPLES))

    @override
    def forward(self, inputs: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        counted = self.visits[indices].mean()
        return self.layers(inputs), counted - counted.detach()


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean loss over the samples of a batch."""
    inputs, classes, indices = batch
    said, counted = model(inputs, indices)
    mean: Tensor = functional.cross_entropy(said, classes) + counted
    return mean


def optimizer_of(model: CountingNetwork) -> torch.optim.Optimizer:
    """Return what trains the network, and counts exactly."""
    groups: list[dict[str, Any]] = [
        {"params": model.layers.parameters()},
        {"params": [model.visits], "lr": 1.0, "momentum": 0.0},
    ]
    return torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM)


class Diary:
    """A line after each update, which is in the file whatever happens to the process afterwards."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, model: CountingNetwork, *, number: int, workers: int, pids: tuple[int, ...]) -> None:
        """Tell of an update: a checksum of all weights, and the samples that they have lost or learned twice."""
        checksum = 0
        for parameter in model.parameters():
            checksum = zlib.crc32(parameter.detach().contiguous().numpy().tobytes(), checksum)
        visits = -BATCH * model.visits.detach()
        passes = number * BATCH // SAMPLES
        line = {
            "at": time.time(),
            "number": number,
            "workers": workers,
            "checksum": checksum,
            "lost": float((passes - visits).clamp(min=0).sum()),
            "twice": float((visits - passes - 1).clamp(min=0).sum()),
            "pids": pids,
        }
        os.write(self._file, (json.dumps(line) + "\n").encode())
