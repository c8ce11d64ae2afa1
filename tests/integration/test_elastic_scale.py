"""Laws of elastic training in its scale mode: the batch follows the workers, and the rate the batch."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from slaq.core.errors import ElasticError, UnknownNameError
from slaq.core.learning_rate import RULE_NAMES
from slaq.elastic_training import Update
from tests.integration.elastic_nets import digest, momentum, network, training


def walked(
    *, stop: int = 10**9, walk: bool = True, schedule: bool = True, **options: Any
) -> tuple[str, list[Update], list[int]]:
    """Train with workers that come and go; return the digest, the updates and the trace."""
    model = network()
    optimizer = momentum(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60) if schedule else None
    told: dict[str, Any] = {"mode": "scale", "micro_batches": 1, "batch_size": 10, "max_scale": 4}
    chance, updates = random.Random(3), []
    with training(model, optimizer, scheduler=scheduler, **told | options) as under_way:
        for update in under_way:
            updates.append(update)
            if walk:
                under_way.resize(chance.choice([1, 2, 4]))
            if update.number == stop:
                break
    return digest(model, optimizer, []), updates, under_way.trace


def test_the_batch_follows_the_workers() -> None:
    """In whole multiples of the base batch, as many as there are workers for and `max_scale` allows."""
    _, updates, trace = walked(walk=False, workers=9, rate="none")
    assert {update.batch for update in updates} == {40}
    assert trace == [4] * len(updates)
    assert {update.samples for update in updates if not update.ends_pass} == {40}
    assert [update.samples for update in updates if update.ends_pass] == [20] * 3


def test_the_rate_follows_the_batch() -> None:
    """From a factor of 1 on a ramp to the multiple; what the optimizer stepped with is told."""
    _, updates, _ = walked(walk=False, workers=4, rate="linear", passes=6, schedule=False)
    factors = [update.factor for update in updates]
    assert factors[0] == 1.0
    assert factors == sorted(factors)
    assert factors[32] == 4.0
    assert all(update.rate == pytest.approx(0.05 * update.factor) for update in updates)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_any_rule_can_be_replayed(rule: str) -> None:
    """A run with workers that come and go is repeated bit for bit from its trace, on any number of workers."""
    found, updates, trace = walked(rate=rule)
    assert len(set(trace)) > 1
    again, repeated, same = walked(rate=rule, walk=False, replay=trace, workers=2)
    assert (again, same) == (found, trace)
    assert [update.loss for update in repeated] == [update.loss for update in updates]
    assert [update.rate for update in repeated] == [update.rate for update in updates]


def test_every_sample_is_used_once_a_pass() -> None:
    """However the batch changes: the updates of each pass have as many samples together as there are."""
    _, updates, _ = walked()
    for number in (1, 2, 3):
        assert sum(update.samples for update in updates if update.pass_number == number) == 300


def test_a_scaled_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Multiples, ramp, measured noise and schedule are taken up too: the same bits as never stopping."""
    found, updates, trace = walked(rate="auto")
    path = tmp_path / "checkpoint"
    # The checkpoint is of the beginning of the last update that was made.
    walked(rate="auto", checkpoint=path, checkpoint_every=1e-9, stop=len(updates) // 2)
    again, _, same = walked(rate="auto", checkpoint=path, walk=False, replay=trace)
    assert (again, same) == (found, trace)


def test_the_schedule_ends_where_the_samples_end() -> None:
    """It advances by base updates, so that its rate at the end does not depend on the workers."""
    ends = []
    for options in ({"walk": False}, {"walk": True}):
        model = network()
        optimizer = momentum(model)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=90)
        chance = random.Random(1)
        under_way = training(
            model, optimizer, scheduler=scheduler, mode="scale", batch_size=10, micro_batches=1, max_scale=4
        )
        for _ in under_way:
            if options["walk"]:
                under_way.resize(chance.choice([1, 2, 4]))
        ends.append((scheduler.last_epoch, optimizer.param_groups[0]["lr"]))
    assert ends[0] == ends[1] == (90, pytest.approx(0.005))


def test_one_multiple_is_the_plain_schedule() -> None:
    """With one worker throughout, scale mode is exact mode."""
    model, other = network(), network()
    optimizer, its = momentum(model), momentum(other)
    for _ in training(model, optimizer, mode="scale", micro_batches=2, workers=2, passes=1):
        pass
    for _ in training(other, its, micro_batches=2, passes=1):
        pass
    assert digest(model, optimizer, []) == digest(other, its, [])


def test_bad_traces_and_rules_are_refused() -> None:
    """Each with a sentence that says what to give."""
    model = network()
    with pytest.raises(ElasticError, match="outside 1 to 4"):
        training(model, momentum(model), mode="scale", max_scale=4, replay=[1, 5])
    with pytest.raises(ElasticError, match="replay is given with mode='exact'"):
        training(model, momentum(model), replay=[1])
    with pytest.raises(UnknownNameError, match="known: auto, linear"):
        training(model, momentum(model), mode="scale", rate="cubic")
