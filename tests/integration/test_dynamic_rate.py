"""The learning rate of PyTorch loops whose batch changes: optimizers, schedulers, checkpoints."""

import copy
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slaq.core.errors import LearningRateError, UnknownNameError  # noqa: E402
from slaq.core.learning_rate import RAMP, REST  # noqa: E402
from slaq.torch import AT_FIRST, EVERY, DynamicRate  # noqa: E402

BASE = 8
#: What is no number, and what type checkers would refuse.
MANY: Any = "many"

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "AdamW of a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}


def small_net() -> Any:
    """Return a net that is the same every time."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def backward(net: Any, update: int, samples: int = BASE) -> Any:
    """Compute gradients of a loss on data that depends on the number of the update only, and return the loss."""
    generator = torch.Generator().manual_seed(update)
    x = torch.randn(samples, 6, generator=generator)
    y = torch.randint(3, (samples,), generator=generator)
    net.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss


def weights(net: Any) -> Any:
    """Return all weights in one row."""
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def groups(net: Any) -> list[dict[str, Any]]:
    """Return the two layers as groups of parameters, the second without weight decay."""
    return [{"params": net[0].parameters()}, {"params": net[2].parameters(), "weight_decay": 0.0}]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_at_the_scaled_rate(name: str) -> None:
    """With any optimizer and several groups, updates are bit for bit those of a loop that scales the rate by hand.

    Outside the step, the rate of every group is the base's, and moments are what the optimizer made them.
    """
    scaled_net, plain_net = small_net(), small_net()
    scaled, plain = OPTIMIZERS[name](groups(scaled_net)), OPTIMIZERS[name](groups(plain_net))
    rate = DynamicRate(scaled, BASE, rule="linear")
    bases = [float(group["lr"]) for group in plain.param_groups]
    for update in range(40):
        if update in (3, 10, 30):
            rate.batch({3: 32, 10: 64, 30: 16}[update])
        for group, base in zip(plain.param_groups, bases, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(base).mul_(rate.factor)
            else:
                group["lr"] = base * rate.factor
        for net, optimizer in ((scaled_net, scaled), (plain_net, plain)):
            backward(net, update)
            optimizer.step()
        assert [float(group["lr"]) for group in scaled.param_groups] == bases
    assert rate.factor == 2.0
    assert torch.equal(weights(scaled_net), weights(plain_net))


@pytest.mark.parametrize("name", ["momentum", "AdamW", "AdamW of a tensor"])
@pytest.mark.parametrize("rule", ["auto", "linear", "sqrt", "adascale", "none"])
def test_the_base_batch_trains_as_without(name: str, rule: str) -> None:
    """As long as the batch is the base's, weights and checkpoints are those of the loop without slaq."""
    with_net, without_net = small_net(), small_net()
    with_rate, without = (OPTIMIZERS[name](with_net.parameters()), OPTIMIZERS[name](without_net.parameters()))
    rate = DynamicRate(with_rate, BASE, rule=rule)
    for update in range(30):
        for net, optimizer in ((with_net, with_rate), (without_net, without)):
            backward(net, update)
            optimizer.step()
    assert rate.factor == pytest.approx(1.0, rel=1e-12)
    assert torch.allclose(weights(with_net), weights(without_net), rtol=0, atol=1e-7)
    assert saved(with_rate.state_dict()["param_groups"]) == saved(without.state_dict()["param_groups"])


def saved(state: object) -> bytes:
    """Return the bytes that torch.save makes of it."""
    file = io.BytesIO()
    torch.save(state, file)
    return bytes(file.getvalue())


def test_the_factor_climbs_on_the_ramp_and_falls_at_once() -> None:
    """From the base batch to four times of it takes 8k updates, and a smaller batch has its factor at once."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    rate = DynamicRate(optimizer, BASE, rule="linear")
    rate.batch(4 * BASE)
    seen, settled = [], []
    for update in range(REST * RAMP * 4 + 1):
        backward(net, update)
        seen.append(rate.factor)
        settled.append(rate.settled)
        optimizer.step()
    assert seen[:33] == [1 + 3 * t / 32 for t in range(33)]
    assert set(seen[33:]) == {4.0}
    assert settled == [False] * REST * RAMP * 4 + [True]
    rate.batch(2 * BASE)
    assert (rate.factor, rate.settled) == (2.0, True)


def test_auto_chooses_by_the_optimizer() -> None:
    """Without a measurement `auto` aims at k for SGD, for all others at its square root; max_scale limits both."""
    parameters = list(small_net().parameters())
    for optimizer, factor in (
        (torch.optim.SGD(parameters, lr=0.1), 16.0),
        (torch.optim.AdamW(parameters, lr=0.1), 4.0),
        (torch.optim.RMSprop(parameters, lr=0.1), 4.0),
    ):
        rate = DynamicRate(optimizer, BASE, measure=False)
        rate.batch(16 * BASE)
        for _ in range(8 * 16):
            optimizer.step()
        assert rate.factor == factor
    rate = DynamicRate(torch.optim.SGD(parameters, lr=0.1), BASE, rule="linear", max_scale=3)
    rate.batch(16 * BASE)
    assert rate._rate.target == 3.0


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 7),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 48),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=48),
    "warm-up": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=10),
            torch.optim.lr_scheduler.ExponentialLR(o, 0.95),
        ],
        milestones=[10],
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("way", ["wrapped", "counted"])
def test_schedules_follow_base_updates(name: str, way: str) -> None:
    """After as many samples, a schedule stands where it stands with the base batch, whatever the batches were."""
    plain = torch.optim.SGD(small_net().parameters(), lr=0.01, momentum=0.9)
    schedule = SCHEDULERS[name](plain)
    expected = []
    for _ in range(48):
        plain.step()
        schedule.step()
        expected.append(plain.param_groups[0]["lr"])

    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.01, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)
    rate = DynamicRate(optimizer, BASE)
    paced = rate.schedule(scheduler) if way == "wrapped" else None
    done = 0.0
    for k in (1.0, 1.0, 4, 4, 4, 2, 2, 0.5, 0.5, 1, 8, 8, 8, 4):
        rate.batch(k * BASE)
        optimizer.step()
        if paced is not None:
            paced.step()
        else:
            for _ in range(rate.scheduler_steps()):
                scheduler.step()
        done += k
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected[int(done) - 1]), done
    assert rate.base_updates == done == 48


def test_the_last_step_may_pass_the_end_of_one_cycle() -> None:
    """A last batch that counts for more base updates than are left ends the cycle, and is no error."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.01)
    rate = DynamicRate(optimizer, BASE, rule="linear")
    paced = rate.schedule(torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10))
    rate.batch(4 * BASE)
    for _ in range(3):
        optimizer.step()
        paced.step()
    assert (rate.base_updates, paced.last_epoch) == (12.0, 10)


def test_a_short_last_batch_is_no_change() -> None:
    """The short last batch of a pass counts by its size for the schedule, and leaves factor and ramp alone."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.01)
    rate = DynamicRate(optimizer, BASE, rule="linear")
    rate.batch(4 * BASE)
    optimizer.step()
    rate.batch(BASE // 2, once=True)
    before = rate.factor
    optimizer.step()
    assert rate.base_updates == 4.5
    assert before == 1 + 3 / 32
    assert rate.factor == 1 + 2 * 3 / 32
    optimizer.step()
    assert rate.base_updates == 8.5


@pytest.mark.parametrize("name", ["momentum", "AdamW", "AdamW of a tensor"])
@pytest.mark.parametrize("rule", ["auto", "linear", "adascale"])
@pytest.mark.parametrize("stop", [10, 16, 25])
def test_a_run_taken_up_again_ends_with_the_same_bits(name: str, rule: str, stop: int) -> None:
    """Stopped in the midst of a ramp and taken up from its checkpoint, a run ends where it would have ended.

    After an odd number of updates one sample of the noise is half taken, and the stop costs it.
    """
    whole, *_ = train(name, rule, 0, 40, None)
    _, checkpoint, factor = train(name, rule, 0, stop, None)
    rest, _, _ = train(name, rule, stop, 40, checkpoint)
    assert factor != 1.0 or rule == "adascale"
    if rule == "linear" or stop % 2 == 0:
        assert torch.equal(whole, rest)
    assert torch.allclose(whole, rest, atol=0.05)


def train(name: str, rule: str, start: int, stop: int, checkpoint: bytes | None) -> tuple[Any, bytes, float]:
    """Train over these updates; return the weights, a checkpoint and the last factor."""
    net = small_net()
    optimizer = OPTIMIZERS[name](net.parameters())
    rate = DynamicRate(optimizer, BASE, rule=rule)
    scheduler = rate.schedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100))
    parts = {"net": net, "optimizer": optimizer, "rate": rate, "scheduler": scheduler}
    if checkpoint is not None:
        states = torch.load(io.BytesIO(checkpoint), weights_only=True)
        for part, state in states.items():
            parts[part].load_state_dict(state)
    for update in range(start, stop):
        rate.batch(4 * BASE if update >= 5 else BASE)
        backward(net, update)
        optimizer.step()
        scheduler.step()
    return weights(net), saved({part: thing.state_dict() for part, thing in parts.items()}), rate.factor


def test_a_batch_of_more_agreement_is_worth_more_with_noise() -> None:
    """Where all batches have the same gradient the measured gain stays at 1; where they are noise it comes to k."""
    gains = []
    for noise in (0.0, 30.0):
        torch.manual_seed(1)
        point = torch.nn.Parameter(torch.zeros(200))
        optimizer = torch.optim.SGD([point], lr=1e-6)
        rate = DynamicRate(optimizer, BASE)
        rate.batch(4 * BASE)
        for _ in range(EVERY * 60):
            point.grad = torch.ones(200) + noise * torch.randn(200) / 2.0
            optimizer.step()
        gains.append(rate.gain)
        assert rate.factor == pytest.approx(max(2.0, rate.gain), abs=0.01)
    assert gains[0] == pytest.approx(1.0)
    assert gains[1] > 3.5


def test_micro_batches_may_tell_the_noise() -> None:
    """A loop that knows its micro-batches' gradients feeds their norms, and nothing else is measured then."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.1)
    rate = DynamicRate(optimizer, BASE)
    rate.batch(4 * BASE)
    for _ in range(300):
        rate.measured([BASE] * 4, [2.0] * 4, 1.25)
        optimizer.step()
    # Variance 1 and signal 1 per base batch: r = 2 / (1/4 + 1).
    assert rate.gain == pytest.approx(1.6)
    assert rate.factor == 2.0


def test_parts_of_a_batch_tell_the_noise() -> None:
    """A loop that accumulates gradients over parts lets them be looked at, and the gain comes out right.

    Gradients that are not measured cost nothing, and what was measured so takes the place of what is measured
    without being told.
    """
    torch.manual_seed(2)
    point = torch.nn.Parameter(torch.zeros(400))
    optimizer = torch.optim.SGD([point], lr=1e-6)
    rate = DynamicRate(optimizer, BASE)
    rate.batch(4 * BASE)
    measured = 0
    for _ in range(EVERY * 100):
        measured += rate.measuring
        optimizer.zero_grad()
        for part in range(1, 5):
            # A true gradient of 1 with a deviation of 1 for each base batch: r = 2 / (1/4 + 1).
            (point * (1.0 + torch.randn(400)) / 4.0).sum().backward()
            rate.accumulated(part * BASE)
        optimizer.step()
    assert rate._rate.noise.samples == measured == AT_FIRST // 2 + 100 - AT_FIRST // EVERY
    assert rate.gain == pytest.approx(1.6, abs=0.05)
    assert rate.factor == 2.0


PARTS = """
import sys
import torch
from slaq.torch import DynamicRate

rank, meeting = int(sys.argv[1]), f"file://{sys.argv[2]}"
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
torch.manual_seed(0)
net = torch.nn.Linear(6, 3)
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
rate = DynamicRate(optimizer, base_batch=8)
rate.batch(32)
torch.manual_seed(1 + rank)
for update in range(40):
    optimizer.zero_grad()
    x = torch.randn(16, 6)
    y = x[:, :3].argmax(1)
    with ddp.no_sync():
        (torch.nn.functional.cross_entropy(ddp(x[:8]), y[:8]) / 2).backward()
        rate.accumulated(8)
    (torch.nn.functional.cross_entropy(ddp(x[8:]), y[8:]) / 2).backward()
    rate.accumulated(32)
    optimizer.step()
print(rate.factor, rate._rate.noise.samples, net.weight.sum().item())
"""


@pytest.mark.slow
def test_all_processes_of_a_distributed_training_agree(tmp_path: Path) -> None:
    """Under DistributedDataParallel every process has the same factor and the same weights, bit for bit."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PARTS, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    answers = [run.communicate(timeout=100)[0].split() for run in runs]
    assert answers[0] == answers[1]
    factor, samples, _ = answers[0]
    assert 1.0 <= float(factor) < 4.0
    assert int(samples) == AT_FIRST // 2 + 1


def test_mixed_precision_skips_what_overflows() -> None:
    """Under a GradScaler a skipped step counts as none, and the others are those of the scaled rate."""
    net, reference = small_net(), small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    rate = DynamicRate(optimizer, BASE)
    rate.batch(2 * BASE)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for update in range(12):
        loss = backward(net, update)
        net.zero_grad()
        scaler.scale(loss_of(net, update)).backward()
        assert torch.isfinite(loss)
        if update == 4:
            net[0].weight.grad.fill_(float("inf"))
        else:
            backward(reference, update)
            plain.param_groups[0]["lr"] = 0.05 * rate.factor
            plain.step()
        scaler.step(optimizer)
        scaler.update()
    assert rate.base_updates == 22.0
    assert torch.allclose(weights(net), weights(reference), atol=1e-6)


def loss_of(net: Any, update: int) -> Any:
    """Return the loss of that update, not yet differentiated."""
    generator = torch.Generator().manual_seed(update)
    x = torch.randn(BASE, 6, generator=generator)
    return torch.nn.functional.cross_entropy(net(x), torch.randint(3, (BASE,), generator=generator))


def test_a_closure_sees_its_gradients_counted() -> None:
    """An optimizer that computes gradients inside its step, from a closure, is scaled and measured like others."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    rate = DynamicRate(optimizer, BASE)
    rate.batch(2 * BASE)
    for update in range(EVERY * 10):
        optimizer.step(partial(backward, net, update))
    assert rate._rate.noise.samples == AT_FIRST // 2 + (EVERY * 10 - AT_FIRST) // EVERY
    assert rate.base_updates == EVERY * 20


def test_a_step_that_fails_leaves_no_scaled_rate() -> None:
    """After a step that raised, the checkpoint and the next step have the base's rate."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    rate = DynamicRate(optimizer, BASE, rule="linear-at-once")
    rate.batch(2 * BASE)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.05
    backward(net, 0)
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert rate.base_updates == 2.0


def test_an_optimizer_around_its_own_kind_is_scaled_once() -> None:
    """Horovod derives its optimizer from the user's class, so that one step runs the hooks twice."""

    def step(self: Any, closure: Any = None) -> Any:
        return torch.optim.SGD.step(self, closure)

    Distributed = type("Distributed", (torch.optim.SGD,), {"step": step})
    net, reference = small_net(), small_net()
    optimizer = Distributed(net.parameters(), lr=0.05)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    rate = DynamicRate(optimizer, BASE, rule="linear-at-once")
    rate.batch(2 * BASE)
    for each, by in ((net, optimizer), (reference, plain)):
        backward(each, 0)
        by.step()
    assert torch.equal(weights(net), weights(reference))
    assert rate.base_updates == 2.0


def test_what_wraps_an_optimizer_is_looked_through() -> None:
    """Accelerate and Lightning hand out objects that hold the optimizer whose step is made."""

    class Wrapper:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.05)
    wrapped: Any = Wrapper(Wrapper(optimizer))
    assert DynamicRate(wrapped, BASE).optimizer is optimizer


def test_copies_and_pickles_of_the_optimizer_are_plain() -> None:
    """The optimizer can be copied, and its copy is not scaled; after remove() neither is the original."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    rate = DynamicRate(optimizer, BASE, rule="linear-at-once")
    rate.batch(2 * BASE)
    copy.deepcopy(optimizer).step()
    assert rate.base_updates == 0.0
    rate.remove()
    optimizer.step()
    assert rate.base_updates == 0.0
    assert DynamicRate(optimizer, BASE).factor == 1.0


def test_gradients_that_say_nothing_are_not_measured() -> None:
    """Sparse gradients, and updates without any, train as usual; only nothing is measured."""
    table = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    rate = DynamicRate(optimizer, BASE)
    rate.batch(4 * BASE)
    for _ in range(32):
        optimizer.step()
        optimizer.zero_grad()
        table(torch.tensor([1, 2])).sum().backward()
    assert rate._rate.noise.samples == 0
    assert rate.factor == 2.0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda o: DynamicRate(o, 0), "base_batch is 0; give the number of samples"),
        (lambda o: DynamicRate(o, float("nan")), "base_batch is nan; give the number of samples"),
        (lambda o: DynamicRate(o, BASE).batch(0), "the batch is 0; give the number of samples"),
        (lambda o: DynamicRate(o, BASE).batch(float("inf")), "the batch is inf; give the number of samples"),
        (lambda o: DynamicRate(o, MANY).batch(BASE), "base_batch is 'many'; give the number of samples"),
        (
            lambda o: DynamicRate(small_net(), BASE),
            "DynamicRate needs a torch optimizer, not Sequential; give",
        ),
        (lambda o: DynamicRate(o, BASE, max_scale=0.5), "max_scale is 0.5; give a number of 1 or more"),
        (
            lambda o: DynamicRate(torch.optim.LBFGS(small_net().parameters()), BASE),
            "DynamicRate cannot scale LBFGS, which chooses the length of its steps itself; use another",
        ),
        (
            lambda o: DynamicRate(torch.optim.Rprop(small_net().parameters()), BASE),
            "DynamicRate cannot scale Rprop, which uses the learning rate in its first step only; use another",
        ),
        (
            lambda o: (DynamicRate(o, BASE), DynamicRate(o, BASE)),
            "this optimizer has a DynamicRate already, and two would multiply; use that one",
        ),
        (
            lambda o: DynamicRate(o, BASE).load_state_dict({}),
            r"this is not the state of a scaled rate \(KeyError: 'factor'\); give what state_dict\(\) returned",
        ),
        (
            lambda o: DynamicRate(o, BASE).load_state_dict(
                DynamicRate(torch.optim.SGD([torch.zeros(1)], lr=0.1), 16).state_dict()
            ),
            r"the checkpoint's base batch is 16.0, and this one's 8.0; give DynamicRate the base batch of",
        ),
        (
            lambda o: DynamicRate(o, BASE).schedule(torch.optim.lr_scheduler.ReduceLROnPlateau(o)),
            "ReduceLROnPlateau follows a metric and not updates; step it yourself, as without slaq",
        ),
        (
            lambda o: DynamicRate(o, BASE).schedule(
                torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), 1)
            ),
            "this scheduler belongs to another optimizer; give the scheduler of the optimizer that is scaled",
        ),
        (
            lambda o: DynamicRate(o, BASE).schedule("cosine"),
            r"schedule\(\) needs a torch scheduler, not str; give one of torch.optim",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make: Callable[[Any], object], sentence: str) -> None:
    """What cannot be scaled is refused with what was found and what to give instead."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.1)
    with pytest.raises(LearningRateError, match=f"^{sentence}"):
        make(optimizer)


def test_an_unknown_rule_is_refused() -> None:
    """The rules that there are stand in the refusal of one that is not."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.1)
    with pytest.raises(UnknownNameError, match=r"^there is no rate rule 'lineal'; did you mean 'linear'\?"):
        DynamicRate(optimizer, BASE, rule="lineal")


def test_a_scheduler_with_two_drivers_is_refused() -> None:
    """A loop that steps the scheduler itself, beside what follows base updates, is told so."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.1)
    rate = DynamicRate(optimizer, BASE)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    paced = rate.schedule(scheduler)
    optimizer.step()
    scheduler.step()
    with pytest.raises(
        LearningRateError, match=r"^the scheduler was stepped by somebody else too; call step\(\)"
    ):
        paced.step()


def test_the_state_of_a_bare_scheduler_is_taken() -> None:
    """A checkpoint that was made without slaq can be gone on from."""
    optimizer = torch.optim.SGD(small_net().parameters(), lr=0.1)
    bare = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(7):
            bare.step()
    other = torch.optim.SGD(small_net().parameters(), lr=0.1)
    rate = DynamicRate(other, BASE)
    paced = rate.schedule(torch.optim.lr_scheduler.StepLR(other, 5))
    paced.load_state_dict(bare.state_dict())
    other.step()
    paced.step()
    assert paced.last_epoch == 8


def test_slaq_alone_imports_no_torch_and_a_missing_torch_names_the_extra() -> None:
    """`import slaq` does not import PyTorch, and where it is missing the error says what to install."""
    script = """
import sys
import slaq
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    import slaq.torch
except slaq.SlaqError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "PyTorch is not installed; install it with: pip install 'slaq[torch]'\n"
