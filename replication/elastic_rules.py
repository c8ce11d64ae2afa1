"""Trains nets while their batch grows and shrinks, under each rule for the learning rate, at equal samples.

Every run sees the same samples: a trace says how many base batches an update has at each share of them. SGD with
momentum learns images, AdamW learns text; the rate is scaled by `slaq.torch.DynamicRate`, as users have it. One
process computes the gradient of the whole batch, because only its size matters here. PyTorch and NumPy suffice:

    python -m replication.elastic_rules --device cuda --data DIR --out FILE.json

`elastic_accuracy` runs the same for `make replicate` and writes the report's section. What this command writes can
stand in replication/results as elastic_rules.json.
"""

import argparse
import gzip
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from slaq.torch import DynamicRate

#: The experiment that reports these runs.
NAME = "elastic_rules"
#: The rules, in the order of the report.
RULES = ("none", "linear-at-once", "linear", "sqrt", "adascale", "auto")
#: The small batch throughout, which every rule is compared with.
FIXED = "fixed"
#: Changes of the batch in the walk.
WALK_CHANGES = 24
#: A run has diverged if it ends with a loss that is not finite, or above this share of the loss of a guess.
DIVERGED = 0.95
#: Losses are averaged over so many samples, and the worst is looked for in so many of these after a change.
BIN, LOOK = 16, 12


# Traces: how many base batches an update has.


def one_to_sixteen(share: float, seed: int) -> int:
    """Return k for a batch that becomes sixteen times as large after a third of the samples."""
    return 1 if share < 1 / 3 else 16


def sixteen_to_one(share: float, seed: int) -> int:
    """Return k for a batch that becomes sixteen times as small after a third of the samples."""
    return 16 if share < 1 / 3 else 1


def walk(share: float, seed: int) -> int:
    """Return k for a batch that is doubled or halved 24 times, between 1 and 16."""
    return _walk(seed)[min(int(share * (WALK_CHANGES + 1)), WALK_CHANGES)]


@cache
def _walk(seed: int) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    powers = [int(rng.integers(5))]
    while len(powers) <= WALK_CHANGES:
        # At an end there is one way only.
        step = 1 if powers[-1] == 0 else -1 if powers[-1] == 4 else int(rng.choice((-1, 1)))
        powers.append(powers[-1] + step)
    return tuple(2**power for power in powers)


def up_and_down(share: float, seed: int) -> int:
    """Return k for a batch that is doubled twice and halved twice: 32, 64, 128, 64, 32."""
    return (1, 2, 4, 2, 1)[min(int(5 * share), 4)]


def sixteen_from_the_start(share: float, seed: int) -> int:
    """Return k for a batch that is sixteen base batches throughout."""
    return 16


TRACES: Mapping[str, Callable[[float, int], int]] = {
    "1 → 16": one_to_sixteen,
    "16 → 1": sixteen_to_one,
    "walk": walk,
    "1 → 2 → 4 → 2 → 1": up_and_down,
    "16 from the start": sixteen_from_the_start,
}


# What is learned.


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of a kind of learning one run does."""

    samples: int
    base_batch: int
    #: Tuned for the base batch on other seeds than those reported.
    rate: float
    #: Channels of the net, or its width.
    width: int


class Residual(nn.Module):
    """Two convolutions around which what comes in is carried past."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, outside) for _ in range(2))
        self.past = nn.Conv2d(inside, outside, 1, stride, bias=False)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return what comes out."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.past(x))


def image_net(width: int, side: int) -> nn.Module:
    """Return a small residual net with group norm."""
    first = 2 if side > 8 else 1
    return nn.Sequential(
        nn.Conv2d(1, width, 3, first, 1, bias=False),
        nn.GroupNorm(4, width),
        nn.ReLU(),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, 10),
    )


class TextNet(nn.Module):
    """A small GPT over characters."""

    def __init__(self, letters: int, width: int, length: int, layers: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, letters, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    @override
    def forward(self, text: Tensor) -> Tensor:
        """Return the scores of each next letter."""
        x = self.letters(text) + self.places
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.out(self.norm(x))  # type: ignore[no-any-return]


#: Of scikit-learn's 1,797 digits, those trained on.
DIGITS = 1300
#: Letters that a run of text sees at a time.
LENGTH = 64


@dataclass(frozen=True, slots=True)
class Task:
    """Something to learn: samples of a training set, drawn by number, and how good a net is at the rest."""

    size: int
    net: Callable[[], nn.Module]
    #: The mean loss on the samples of these numbers.
    loss: Callable[[nn.Module, Tensor], Tensor]
    #: Held-out loss and accuracy.
    judge: Callable[[nn.Module], tuple[float, float]]
    #: The loss of a guess.
    guess: float


def images(data: Path | None, size: Size, device: str) -> Task:
    """Return Fashion-MNIST from the folder of outside data, or scikit-learn's digits without one."""
    if data is not None:
        with np.load(data / "fashion_mnist" / "fashion_mnist_20k.npz") as found:
            x, y, other_x, other_y = (found[name] for name in ("x_train", "y_train", "x_test", "y_test"))
        x, other_x = x / 255.0, other_x / 255.0
    else:
        from sklearn.datasets import load_digits

        pictures, digits = load_digits(return_X_y=True)
        x, other_x = np.split(pictures.reshape(-1, 8, 8) / 16.0, [DIGITS])
        y, other_y = np.split(digits, [DIGITS])
    mean, spread = x.mean(), x.std()
    inputs, held_out = (
        torch.tensor((part - mean) / spread, dtype=torch.float32, device=device)[:, None]
        for part in (x, other_x)
    )
    labels, held_labels = (torch.tensor(part, dtype=torch.int64, device=device) for part in (y, other_y))

    def loss(net: nn.Module, chosen: Tensor) -> Tensor:
        return functional.cross_entropy(net(inputs[chosen]), labels[chosen])

    def judge(net: nn.Module) -> tuple[float, float]:
        scores = torch.cat([net(part) for part in torch.chunk(held_out, -(-len(held_out) // 1000))])
        right = (scores.argmax(1) == held_labels).double().mean()
        return functional.cross_entropy(scores, held_labels).item(), right.item()

    return Task(
        size=len(inputs),
        net=lambda: image_net(size.width, inputs.shape[-1]),
        loss=loss,
        judge=judge,
        guess=math.log(10),
    )


def text(data: Path | None, size: Size, device: str) -> Task:
    """Return tinyshakespeare from the folder of outside data, or a made-up language without one."""
    if data is not None:
        letters = gzip.decompress((data / "tinyshakespeare" / "input.txt.gz").read_bytes()).decode()
    else:
        letters = generated_text()
    known = sorted(set(letters))
    codes = torch.tensor([known.index(letter) for letter in letters], device=device)
    training = int(0.9 * len(codes))
    window = torch.arange(LENGTH + 1, device=device)
    held_out = torch.arange(training, len(codes) - LENGTH - 1, max(LENGTH, (len(codes) - training) // 1000))

    def scored(net: nn.Module, starts: Tensor) -> tuple[Tensor, Tensor]:
        rows = codes[starts.to(device)[:, None] + window]
        return net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()

    def judge(net: nn.Module) -> tuple[float, float]:
        parts = [scored(net, part) for part in torch.chunk(held_out, -(-len(held_out) // 250))]
        scores, truth = (torch.cat(each) for each in zip(*parts, strict=True))
        right = (scores.argmax(1) == truth).double().mean()
        return functional.cross_entropy(scores, truth).item(), right.item()

    return Task(
        size=training - LENGTH - 1,
        net=lambda: TextNet(len(known), size.width, LENGTH, 2 if size.width < 128 else 4),
        loss=lambda net, chosen: functional.cross_entropy(*scored(net, chosen)),
        judge=judge,
        guess=math.log(len(known)),
    )


def generated_text() -> str:
    """Return sentences of a small made-up language, always the same: each word decides which may follow it."""
    rng = np.random.default_rng(1)
    sounds = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choice(sounds, rng.integers(1, 4))) for _ in range(300)]
    likely = 1.0 / np.arange(1, 301)
    follows = [rng.choice(300, 8, p=likely / likely.sum()) for _ in words]
    sentences, now = [], 0
    for _ in range(3000):
        line = []
        for _ in range(int(rng.integers(4, 12))):
            now = int(follows[now][min(int(rng.exponential(2.0)), 7)])
            line.append(words[now])
        sentences.append(" ".join(line).capitalize() + ".\n")
    return "".join(sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of learning: its data, and its optimizer."""

    make: Callable[[Path | None, Size, str], Task]
    optimizer: Callable[[nn.Module, float], torch.optim.Optimizer]


KINDS: Mapping[str, Kind] = {
    "images": Kind(
        make=images,
        optimizer=lambda net, rate: torch.optim.SGD(
            net.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4
        ),
    ),
    "text": Kind(
        make=text,
        optimizer=lambda net, rate: torch.optim.AdamW(net.parameters(), lr=rate, betas=(0.9, 0.95)),
    ),
}


# One run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run to be made."""

    kind: str
    trace: str
    rule: str
    seed: int
    size: Size
    data: Path | None
    device: str


@cache
def task_of(kind: str, data: Path | None, size: Size, device: str) -> Task:
    """Return what is learned, made once in each process."""
    return KINDS[kind].make(data, size, device)


def order(task: Task, samples: int, seed: int, device: str) -> Tensor:
    """Return the numbers of all samples of a run, in passes of which each is shuffled anew."""
    rng = np.random.default_rng(seed)
    passes = [rng.permutation(task.size) for _ in range(-(-samples // task.size))]
    return torch.from_numpy(np.concatenate(passes)[:samples]).to(device)


def train(case: Case) -> dict[str, Any]:
    """Make one run; return how it ended, and how it took the changes of its batch."""
    began = time.perf_counter()
    size, device = case.size, case.device
    if device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    task = task_of(case.kind, case.data, size, device)
    torch.manual_seed(case.seed)
    net = task.net().to(device)
    optimizer = KINDS[case.kind].optimizer(net, size.rate)
    rate = DynamicRate(optimizer, size.base_batch, rule="none" if case.rule == FIXED else case.rule)
    schedule = rate.schedule(cosine(optimizer, size.samples // size.base_batch))
    chosen = order(task, size.samples, case.seed, device)
    done, updates, factors = [0], [], []
    while done[-1] < size.samples:
        k = 1 if case.rule == FIXED else TRACES[case.trace](done[-1] / size.samples, case.seed)
        batch = chosen[done[-1] : done[-1] + k * size.base_batch]
        rate.batch(k * size.base_batch)
        factors.append((k, rate.factor))
        optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=device)
        # In two halves where the noise is to be measured.
        seen = 0
        for part in torch.chunk(batch, 2) if rate.measuring and len(batch) > 1 else (batch,):
            share = task.loss(net, part) * (len(part) / len(batch))
            torch.autograd.backward(share)
            loss += share.detach()
            seen += len(part)
            rate.accumulated(seen)
        optimizer.step()
        schedule.step()
        updates.append(loss)
        done.append(done[-1] + len(batch))
    losses = torch.stack(updates).cpu().numpy().astype(float)
    net.eval()
    with torch.no_grad():
        held_out, accuracy = task.judge(net)
    return {
        **{name: getattr(case, name) for name in ("kind", "trace", "rule", "seed")},
        "updates": len(losses),
        "loss": held_out,
        "accuracy": accuracy,
        "diverged": not (np.isfinite(losses[-1]) and held_out < DIVERGED * task.guess),
        **shocks(np.array(done[1:]), losses, np.array([k for k, _ in factors]), size.base_batch),
        "curve": thinned(
            np.array(done[1:]), losses, np.array([factor for _, factor in factors]), size.samples
        ),
        "gain": rate.gain,
        "seconds": time.perf_counter() - began,
    }


def cosine(optimizer: torch.optim.Optimizer, updates: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a warm-up over a twentieth of the base updates, and then half a cosine down to 0."""
    warm = max(1, updates // 20)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda n: min(
            (n + 1) / warm, 0.5 * (1.0 + math.cos(math.pi * min(1.0, max(0, n - warm) / (updates - warm))))
        ),
    )


def shocks(done: Any, losses: Any, ks: Any, base_batch: int) -> dict[str, float | None]:
    """Return the worst loss after a change of k, relative to the loss before, and the updates until that is back.

    Both are means over the changes that are preceded by enough samples.
    """
    bins = (done - 1) // (BIN * base_batch)
    means = {int(one): float(losses[bins == one].mean()) for one in np.unique(bins)}
    worst, recovery = [], []
    for place in np.flatnonzero(np.diff(ks)) + 1:
        before = [means[one] for one in range(int(bins[place]) - 4, int(bins[place])) if one in means]
        after = [(one, means[one]) for one in means if bins[place] <= one < bins[place] + LOOK]
        if len(before) < 2 or not after:
            continue
        level = float(np.mean(before))
        worst.append(max(mean for _, mean in after) / level)
        back = next((one for one, mean in after if mean <= level), None)
        last = after[-1][0] if back is None else back
        recovery.append(int(np.searchsorted(bins, last, side="right")) - int(place))
    if not worst:
        return {"worst": None, "recovery": None}
    finite = all(math.isfinite(each) for each in worst)
    return {"worst": max(worst) if finite else math.inf, "recovery": float(np.mean(recovery))}


def thinned(done: Any, losses: Any, factors: Any, samples: int, points: int = 60) -> dict[str, list[float]]:
    """Return losses and factors at equal distances over the samples, for a picture."""
    places = np.minimum((done - 1) * points // samples, points - 1)
    there = np.unique(places)
    return {
        "share": [(float(place) + 1.0) / points for place in there],
        "loss": [float(losses[places == place].mean()) for place in there],
        "factor": [float(factors[places == place].mean()) for place in there],
    }


# All runs.

#: The sizes of the kinds in a full, a reduced and a quick run. Rates are near the best of a few on seed 101.
SIZES: Mapping[str, Mapping[str, Size]] = {
    "full": {
        "images": Size(samples=128_000, base_batch=32, rate=0.05, width=32),
        "text": Size(samples=32_000, base_batch=16, rate=0.004, width=128),
    },
    "reduced": {
        "images": Size(samples=40_000, base_batch=32, rate=0.05, width=8),
        "text": Size(samples=8_000, base_batch=16, rate=0.012, width=32),
    },
    "quick": {
        "images": Size(samples=960, base_batch=8, rate=0.03, width=8),
        "text": Size(samples=128, base_batch=4, rate=0.004, width=32),
    },
}


def cases(
    size: str, seeds: Sequence[int], data: Path | None, device: str, kinds: Sequence[str] = tuple(KINDS)
) -> list[Case]:
    """Return every run of this size: all rules on all traces, and the fixed small batch, for each seed."""
    return [
        Case(kind=kind, trace=trace, rule=rule, seed=seed, size=SIZES[size][kind], data=data, device=device)
        for kind in kinds
        for seed in seeds
        for trace, rules in ((FIXED, (FIXED,)), *((trace, RULES) for trace in TRACES))
        for rule in rules
    ]


def run_all(
    chosen: Sequence[Case], processes: int, progress: Callable[[float], None]
) -> list[dict[str, Any]]:
    """Return what came of each run, in order; so many run at a time."""
    if processes == 1:
        found = []
        for done, case in enumerate(chosen, start=1):
            found.append(train(case))
            progress(done / len(chosen))
        return found
    # CUDA forbids fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        # The longest first, so that none is left for the end.
        futures = {
            case: pool.submit(train, case) for case in sorted(chosen, key=expected_updates, reverse=True)
        }
        for done, _ in enumerate(as_completed(futures.values()), start=1):
            progress(done / len(chosen))
        return [futures[case].result() for case in chosen]


def expected_updates(case: Case) -> float:
    """Return about how many updates a run makes."""
    if case.rule == FIXED:
        return case.size.samples / case.size.base_batch
    shares = (np.arange(200) + 0.5) / 200
    inverse = np.mean([1.0 / TRACES[case.trace](share, case.seed) for share in shares])
    return float(inverse) * case.size.samples / case.size.base_batch


def best_device() -> str:
    """Return what trains fastest here."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, and write what came out."""
    parser = argparse.ArgumentParser(prog="python -m replication.elastic_rules", description=__doc__)
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--data", type=Path, help="folder of outside data: fashion_mnist, tinyshakespeare")
    parser.add_argument("--out", type=Path, required=True, help="file for the results, in JSON")
    parser.add_argument("--size", choices=tuple(SIZES), help="full on a GPU, reduced without, by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    options = parser.parse_args(arguments)
    size = options.size or ("reduced" if options.device == "cpu" else "full")
    chosen = cases(size, options.seeds, options.data, options.device, options.kinds)
    began = time.monotonic()
    told = 0

    def progress(share: float) -> None:
        nonlocal told
        if int(20 * share) > told:
            told = int(20 * share)
            print(f"{100 * share:.0f}% after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    runs = run_all(chosen, options.processes, progress)
    results = collected(runs, size, options.data, options.device)
    record = {
        "experiment": NAME,
        "made": {
            "machine": f"{results['device']}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "slaq": version(),
            "quick": size == "quick",
            "seeds": options.seeds,
            "seconds": round(time.monotonic() - began, 1),
        },
        "results": results,
    }
    options.out.write_text(json.dumps(plain(record), indent=1) + "\n", encoding="utf-8")
    for line in summary(runs):
        print(line)
    return 0


def collected(runs: Sequence[dict[str, Any]], size: str, data: Path | None, device: str) -> dict[str, Any]:
    """Return the results of all runs, with what they came from; curves of the first seed only."""
    first = min(one["seed"] for one in runs)
    return {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU",
        "torch": torch.__version__,
        "size": size,
        "outside_data": data is not None,
        "sizes": {kind: asdict(each) for kind, each in SIZES[size].items()},
        "runs": [
            {name: value for name, value in one.items() if name != "curve" or one["seed"] == first}
            for one in runs
        ],
    }


def version() -> str:
    """Return slaq's version; a machine that only borrows the sources knows none."""
    try:
        return importlib.metadata.version("slaq")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def plain(value: Any) -> Any:
    """Return the value with numbers shortened, and None for those that JSON cannot hold."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def summary(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each kind, trace and rule."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for one in runs:
        groups.setdefault((one["kind"], one["trace"], one["rule"]), []).append(one)
    for (kind, trace, rule), found in groups.items():
        numbers = {
            name: np.array([math.nan if one[name] is None else one[name] for one in found], dtype=float)
            for name in ("accuracy", "loss", "worst", "recovery", "updates", "seconds", "gain")
        }
        yield (
            f"{kind:<7} {trace:<18} {rule:<15} accuracy {100 * numbers['accuracy'].mean():5.1f} ± "
            f"{100 * numbers['accuracy'].std():4.1f}  loss {numbers['loss'].mean():6.3f}  "
            f"worst {numbers['worst'].mean():5.2f}  recovery {numbers['recovery'].mean():5.0f}  "
            f"diverged {sum(one['diverged'] for one in found)}  updates {numbers['updates'].mean():5.0f}  "
            f"gain {numbers['gain'].mean():5.2f}  {numbers['seconds'].mean():5.1f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
