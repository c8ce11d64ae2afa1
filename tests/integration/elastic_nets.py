"""Small models, data and digests for the tests of elastic training."""

import hashlib
import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import slaq
from slaq.elastic_training import ElasticTraining, Update

#: Where the tests train: `make test-gpu` has them use a card.
DEVICE = os.environ.get("SLAQ_TEST_DEVICE", "cpu")


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean over the samples."""
    x, y = batch
    return functional.cross_entropy(model(x), y)


def images(count: int = 300) -> tuple[Tensor, Tensor]:
    """Return small images of four kinds, told apart by which quarter is bright."""
    chance = torch.Generator().manual_seed(1)
    kinds = torch.randint(4, (count,), generator=chance)
    pixels = torch.randn(count, 1, 8, 8, generator=chance)
    for kind in range(4):
        row, column = 4 * (kind // 2), 4 * (kind % 2)
        pixels[kinds == kind, :, row : row + 4, column : column + 4] += 1.0
    return pixels, kinds


def network() -> nn.Module:
    """Return a network with what makes bits hard to keep: batch normalisation and dropout."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 36, 4)
    )


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer with state."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def training(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> ElasticTraining:
    """Return a training of the images, of ten updates a pass."""
    told = {"batch_size": 32, "passes": 3, "micro_batches": 4, "device": DEVICE, **options}
    return slaq.elastic(loss, model, optimizer, images(), **told)


def digest(model: nn.Module, optimizer: torch.optim.Optimizer, updates: list[Update]) -> str:
    """Return a digest of weights, buffers, the optimizer's state, and losses."""
    found = hashlib.sha256()
    states = [one for state in optimizer.state.values() for _, one in sorted(state.items())]
    for tensor in [*model.state_dict().values(), *states]:
        if isinstance(tensor, Tensor):
            found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    found.update(repr([update.loss for update in updates]).encode())
    return found.hexdigest()[:16]
