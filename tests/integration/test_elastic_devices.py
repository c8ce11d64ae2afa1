"""Laws of elastic training on several devices: a process for each; without cards the CPU, named twice."""

import os
import signal
import time
from typing import Any

import pytest
from torch import Tensor
from typing_extensions import override

import slaq
from slaq.core.errors import ElasticError
from slaq.elastic_training import Update
from tests.integration.elastic_nets import DEVICE, digest, images, loss, momentum, network, training


@pytest.mark.slow
def test_a_process_for_each_device_gives_the_same_bits() -> None:
    """What the devices of a list compute together has the bits of one alone, also when a process is killed."""
    model = network()
    optimizer = momentum(model)
    alone = list(training(model, optimizer, passes=30))
    expected = digest(model, optimizer, alone)
    model = network()
    optimizer = momentum(model)
    together: list[Update] = []
    kills = 0
    with training(model, optimizer, passes=30, device=[DEVICE, DEVICE]) as under_way:
        for update in under_way:
            together.append(update)
            if kills < 2 and update.workers == 2 and under_way.processes:
                kills += 1
                os.kill(under_way.processes[0], signal.SIGKILL)
            elif kills < 2:
                # A process that is started afresh loads PyTorch first; the loop goes on meanwhile.
                time.sleep(0.2)
    assert kills == 2
    assert digest(model, optimizer, together) == expected


def test_what_cannot_be_sent_is_told() -> None:
    """A process that is not forked gets the dataset by pickle; one that cannot be pickled is refused plainly."""
    model = network()
    rows = [(x, y) for x, y in zip(*images(), strict=True)]

    class Held(list[tuple[Tensor, Tensor]]):
        @override
        def __reduce__(self) -> Any:
            raise TypeError("this holds an open file")

    under_way = slaq.elastic(
        loss,
        model,
        momentum(model),
        Held(rows),
        batch_size=32,
        passes=1,
        micro_batches=2,
        device=[DEVICE, DEVICE],
    )
    with pytest.raises(ElasticError, match=r"cannot be sent .*this holds an open file.*train on one device"):
        next(under_way)


@pytest.mark.parametrize("asked", ["abacus", [], 3.5, ["cpu", "nowhere"]])
def test_unknown_devices_are_refused(asked: Any) -> None:
    """With a sentence that says what to give."""
    model = network()
    with pytest.raises(ElasticError, match="give one such as 'cuda', or a list"):
        training(model, momentum(model), device=asked)


def test_a_card_that_is_not_there_is_told() -> None:
    """Instead of CUDA's own words."""
    model = network()
    with pytest.raises(ElasticError, match="there is no cuda:99 here; give one of the"):
        training(model, momentum(model), device="cuda:99")
