"""The learning rate of any PyTorch loop whose batch changes while it trains: `DynamicRate`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import floor, inf, isfinite
from typing import Any

from slaq.core.errors import LearningRateError
from slaq.core.extras import needs
from slaq.core.learning_rate import NoiseSample, OptimizerKind, ScaledRate, rate_rule

with needs("torch"):
    import torch
    from torch import Tensor
    from torch.optim import Optimizer

__all__ = ["DynamicRate", "PacedScheduler"]

#: The noise is measured on two updates in a row, of every so many: always at first, so that it is soon known.
EVERY, AT_FIRST = 8, 32
#: Optimizers that a factor on the rate does not scale, and why.
UNSCALABLE = {
    "LBFGS": "which chooses the length of its steps itself",
    "Rprop": "which uses the learning rate in its first step only",
}


class DynamicRate:
    """Scales the learning rate of an optimizer by dynamic mini-batch SGD while the batch grows and shrinks.

        rate = DynamicRate(optimizer, base_batch=256)     # the batch that the learning rate was tuned for
        ...
        rate.batch(256 * world_size)     # whenever it changes: samples in an update, over all workers

    The optimizer, its schedulers and its checkpoints see the base rate; the factor multiplies it inside
    `optimizer.step()` only. Momentum and other moments are never touched. In distributed training every process
    makes one, and all agree, because all see the same gradients.

    Rules: "auto" (by the optimizer and by the measured gain), "linear", "sqrt", "adascale", "none". No factor is
    above `max_scale`. With `measure=False` nothing is measured and no gradient copied; "auto" is then "linear" for
    SGD and "sqrt" for others.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_batch: float,
        *,
        rule: str = "auto",
        max_scale: float = inf,
        measure: bool = True,
    ) -> None:
        self.optimizer = _innermost(optimizer)
        self.base_batch = _samples(base_batch, "base_batch")
        kind = _kind(self.optimizer)
        if rule == "auto" and not measure:
            rule = "linear" if kind == "sgd" else "sqrt"
        self._rate = ScaledRate.begin(rate_rule(rule, kind), max_scale=max_scale)
        self._pairs = _Pairs(self.optimizer) if measure and self._rate.rule.measures else None
        #: Base batches in the coming update, if that is no change of the batch.
        self._once: float | None = None
        #: Base batches of a part of the coming update, and the squared norm of its mean gradient.
        self._part: tuple[float, Tensor] | None = None
        #: While a step is being made: each group with its own rate, and what the rate is for the step.
        self._scaled: list[tuple[dict[str, Any], Any, Any]] = []
        #: Base updates that `scheduler_steps` has told of.
        self._told = 0
        self._hooks = (
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
            # A step that failed leaves its rate behind; a checkpoint made after it does not show that.
            self.optimizer.register_state_dict_pre_hook(lambda _: self._restore()),
        )

    def batch(self, samples: float, *, once: bool = False) -> None:
        """Say how many samples the updates from the coming one on have, over all workers.

        With `once=True` only the coming update has so many, as the short last batch of a pass: the rate stays.
        """
        k = _samples(samples, "the batch") / self.base_batch
        if once:
            self._once = k
        else:
            self._rate = self._rate.resized(k)

    @property
    def factor(self) -> float:
        """What multiplies the learning rate in the coming update."""
        return self._rate.factor

    @property
    def gain(self) -> float:
        """How many updates on base batches an update is worth, as far as that is measured."""
        return self._rate.gain

    @property
    def base_updates(self) -> float:
        """How many updates on base batches the updates so far stand for: where a schedule should be."""
        return self._rate.base_updates

    @property
    def progress(self) -> float:
        """How many updates on base batches the updates so far were worth, as far as that is measured."""
        return self._rate.progress

    @property
    def most_gain(self) -> float | None:
        """What no batch is worth more than, in updates on base batches; None as long as that is not known."""
        return self._rate.noise.most_gain

    @property
    def settled(self) -> bool:
        """Whether the last change of the batch is so long ago that it may change again: two ramps."""
        return self._rate.update >= self._rate.settled_at

    @property
    def measuring(self) -> bool:
        """Whether it is worth telling by `accumulated` of the coming update: now and then, and often at first."""
        return (
            self._rate.rule.measures
            and self._rate.update % (2 if self._rate.update < AT_FIRST else EVERY) == 0
        )

    def accumulated(self, samples: float) -> None:
        """Measure the noise from gradients that are accumulated over parts of the batch; the surest way.

        Call it after `backward()` of the first part, with the samples of that part in this process, and again after
        that of the last part, with the samples of the whole batch, before gradients are clipped. Each part's loss
        counts by its share of the samples. Every process of a distributed training calls it; the first call may be
        made under `no_sync()`. Updates that are not `measuring` are passed over.
        """
        if not self.measuring:
            return
        k = _samples(samples, "the part of the batch") / self.base_batch
        whole = self._once or self._rate.k
        norm = torch.nn.utils.get_total_norm(_gradients(self.optimizer)).double().square()
        if k < whole:
            # A process counts the part's loss by its share of its own samples; then processes are averaged.
            world = 1
            if torch.distributed.is_initialized():
                world = torch.distributed.get_world_size()
                torch.distributed.all_reduce(norm)
            self._part = (k, norm / world * (whole / (k * world)) ** 2)
        elif self._part is not None:
            part_k, part = self._part
            self._part, self._pairs = None, None
            found = NoiseSample.of_nested((part_k, float(part)), (whole, float(norm)))
            self._rate = self._rate.seen(found)

    def measured(self, samples: Sequence[int], squared_norms: Sequence[float], squared_norm: float) -> None:
        """Take what the micro-batches of the coming update say of the noise, instead of measuring it.

        Give the samples of each, the squared norm of each one's mean gradient, and that of the gradient of all.
        """
        self._pairs = None
        found = NoiseSample.of_micro_batches(samples, squared_norms, squared_norm, self.base_batch)
        if found is not None:
            self._rate = self._rate.seen(found)

    def scheduler_steps(self) -> int:
        """Return how often a scheduler that counts updates is to be stepped now: once for each new base update.

        for _ in range(rate.scheduler_steps()):
            scheduler.step()
        """
        due = floor(self.base_updates + 1e-9)
        steps, self._told = due - self._told, due
        return steps

    def schedule(self, scheduler: Any) -> "PacedScheduler":
        """Return the scheduler with a `step()` that is called after every update and follows base updates."""
        return PacedScheduler(self, scheduler)

    def state_dict(self) -> dict[str, Any]:
        """Return where the rate stands, as numbers and names, for a checkpoint.

        A run that goes on from it makes the same bits, except that a checkpoint between two updates whose gradients
        are compared costs this one sample of the noise.
        """
        pending = None if self._pairs is None else self._pairs.pending()
        return {"base_batch": self.base_batch, "told": self._told, "pending": pending, **self._rate.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the run stood that made this checkpoint; then say by `batch` what the batch is now."""
        rate = self._rate.restored(state)
        if state.get("base_batch") != self.base_batch:
            raise LearningRateError(
                f"the checkpoint's base batch is {state.get('base_batch')!r}, and this one's {self.base_batch!r}",
                "give DynamicRate the base batch of the checkpoint, for which its learning rate was chosen",
            )
        self._rate, self._told = rate, int(state.get("told", 0))
        if self._pairs is not None:
            self._pairs = _Pairs(self.optimizer, state.get("pending"))

    def remove(self) -> None:
        """Leave the optimizer as it was found."""
        self._restore()
        for hook in self._hooks:
            hook.remove()

    def _before_step(self, *_: object) -> None:
        # An optimizer that wraps another of its own class runs the hooks twice, one inside the other, and a step
        # that failed never came to the second hook: in both cases the rates are the base's again first.
        self._restore()
        factor = self._rate.factor
        for group in self.optimizer.param_groups:
            if (lr := group.get("lr")) is None:
                continue
            if isinstance(lr, Tensor):
                # In place, because compiled and captured steps read this very tensor; groups may share one.
                if all(lr is not scaled for _, _, scaled in self._scaled):
                    self._scaled.append((group, lr.clone(), lr))
                    lr.mul_(factor)
            else:
                group["lr"] = lr * factor
                self._scaled.append((group, lr, group["lr"]))

    def _after_step(self, *_: object) -> None:
        if not self._scaled:
            return
        self._restore()
        if self._pairs is not None:
            for sample in self._pairs.update(self._rate.update, self._once or self._rate.k):
                self._rate = self._rate.seen(sample)
        self._rate = self._rate.advanced(self._once)
        self._once = None

    def _restore(self) -> None:
        for group, base, scaled in self._scaled:
            if isinstance(base, Tensor):
                scaled.copy_(base)
            elif group["lr"] is scaled:
                group["lr"] = base
        self._scaled = []


class PacedScheduler:
    """A torch scheduler that advances by base updates, so that warm-up and decay fall on the samples they fell on.

    Made by `DynamicRate.schedule`. Whatever else is asked of it, the scheduler inside answers.
    """

    def __init__(self, rate: DynamicRate, scheduler: Any) -> None:
        kind = type(scheduler).__name__
        if not (hasattr(scheduler, "step") and hasattr(scheduler, "last_epoch")):
            raise LearningRateError(
                f"schedule() needs a torch scheduler, not {kind}", "give one of torch.optim"
            )
        if kind == "ReduceLROnPlateau":
            raise LearningRateError(
                "ReduceLROnPlateau follows a metric and not updates", "step it yourself, as without slaq"
            )
        if _innermost(scheduler.optimizer) is not rate.optimizer:
            raise LearningRateError(
                "this scheduler belongs to another optimizer",
                "give the scheduler of the optimizer that is scaled",
            )
        self.scheduler = scheduler
        self._rate = rate
        self._made = floor(rate.base_updates + 1e-9)
        self._expected = scheduler.last_epoch

    def step(self) -> None:
        """Bring the scheduler to where the run stands; call it after every update."""
        if self.scheduler.last_epoch != self._expected:
            raise LearningRateError(
                "the scheduler was stepped by somebody else too",
                "call step() only on what schedule() returned, once after every optimizer.step()",
            )
        due = floor(self._rate.base_updates + 1e-9)
        # OneCycleLR refuses steps beyond its end, which the last batch of a pass may pass by a part of k.
        end = getattr(self.scheduler, "total_steps", None) or inf
        while self._made < due:
            self._made += 1
            if self.scheduler.last_epoch < end:
                self.scheduler.step()
        self._expected = self.scheduler.last_epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler, and how far it was brought."""
        return {"scheduler": self.scheduler.state_dict(), "base_updates": self._made}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, also from one of the scheduler alone."""
        self.scheduler.load_state_dict(state.get("scheduler", state))
        self._made = int(state.get("base_updates", floor(self._rate.base_updates + 1e-9)))
        self._expected = self.scheduler.last_epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)


class _Pairs:
    """Measures the noise from the gradients of two updates in a row, now and then.

    Numbers are read one update after they were asked for, so that a GPU is never waited for.
    """

    def __init__(self, optimizer: Optimizer, pending: Sequence[float] | None = None) -> None:
        self._optimizer = optimizer
        #: Of the first update of a pair: its number, its k, and its gradients.
        self._first: tuple[int, float, list[Tensor]] | None = None
        #: Of a pair that is being computed: both k, the three norms, and when they are there.
        self._asked: tuple[float, float, Tensor, Any] | None = None
        if pending:
            self._asked = (pending[0], pending[1], torch.tensor(pending[2:], dtype=torch.float64), None)

    def pending(self) -> list[float] | None:
        """Return what was computed and not yet read: both k and the three norms."""
        if self._asked is None:
            return None
        before, now, norms, ready = self._asked
        if ready is not None:
            ready.synchronize()
        return [before, now, *norms.tolist()]

    def update(self, number: int, k: float) -> Iterator[NoiseSample]:
        """Look at the gradients of an update that was just made, and yield what is known by now."""
        if (known := self.pending()) is not None:
            self._asked = None
            before, now, first, second, distance = known
            yield NoiseSample.of_successive((before, first**2), (now, second**2), distance**2)
        place = number % (2 if number < AT_FIRST else EVERY)
        if place >= 2:
            return
        gradients = _gradients(self._optimizer)
        if place == 0:
            self._first = (number, k, [gradient.clone() for gradient in gradients]) if gradients else None
        elif self._first is not None:
            start, before, kept = self._first
            self._first = None
            if start + 1 == number and [g.shape for g in kept] == [g.shape for g in gradients]:
                self._asked = (before, k, *_norms(kept, gradients))


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients; none where this process holds only a part of them, or zeros are left out."""
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse or hasattr(gradient, "to_local") or hasattr(parameter, "_is_flat_param"):
                return []
            found.append(gradient.detach())
    return found


@torch.no_grad()
def _norms(first: list[Tensor], second: list[Tensor]) -> tuple[Tensor, Any]:
    """Return the norms of two gradients and of their difference, and an event after which they can be read."""
    total = torch.nn.utils.get_total_norm
    of_first = total(first)
    torch._foreach_sub_(first, second)
    found = torch.stack([of_first, total(second), total(first)]).double()
    if not found.is_cuda:
        return found, None
    there = torch.empty(3, dtype=torch.float64, pin_memory=True).copy_(found, non_blocking=True)
    return there, torch.cuda.current_stream(found.device).record_event()


def _samples(found: object, what: str) -> float:
    with suppress(TypeError, ValueError):
        number = float(found)  # type: ignore[arg-type]
        if isfinite(number) and number > 0.0:
            return number
    raise LearningRateError(f"{what} is {found!r}", "give the number of samples in an update, above 0")


def _innermost(optimizer: Any) -> Optimizer:
    """Return the optimizer itself, out of what Accelerate and Lightning wrap it in."""
    inside = optimizer
    while (wrapped := getattr(inside, "optimizer", None)) is not None:
        inside = wrapped
    if not isinstance(inside, Optimizer):
        raise LearningRateError(
            f"DynamicRate needs a torch optimizer, not {type(optimizer).__name__}",
            "give the one whose step() your loop calls",
        )
    return inside


def _kind(optimizer: Optimizer) -> OptimizerKind:
    names = {kind.__name__ for kind in type(optimizer).__mro__}
    for name in UNSCALABLE.keys() & names:
        raise LearningRateError(
            f"DynamicRate cannot scale {name}, {UNSCALABLE[name]}",
            "use another optimizer where the batch changes",
        )
    if not any("lr" in group for group in optimizer.param_groups):
        raise LearningRateError(
            f"no parameter group of {type(optimizer).__name__} has a rate 'lr'", "use an optimizer with one"
        )
    for hook in optimizer._optimizer_step_pre_hooks.values():
        if isinstance(getattr(hook, "__self__", None), DynamicRate):
            raise LearningRateError(
                "this optimizer has a DynamicRate already, and two would multiply",
                "use that one, or call its remove() first",
            )
    return "sgd" if any(name.endswith("SGD") for name in names) else "adaptive"
