"""Learns scikit-learn's digits with `slaq.elastic`, and tells of its loss and accuracy after each pass."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import slaq

#: Samples that are not learned from.
HELD_OUT = 360
Split = tuple[Tensor, Tensor]


def main() -> None:
    """Train as asked, and write the diary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("diary", type=Path)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--passes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    train, held_out = digits()
    model = network(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    training = slaq.elastic(
        loss,
        model,
        optimizer,
        train,
        batch_size=options.batch,
        passes=options.passes,
        mode=options.mode,
        seed=options.seed,
    )
    shared = samples = 0
    with options.diary.open("w", buffering=1) as diary:
        print(json.dumps({"at": time.time(), **standing(model, train, held_out)}), file=diary)
        for update in training:
            samples += update.samples
            shared += update.samples * (update.workers > 1)
            if update.ends_pass:
                line = {"at": time.time(), **standing(model, train, held_out)}
                print(json.dumps(line | {"samples": samples, "shared": shared}), file=diary)


def digits() -> tuple[Split, Split]:
    """Return the digits that are learned from, and those held out; always the same."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = torch.tensor(found.images[order] / 16.0, dtype=torch.float32)[:, None]
    classes = torch.tensor(found.target[order])
    return (images[HELD_OUT:], classes[HELD_OUT:]), (images[:HELD_OUT], classes[:HELD_OUT])


def network(width: int) -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * 16, 10),
    )  # fmt: skip


def loss(model: nn.Module, batch: Split) -> Tensor:
    """Return the mean loss over the samples of a batch."""
    mean: Tensor = functional.cross_entropy(model(batch[0]), batch[1])
    return mean


def standing(model: nn.Module, train: Split, held_out: Split) -> dict[str, float]:
    """Return the loss over all that is learned from, and the accuracy on what is held out."""
    with torch.no_grad():
        said = model(held_out[0]).argmax(dim=1)
        accuracy = float((said == held_out[1]).double().mean())
        return {"loss": float(loss(model, train)), "accuracy": accuracy}


if __name__ == "__main__":
    main()
