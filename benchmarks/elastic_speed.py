"""Elastic training against its rivals: one worker against a plain loop, two against PyTorch's DDP over gloo.

All run in turns, one thread a process, on the same model and batches. Figures are ratios of samples per second, the
median over the turns.
"""

import argparse
import json
import multiprocessing
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 -- as everybody writes it
from torch import Tensor, nn

import slaq

BATCH = 256


class Block(nn.Module):
    """One layer of a small GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        parts = self.attend(self.before(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, c))
        return x + self.feed(self.after(x))


class Gpt(nn.Module):
    """A small GPT over 64 letters."""

    def __init__(self, width: int = 128, layers: int = 4, length: int = 32) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(64, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64))

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        found: Tensor = self.head(self.blocks(self.letters(x) + self.places(at)))
        return found.flatten(0, 1)


@dataclass(frozen=True)
class Net:
    """A model, and how many batches of it are a turn."""

    make: Callable[[], nn.Module]
    data: Callable[[int], tuple[Tensor, Tensor]]
    batches: int
    batch: int = BATCH


def images(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 1, 28, 28), torch.randint(10, (count,))


def rows(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 784), torch.randint(10, (count,))


def letters(count: int) -> tuple[Tensor, Tensor]:
    text = torch.randint(64, (count, 33))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def mlp(width: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    return make


NETS = {
    "CNN": Net(cnn, images, 10),
    "MLP": Net(mlp(1024), rows, 20),
    "wide MLP": Net(mlp(2944), rows, 6),
    "small GPT": Net(Gpt, letters, 4, batch=64),
}


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return F.cross_entropy(model(x), y.flatten())


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Plain:
    """The loop as everybody writes it, over tensors."""

    def __init__(self, net: Net, data: tuple[Tensor, Tensor]) -> None:
        self.net, self.data = net, data
        self.model = net.make()
        self.optimizer = optimizer_of(self.model)

    def turn(self) -> float:
        x, y = self.data
        began = time.perf_counter()
        order = torch.randperm(len(x))
        for chosen in order.split(self.net.batch):
            self.optimizer.zero_grad()
            value = loss(self.model, (x[chosen], y[chosen]))
            value.backward()
            self.optimizer.step()
            value.item()
        return time.perf_counter() - began

    def close(self) -> None:
        pass


class Elastic:
    """slaq's loop on so many workers."""

    def __init__(self, net: Net, data: tuple[Tensor, Tensor], workers: int, micro_batches: int) -> None:
        model = net.make()
        self.training = slaq.elastic(
            loss, model, optimizer_of(model), data, batch_size=net.batch, passes=10**6, workers=workers,
            micro_batches=micro_batches,
        )  # fmt: skip

    def turn(self) -> float:
        began = time.perf_counter()
        for update in self.training:
            if update.ends_pass:
                break
        return time.perf_counter() - began

    def close(self) -> None:
        self.training.close()


class Ddp:
    """Two processes of PyTorch's DistributedDataParallel over gloo."""

    def __init__(self, name: str, data: tuple[Tensor, Tensor], ranks: int) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        context = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            near, far = context.Pipe()
            process = context.Process(target=_rank, args=(name, data, rank, ranks, port, far), daemon=True)
            process.start()
            self.pipes.append(near)
            self.processes.append(process)

    def turn(self) -> float:
        began = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(True)
        for pipe in self.pipes:
            pipe.recv()
        return time.perf_counter() - began

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(False)
        for process in self.processes:
            process.join()


def _rank(name: str, data: tuple[Tensor, Tensor], rank: int, ranks: int, port: int, pipe: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    net = NETS[name]
    plain = net.make()
    model = nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=True)
    optimizer = optimizer_of(plain)
    x, y = data
    passes = 0
    while pipe.recv():
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(passes))
        for chosen in order.split(net.batch):
            own = chosen[rank::ranks]
            optimizer.zero_grad()
            value = loss(model, (x[own], y[own]))
            value.backward()
            optimizer.step()
            value.item()
        passes += 1
        pipe.send(True)
    dist.destroy_process_group()


def compared(name: str, turns: int) -> dict[str, float]:
    """Return the ratios of samples per second of one net."""
    net = NETS[name]
    torch.manual_seed(0)
    data = net.data(net.batches * net.batch)
    # DDP first: its processes are forked while this one has computed nothing.
    runners: dict[str, Any] = {"ddp": Ddp(name, data, 2)}
    runners["plain"] = Plain(net, data)
    for workers in (1, 2):
        runners[f"slaq {workers}"] = Elastic(net, data, workers, 2)
    took: dict[str, list[float]] = {runner: [] for runner in runners}
    for turn in range(turns + 1):
        for runner, running in runners.items():
            seconds = running.turn()
            if turn:  # the first is to get warm
                took[runner].append(seconds)
    for running in runners.values():
        running.close()

    def ratio(rival: str, ours: str) -> float:
        return round(statistics.median(a / b for a, b in zip(took[rival], took[ours], strict=True)), 3)

    parameters = sum(one.numel() for one in net.make().parameters())
    return {
        "parameters": parameters,
        "ms an update, plain": round(1000 * statistics.median(took["plain"]) / net.batches, 2),
        "1 worker / plain": ratio("plain", "slaq 1"),
        "2 workers / DDP": ratio("ddp", "slaq 2"),
        "2 workers / 1 worker": ratio("slaq 1", "slaq 2"),
    }


def lost(name: str, repeats: int) -> dict[str, float]:
    """Return the time that a change costs, in updates: how much longer the one after it takes than others."""
    net = NETS[name]
    torch.manual_seed(0)
    running = Elastic(net, net.data(net.batches * net.batch), 2, 2).training
    found: dict[str, list[float]] = {"join": [], "leave": [], "kill": []}

    def timed(workers: int) -> float:
        """Return the seconds of the next update, which is the first with so many workers if that is a change."""
        running.resize(workers)
        began = time.perf_counter()
        next(running)
        return time.perf_counter() - began

    for _ in range(repeats):
        alone = statistics.median(timed(1) for _ in range(4))
        # A worker that joins is forked anew: the one before was killed.
        joined = timed(2)
        both = statistics.median(timed(2) for _ in range(4))
        found["join"].append((joined - both) / both)
        found["leave"].append((timed(1) - alone) / alone)
        timed(2)
        os.kill(running.processes[0], signal.SIGKILL)
        # The worker is missed in this update, and replaced in the next one.
        found["kill"].append((timed(2) + timed(2) - 2 * both) / both)
        timed(1)
        for pid in running.processes:
            os.kill(pid, signal.SIGKILL)
        timed(2)
        timed(1)
    running.close()
    return {change: round(statistics.median(updates), 2) for change, updates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NETS, []], help="some of the nets; all by default")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument(
        "--changes", action="store_true", help="the price of a change of workers instead, in updates"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in options.names or NETS:
        found[name] = lost(name, options.turns) if options.changes else compared(name, options.turns)
        if not options.json:
            print(f"{name}: {found[name]}", flush=True)
    if options.json:
        json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
