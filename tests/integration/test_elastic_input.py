"""Laws of what elastic training takes: datasets, losses, options; and one sentence for each that it cannot take."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from typing_extensions import override

import slaq
from slaq.core.errors import SlaqError
from tests.integration.elastic_nets import digest, images, loss, momentum, network, training


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """A map-style dataset."""

    def __init__(self) -> None:
        self.x, self.y = images()

    def __len__(self) -> int:
        return len(self.x)

    @override
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Stream(IterableDataset[int]):
    """A dataset that can only be iterated over."""

    @override
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Endless:
    """A dataset without a length."""

    def __getitem__(self, index: int) -> int:
        return index


def result(dataset: Any, function: Any = loss, **options: Any) -> str:
    """Return the digest of a short training on this dataset."""
    model = network()
    optimizer = momentum(model)
    told = {"batch_size": 32, "passes": 1, "micro_batches": 2, **options}
    for _ in slaq.elastic(function, model, optimizer, dataset, **told):
        pass
    return digest(model, optimizer, [])


DATASETS: dict[str, Callable[[], Any]] = {
    "TensorDataset": lambda: TensorDataset(*images()),
    "arrays": lambda: tuple(column.numpy() for column in images()),
    "a map-style dataset": Rows,
    "a subset": lambda: Subset(Rows(), range(300)),
    "a list of samples": lambda: [Rows()[index] for index in range(300)],
}


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_form_of_the_data_does_not_matter(kind: str, workers: int) -> None:
    """The same samples give the same bits, in whatever they are kept."""
    assert result(DATASETS[kind](), workers=workers) == result(images())


def test_a_dataset_need_not_be_pickled() -> None:
    """Workers are forked: a dataset, a loss and a model that cannot be pickled reach them as they are."""
    rows = Rows()
    kept = {"not picklable": lambda: rows, "generator": iter(range(3))}

    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.kept = network(), kept

        @override
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.inner(x)
            return found

    model = Local()
    updates = list(slaq.elastic(loss, model, momentum(model), rows, batch_size=32, passes=1, workers=2))
    assert updates[-1].ends


def summed(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """The sum over the samples of even kinds, and their number: as one leaves out padding."""
    x, y = batch
    counted = y % 2 == 0
    return functional.cross_entropy(model(x)[counted], y[counted], reduction="sum"), int(counted.sum())


def test_a_sum_is_divided_by_its_count() -> None:
    """(sum, count) is the mean over what the whole batch counts, however it falls into micro-batches."""
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    state = {name: one.clone() for name, one in flat.state_dict().items()}
    found = []
    for parts, workers in ((1, 1), (4, 1), (4, 2)):
        flat.load_state_dict(state)
        under_way = slaq.elastic(
            summed,
            flat,
            momentum(flat),
            images(),
            batch_size=300,
            passes=1,
            micro_batches=parts,
            workers=workers,
        )
        (update,) = under_way
        found.append((update.loss, flat.state_dict()["1.weight"].clone()))
    assert found[1][0] == found[2][0] == pytest.approx(found[0][0])
    assert torch.equal(found[1][1], found[2][1])
    assert torch.allclose(found[0][1], found[1][1], atol=1e-6)


def test_augmentation_is_the_same_on_any_worker() -> None:
    """What a dataset, a transform or a collate function draws at random does not depend on who draws it."""

    def noisy(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = batch
        shift = np.random.randint(3)
        return torch.roll(x, shift, -1) + 0.1 * torch.randn_like(x), y

    plain = result(Rows())
    assert result(Rows(), transform=noisy) == result(Rows(), transform=noisy, workers=2) != plain


def test_gradients_are_clipped_as_a_whole() -> None:
    """`clip_norm` limits the norm of the whole batch's gradient."""
    model = network()
    before = torch.cat([one.detach().flatten() for one in model.parameters()])
    under_way = training(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        clip_norm=0.01,
        batch_size=300,
        passes=1,
        workers=2,
    )
    next(under_way)
    moved = torch.cat([one.detach().flatten() for one in model.parameters()]) - before
    assert moved.norm().item() == pytest.approx(0.01, rel=1e-3)


def test_half_precision_gives_the_same_bits_too() -> None:
    """With autocast, workers compute what the driver computes, and something else than in full precision."""
    assert result(images(), amp=True) == result(images(), amp=True, workers=2) != result(images())


def test_a_schedule_is_stepped_once_an_update() -> None:
    """As in a loop of one's own."""
    model = network()
    optimizer = momentum(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    rates = [update.rate for update in training(model, optimizer, scheduler=scheduler, passes=1)]
    assert rates == pytest.approx([0.05] * 4 + [0.025] * 4 + [0.0125] * 2)


def test_frozen_and_unused_parameters_get_no_gradient() -> None:
    """The optimizer leaves them alone, as it does in a loop of one's own; decay does not shrink them."""
    model = nn.ModuleDict({"used": nn.Linear(64, 4), "unused": nn.Linear(3, 3), "frozen": nn.Linear(3, 3)})
    model["frozen"].requires_grad_(False)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)

    def used(given: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        assert isinstance(given, nn.ModuleDict)
        return functional.cross_entropy(given["used"](batch[0].flatten(1)), batch[1])

    list(slaq.elastic(used, model, optimizer, images(), batch_size=32, passes=1, workers=2))
    same = [name for name, one in model.state_dict().items() if torch.equal(one, before[name])]
    assert sorted(same) == ["frozen.bias", "frozen.weight", "unused.bias", "unused.weight"]


def foreign() -> torch.optim.Optimizer:
    """Return an optimizer of another model."""
    return momentum(network())


def scheduler_of_another() -> Any:
    """Return a scheduler of another optimizer."""
    return torch.optim.lr_scheduler.StepLR(foreign(), 1)


def on_two_devices() -> nn.Module:
    """Return a model that lies partly elsewhere."""
    return nn.Sequential(network(), nn.Linear(2, 2, device="meta"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an iterable dataset": ({"dataset": Stream()}, r"can only be iterated over; give one with __len__"),
    "a dataset without length": ({"dataset": Endless()}, "has no length; give one with __len__"),
    "an empty dataset": ({"dataset": []}, "has no samples"),
    "no dataset": ({"dataset": 3}, "has no __getitem__; give a tensor"),
    "arrays of two lengths": (
        {"dataset": (torch.ones(3), torch.ones(4))},
        "3, 4 samples; give arrays of equal",
    ),
    "a vector": ({"loss": lambda m, b: m(b[0])}, r"a tensor of shape \(\d+, 4\); return the mean"),
    "a number": ({"loss": lambda m, b: 3.0}, "of type float; return the mean"),
    "no gradient": ({"loss": lambda m, b: torch.ones(())}, "a number without a gradient; return"),
    "a triple": ({"loss": lambda m, b: (1, 2, 3)}, "a tuple of 3"),
    "no function": ({"loss": "mse"}, "loss is of type str; give a function"),
    "two devices": ({"model": on_two_devices()}, r"on 2 devices: .* move it to one"),
    "no model": ({"model": "resnet"}, "of type str; give a torch.nn.Module"),
    "foreign parameters": ({"optimizer": foreign()}, "holds 4|6 parameters that are not the model's"),
    "no optimizer": ({"optimizer": None}, "of type NoneType; give a torch.optim.Optimizer"),
    "another's scheduler": ({"scheduler": scheduler_of_another()}, "belongs to another optimizer"),
    "an unknown mode": ({"mode": "fast"}, "no mode of elastic training 'fast'; known: exact, scale"),
    "an unknown rule": ({"rate": "cubic"}, "no rate rule 'cubic'"),
    "too many micro-batches": ({"micro_batches": 33}, "micro_batches is 33 and batch_size 32; give at most"),
    "no batch": ({"batch_size": 0}, "batch_size is 0; give a whole number from 1"),
    "half a pass": ({"passes": 0.5}, "passes is 0.5; give a whole number from 1"),
    "no workers": ({"workers": 0}, "workers is 0"),
    "a negative norm": ({"clip_norm": -1.0}, "clip_norm is -1.0; give a number above 0"),
    "odd precision": ({"amp": "half"}, "amp is 'half'; give True"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_is_refused(case: str) -> None:
    """With one sentence that says what was found and what to give."""
    changed, told = REFUSED[case]
    model = changed.pop("model", None) or network()
    given = {"loss": loss, "dataset": images(), "batch_size": 32, "passes": 1, **changed}
    optimizer = given.pop("optimizer", ...)
    if optimizer is ...:
        optimizer = momentum(network() if isinstance(model, str) else model)
    with pytest.raises(SlaqError, match=told) as refused:
        list(slaq.elastic(given.pop("loss"), model, optimizer, given.pop("dataset"), **given))
    assert "\n" not in str(refused.value)


def test_the_two_halves_of_an_update_are_called_in_turns() -> None:
    """Anything else is refused."""
    model = network()
    under_way = training(model, momentum(model))
    with pytest.raises(SlaqError, match="call gradients"):
        under_way.apply()
    assert under_way.gradients()
    with pytest.raises(SlaqError, match="call apply"):
        under_way.gradients()
