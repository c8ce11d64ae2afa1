"""Laws of elastic training in its exact mode: the same bits, however many workers, and whatever happens to them."""

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from slaq.elastic_training import ElasticTraining, Update
from slaq.elastic_training.position import order
from slaq.elastic_training.seeds import set_seeds
from tests.integration.elastic_nets import DEVICE, digest, images, momentum, network, training

Disturb = Callable[[ElasticTraining, random.Random], None]


def undisturbed(_training: ElasticTraining, _chance: random.Random) -> None:
    """Leave it alone."""


def resized(under_way: ElasticTraining, chance: random.Random) -> None:
    """Change how many workers there are."""
    under_way.resize(chance.randint(1, 5))


def killed(under_way: ElasticTraining, chance: random.Random) -> None:
    """Kill a worker."""
    if under_way.processes:
        os.kill(chance.choice(under_way.processes), signal.SIGKILL)


def trained(disturb: Disturb = undisturbed, **options: Any) -> str:
    """Train, disturbing each update, and return the digest of everything."""
    model = network()
    optimizer = momentum(model)
    updates: list[Update] = []
    with training(model, optimizer, **options) as under_way:
        chance = random.Random(5)
        for update in under_way:
            updates.append(update)
            disturb(under_way, chance)
    return digest(model, optimizer, updates)


@pytest.fixture(scope="module")
def alone() -> str:
    """What one worker gets."""
    return trained()


@pytest.mark.parametrize(
    ("disturb", "workers"),
    [(undisturbed, 2), (undisturbed, 3), (resized, 1), (killed, 2), (killed, 4)],
    ids=["two workers", "three workers", "thirty changes", "kills of one", "kills of three"],
)
def test_no_bit_depends_on_the_workers(alone: str, disturb: Disturb, workers: int) -> None:
    """Weights, momentum, buffers and losses are the same for any workers, changes and kills."""
    assert trained(disturb, workers=workers) == alone


def test_the_seed_matters(alone: str) -> None:
    """The digest is of what was trained: another seed gives another one."""
    assert trained(seed=1) != alone


def test_one_micro_batch_is_a_plain_loop() -> None:
    """Without micro-batches an update is what everybody's own loop makes of those samples, bit for bit."""
    ours, theirs = (nn.Sequential(nn.Flatten(), nn.Linear(64, 4)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    for _ in training(ours, momentum(ours), batch_size=300, micro_batches=1, passes=3):
        pass
    x, y = (column.to(DEVICE) for column in images())
    theirs.to(DEVICE)
    optimizer = momentum(theirs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for passed in range(3):
        chosen = torch.from_numpy(order(0, passed, len(x)))
        optimizer.zero_grad()
        nn.functional.cross_entropy(theirs(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_random_numbers_of_the_loop_are_its_own() -> None:
    """The body of the loop draws what it would draw without a training."""
    model = network()
    set_seeds(3)
    drawn = [
        (torch.rand(1).item(), np.random.rand(), random.random())
        for _ in training(model, momentum(model), passes=1)
    ]
    set_seeds(3)
    assert drawn == [(torch.rand(1).item(), np.random.rand(), random.random()) for _ in drawn]


def test_an_evaluation_between_updates_changes_nothing(alone: str) -> None:
    """A model put into evaluation mode is trained in the mode it had at the start."""

    def evaluate(under_way: ElasticTraining, _chance: random.Random) -> None:
        model = under_way.model.eval()
        with torch.no_grad():
            model(images(8)[0].to(DEVICE))

    assert trained(evaluate, workers=2) == alone


def test_gradients_can_be_touched() -> None:
    """What the loop writes into gradients is what the optimizer steps with."""
    model = network()
    before = [one.detach().clone() for one in model.parameters()]
    under_way = training(model, torch.optim.SGD(model.parameters(), lr=1.0), passes=1)
    while under_way.gradients():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        under_way.apply()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_updates_tell_where_the_training_is() -> None:
    """Numbers, passes, samples and ends are those of the data: the last batch of a pass is short."""
    model = network()
    updates = list(training(model, momentum(model), passes=2, workers=2))
    assert [update.number for update in updates] == list(range(1, 21))
    assert [update.pass_number for update in updates] == [1] * 10 + [2] * 10
    assert [update.samples for update in updates] == ([32] * 9 + [12]) * 2
    assert [update.number for update in updates if update.ends_pass] == [10, 20]
    assert [update.number for update in updates if update.ends] == [20]


@pytest.mark.skipif(DEVICE != "cpu", reason="one card is used by one process")
def test_no_process_is_left() -> None:
    """The workers end with the training."""
    model = network()
    with training(model, momentum(model), workers=4) as under_way:
        assert next(under_way).workers == 4
        pids = under_way.processes
        assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
