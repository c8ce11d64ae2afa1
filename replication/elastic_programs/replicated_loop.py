"""Trains a small network with DistributedDataParallel over gloo, as PyTorch's tutorial on fault tolerance does.

Beyond that tutorial, the script takes up a pass in its middle, keeps the whole batch the same for any number of
processes, saves by time, and saves before it ends when it is told to.
"""

import argparse
import os
import signal
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from replication.elastic_programs.images import (
    BATCH,
    SAMPLES,
    CountingNetwork,
    Diary,
    images,
    loss,
    optimizer_of,
)


def main() -> None:
    """Train until so many updates are made, or somebody ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--every", type=float, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    (options.folder / f"rank-{rank}").write_text(str(os.getpid()))
    model = CountingNetwork()
    optimizer = optimizer_of(model)
    snapshot = options.folder / "snapshot"
    number = load(snapshot, model, optimizer)
    replicas = DistributedDataParallel(model)
    sampler: DistributedSampler[int] = DistributedSampler(range(SAMPLES), world, rank)  # type: ignore[arg-type]
    data, diary, saved = images(), Diary(options.folder / "diary"), time.monotonic()
    share, batches = BATCH // world, SAMPLES // BATCH
    for passed in count(number // batches):
        sampler.set_epoch(passed)
        mine = torch.tensor(list(sampler))
        for place in range(number % batches, batches):
            chosen = mine[place * share : (place + 1) * share]
            optimizer.zero_grad()
            inputs, classes, indices = (column[chosen] for column in data)
            torch.autograd.backward(loss(replicas, (inputs, classes, indices)))
            optimizer.step()
            number += 1
            if rank == 0:
                diary.write(model, number=number, workers=world, pids=())
                if told or time.monotonic() - saved >= options.every:
                    save(snapshot, model, optimizer, number)
                    saved = time.monotonic()
            if told or number >= options.updates:
                os._exit(0)


def load(snapshot: Path, model: CountingNetwork, optimizer: torch.optim.Optimizer) -> int:
    """Take up what was saved; return how many updates it had made."""
    if not snapshot.exists():
        return 0
    state: dict[str, Any] = torch.load(snapshot)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["number"])


def save(snapshot: Path, model: CountingNetwork, optimizer: torch.optim.Optimizer, number: int) -> None:
    """Replace what was saved."""
    draft = snapshot.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "number": number}, draft)
    draft.replace(snapshot)


if __name__ == "__main__":
    main()
