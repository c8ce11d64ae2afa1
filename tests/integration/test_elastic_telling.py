"""Laws of what an elastic training tells slaq: losses over its progress, whatever the batch is."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Any

import pytest

from slaq.elastic_training import Update
from tests.integration.elastic_nets import momentum, network, training


@dataclass
class Told:
    """The context of a program that notes what it is told."""

    workers: float = 1.0
    stopping: bool = False
    restored: Any = None
    losses: list[tuple[int, float, int, dict[str, float]]] = field(default_factory=list)
    uses: list[dict[str, Any]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def report(self, loss: float, *, step: int, total: int, **metrics: float) -> None:
        self.losses.append((step, loss, total, metrics))

    def can_use(self, **said: Any) -> None:
        self.uses.append(said)

    def announce(self, *, learning_rate: float) -> None:
        self.rates.append(learning_rate)

    def checkpoint(self, state: Any) -> None:
        self.restored = state


def trained(context: Told, workers: list[int], **options: Any) -> list[Update]:
    """Train with these numbers of workers, one after the other over and over."""
    model = network()
    made: list[Update] = []
    with training(model, momentum(model), context=context, **options) as under_way:
        for update in under_way:
            made.append(update)
            context.workers = workers[len(made) // 5 % len(workers)]
    return made


def test_in_exact_mode_each_update_is_told_under_its_number() -> None:
    """One loss an update, numbered from 0 on; the total is how many there will be, whatever workers there are."""
    context = Told()
    made = trained(context, [1, 2])
    assert [(step, loss) for step, loss, _, _ in context.losses] == [
        (one.number - 1, one.loss) for one in made
    ]
    assert {total for _, _, total, _ in context.losses} == {len(made)}
    assert context.losses[-1][3]["workers"] == made[-1].workers
    assert context.uses[0] == {"sizes": "whole", "max_cores": 4, "worth": None, "change_seconds": None}


@pytest.mark.parametrize("workers", [[1], [2], [1, 2, 1]], ids=["alone", "two", "changing"])
def test_in_scale_mode_losses_are_told_over_progress(
    workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss is told for each stride of progress: so many, and in such an order, for any batch."""
    monkeypatch.setattr("slaq.elastic_training.progress.cores_here", lambda: 2)
    context = Told(workers=float(workers[0]))
    made = trained(context, workers, mode="scale", micro_batches=1, max_scale=2, passes=6, rate="linear")
    steps = [step for step, _, _, _ in context.losses]
    assert steps == sorted(set(steps))
    # Without a measured gain, an update is worth the base batches that it is made of.
    progress = sum(ceil(one.samples / 32) for one in made)
    assert progress == 60
    assert len(steps) == pytest.approx(progress / 2, abs=2)
    assert context.losses[-1][2] == pytest.approx(steps[-1] + 1, abs=1)
    grown = sum(later.batch > earlier.batch for earlier, later in pairwise(made))
    assert len(context.rates) == grown


def test_what_workers_are_worth_is_told_once_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule that measures the noise, the training tells what all of its workers are worth at most."""
    monkeypatch.setattr("slaq.elastic_training.telling.TELL_SECONDS", 0.0)
    context = Told(workers=2.0)
    trained(context, [2], mode="scale", micro_batches=1, max_scale=4, passes=20)
    worths = [said["worth"] for said in context.uses if said["worth"] is not None]
    assert worths
    assert all(1.0 <= worth <= 1e6 for worth in worths)
    assert context.uses[-1]["change_seconds"] > 0
