"""What the learning rate is multiplied by when the batch is k base batches: dynamic mini-batch SGD and its rivals.

A job whose batch follows its workers asks three things of this module:

- *Where to*: a `RateRule` gives the factor that suits a batch, its target.
- *How to get there*: a `ScaledRate` carries one run. Its factor climbs to a higher target on a ramp, from wherever
  it stands, and falls to a lower one at once. It also counts the base updates that a schedule advances by.
- *What a larger batch is worth*: `GradientNoise` estimates AdaScale's gain from the gradients of the run itself.

All are values: a change returns a new one, and the same calls give the same bits. k may be any number above 0 (a
batch of 384 over a base of 256 is k = 1.5). Updates are counted from 0.

The ramp is that of dynamic mini-batch SGD (arXiv 1904.12043). Momentum counts k times as much once the rate is
multiplied by k, so that at once the noise is k^2 times that of the base batch, where the run will bear k. From a
factor of 1 the ramp takes 8k updates. AdaScale is arXiv 2007.05105.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, sqrt
from typing import Any, ClassVar, Literal, Protocol, Self

from typing_extensions import override

from slaq.core.errors import LearningRateError, UnknownNameError

#: Updates of a ramp, for each time that the rate is multiplied.
RAMP = 8
#: Between two changes of the batch there should be so many times the length of a ramp.
REST = 2
#: How much of what earlier samples of the noise said is kept when a new one comes.
KEPT = 0.95
#: The gain is believed after so many samples: a ratio of two noisy numbers, it is far off at first.
BELIEVED_AFTER = 8

#: How an optimizer uses gradients: as they are, or divided by a running size of theirs.
OptimizerKind = Literal["sgd", "adaptive"]


# The rules: where to.


class RateRule(Protocol):
    """Says which factor on the base rate suits a batch of k base batches.

    At k = 1 the target is 1. A target never falls when k or the gain rises. The gain is None until it is known.
    """

    #: What users call it.
    name: ClassVar[str]
    #: Whether the factor climbs on a ramp; else it is at its target at once.
    ramps: ClassVar[bool]
    #: Whether the target depends on the gain, so that it is worth measuring.
    measures: ClassVar[bool]
    #: Whether a schedule advances by the gain; else by k, so that it ends where the samples end.
    advances_by_gain: ClassVar[bool]

    def target(self, k: float, gain: float | None) -> float:
        """Return the factor for k base batches of this gain."""
        ...


@dataclass(frozen=True, slots=True)
class LinearRamp(RateRule):
    """Dynamic mini-batch SGD: k times the rate, on a ramp."""

    name = "linear"
    ramps = True
    measures = False
    advances_by_gain = False

    @override
    def target(self, k: float, gain: float | None) -> float:
        return k


@dataclass(frozen=True, slots=True)
class LinearAtOnce(LinearRamp):
    """k times the rate at once: what others do, and what the ramp is compared with."""

    name = "linear-at-once"
    ramps = False


@dataclass(frozen=True, slots=True)
class SquareRoot(LinearRamp):
    """The square root of k, on a ramp, for optimizers that divide gradients by their size."""

    name = "sqrt"

    @override
    def target(self, k: float, gain: float | None) -> float:
        return sqrt(k)


@dataclass(frozen=True, slots=True)
class AdaScale(RateRule):
    """AdaScale as published: its gain, at once, and schedules that advance by it.

    With those schedules a run that is to end at a low rate needs more samples than with small batches.
    """

    name = "adascale"
    ramps = False
    measures = True
    advances_by_gain = True

    @override
    def target(self, k: float, gain: float | None) -> float:
        return 1.0 if gain is None else gain


@dataclass(frozen=True, slots=True)
class Automatic(RateRule):
    """What suits the optimizer and the noise that was measured, on a ramp.

    For SGD the gain, between the square root of k and k: a gain below the root is measured where a rate that is
    high already makes gradients swing, and the root does no harm if it is climbed to slowly. For optimizers that
    divide gradients by their size the square root of k, or the gain where that is lower. The root until the gain is
    known.
    """

    kind: OptimizerKind = "sgd"

    name = "auto"
    ramps = True
    measures = True
    advances_by_gain = False

    @override
    def target(self, k: float, gain: float | None) -> float:
        root = sqrt(k)
        if gain is None:
            return root
        return min(k, max(root, gain)) if self.kind == "sgd" else min(root, gain)


@dataclass(frozen=True, slots=True)
class Unscaled(LinearRamp):
    """The rate is left alone."""

    name = "none"

    @override
    def target(self, k: float, gain: float | None) -> float:
        return 1.0


#: What users may choose, by name.
RULE_NAMES = ("auto", "linear", "sqrt", "adascale", "none", "linear-at-once")


def rate_rule(name: str, kind: OptimizerKind = "sgd") -> RateRule:
    """Return the rule of this name, for an optimizer of this kind."""
    rules = (Automatic(kind), LinearRamp(), SquareRoot(), AdaScale(), Unscaled(), LinearAtOnce())
    for rule in rules:
        if rule.name == name:
            return rule
    raise UnknownNameError("rate rule", name, RULE_NAMES)


def ramp_length(k: float, factor: float) -> int:
    """Return the updates of a ramp to k base batches from this factor: 8k from a factor of 1."""
    return ceil(RAMP * k / factor)


# The gain: what a larger batch is worth.


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSample:
    """What the gradients of an update or two say of the noise.

    Both numbers are right on average. A single one may be far off, and even negative.
    """

    #: Variance of the gradient of one base batch, summed over the parameters (AdaScale's sigma^2).
    variance: float
    #: Squared norm of the true gradient.
    signal: float

    @classmethod
    def of_micro_batches(
        cls, samples: Sequence[int], squared_norms: Sequence[float], squared_norm: float, base_batch: float
    ) -> "NoiseSample | None":
        """Return what one update says whose gradient is the mean over micro-batches; None if there is only one.

        `squared_norms` are those of the mean gradient of each micro-batch, and `squared_norm` is that of the
        whole update's: the micro-batches' mean, weighted by their samples.
        """
        # With n_i of N samples in micro-batch i of m, variance v per sample and true gradient g:
        #   E sum_i n_i/N |g_i|^2 = |g|^2 + v m/N    and    E |mean|^2 = |g|^2 + v/N.
        several = len(samples) - 1
        if several < 1:
            return None
        total = sum(samples)
        within = sum(count * norm for count, norm in zip(samples, squared_norms, strict=True)) / total
        variance_of_mean = (within - squared_norm) / several
        return cls(variance=total / base_batch * variance_of_mean, signal=squared_norm - variance_of_mean)

    @classmethod
    def of_nested(cls, part: tuple[float, float], whole: tuple[float, float]) -> "NoiseSample":
        """Return what one update says whose gradient was looked at twice: of a part of its samples, and of all.

        Each is told as (base batches, squared norm of the mean gradient of those).
        """
        # E |g_k|^2 = |g|^2 + variance/k, for two values of k.
        (k, norm), (all_k, all_norm) = part, whole
        return cls(
            variance=(norm - all_norm) / (1.0 / k - 1.0 / all_k),
            signal=(all_k * all_norm - k * norm) / (all_k - k),
        )

    @classmethod
    def of_successive(
        cls, first: tuple[float, float], second: tuple[float, float], squared_distance: float
    ) -> "NoiseSample":
        """Return what the gradients of two updates in a row say, each told as (k, squared norm).

        The true gradient hardly moves in one update, so what the two have in common is the true one. Where a high
        rate makes it swing to and fro, what swings is taken for noise, and the gain comes out too high.
        """
        # E <g1, g2> = |g|^2    and    E |g1 - g2|^2 = variance (1/k1 + 1/k2).
        (k, norm), (other_k, other_norm) = first, second
        return cls(
            variance=squared_distance / (1.0 / k + 1.0 / other_k),
            signal=(norm + other_norm - squared_distance) / 2.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNoise:
    """AdaScale's two numbers, averaged over recent samples; recent ones weigh most."""

    variance: float = 0.0
    signal: float = 0.0
    samples: int = 0

    def seeing(self, sample: NoiseSample) -> "GradientNoise":
        """Return the noise after one more sample; a sample that is not finite tells nothing."""
        if not (isfinite(sample.variance) and isfinite(sample.signal)):
            return self
        seen = self.samples + 1
        # The first samples weigh alike, so that the average is right from the first one on.
        rate = max(1.0 / seen, 1.0 - KEPT)
        return GradientNoise(
            variance=self.variance + rate * (sample.variance - self.variance),
            signal=self.signal + rate * (sample.signal - self.signal),
            samples=seen,
        )

    def gain(self, k: float) -> float | None:
        """Return how many base updates one update on k base batches is worth; None as long as that is not known.

        It lies between 1 and k: 1 where all gradients agree, so that more of them say nothing new, and k where
        they are all noise. AdaScale, equation 3:  r = (s2 + |g|^2) / (s2/k + |g|^2).
        """
        if self.samples < BELIEVED_AFTER:
            return None
        variance, signal = max(self.variance, 0.0), max(self.signal, 0.0)
        below = variance / k + signal
        return (variance + signal) / below if below > 0.0 else None

    @property
    def most_gain(self) -> float | None:
        """What no batch is worth more than, in base updates: the gain for k without end; None while it is unknown.

        With it, AdaScale's gain is  r = most * k / (most - 1 + k).
        """
        if self.samples < BELIEVED_AFTER:
            return None
        variance, signal = max(self.variance, 0.0), max(self.signal, 0.0)
        return (variance + signal) / signal if signal > 0.0 else inf


# One run: how to get there.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledRate:
    """The factor on the scheduled rate at the coming update of one run, and how far the run has come.

    Begin with `ScaledRate.begin(rule)`, then for each update: `resized(k)` where the batch differs, read `factor`,
    make the update, `seen(sample)` where the noise was measured, `advanced()`. Laws: the factor lies between the
    targets there were (and 1, where every run starts); it climbs by an eighth of itself in an update at most; it
    reaches its target; a k of 1 throughout leaves the rate alone.
    """

    rule: RateRule
    #: No factor is above it.
    max_scale: float = inf
    #: Base batches in a batch now.
    k: float = 1.0
    #: Updates made.
    update: int = 0
    #: Base updates that the run has made: where a schedule stands.
    base_updates: float = 0.0
    #: Base updates that those were worth, by the measured gain.
    progress: float = 0.0
    noise: GradientNoise = GradientNoise()
    #: The ramp: the update and the factor at which it began, and the target there was then, which gives its slope.
    ramp_began: int = 0
    ramp_start: float = 1.0
    ramp_aim: float = 1.0
    #: The first update at which k had better change again.
    settled_at: int = 0

    @classmethod
    def begin(cls, rule: RateRule, *, k: float = 1.0, max_scale: float = inf) -> Self:
        """Return the rate of a run that starts with k base batches: from factor 1, on a ramp."""
        if not max_scale >= 1.0:
            raise LearningRateError(f"max_scale is {max_scale!r}", "give a number of 1 or more")
        return cls(rule=rule, max_scale=max_scale).resized(k)

    @property
    def factor(self) -> float:
        """What multiplies the scheduled rate at the coming update."""
        return self.factor_at(self.update)

    def factor_at(self, update: int) -> float:
        """Return the factor at a later update, if neither the batch nor the gain changes until then."""
        target = self.target
        if not self.rule.ramps:
            return target
        done = (update - self.ramp_began) / self._length
        climbed = self.ramp_start + done * (self.ramp_aim - self.ramp_start)
        # A target that has risen since is climbed to at the same slope.
        return min(max(climbed, self.ramp_aim) if done >= 1.0 else climbed, target)

    @property
    def target(self) -> float:
        """What the factor is on its way to."""
        return min(self.rule.target(self.k, self.noise.gain(self.k)), self.max_scale)

    @property
    def gain(self) -> float:
        """How many base updates an update is worth; k as long as that has not been measured."""
        return self._gain(self.k)

    def resized(self, k: float) -> Self:
        """Return the rate whose coming update is the first with k base batches: a ramp begins where it stands."""
        if not (isfinite(k) and k > 0.0):
            raise LearningRateError(f"the batch is {k!r} base batches", "give a finite number above 0")
        if k == self.k:
            return self
        changed = replace(self, k=float(k))._from(self.factor)
        length = changed._length if changed.ramp_start < changed.target else 0
        return replace(changed, settled_at=self.update + REST * length)

    def seen(self, sample: NoiseSample) -> Self:
        """Return the rate after this was measured in the coming update, or in one before it."""
        before, target = self.factor, self.target
        after = replace(self, noise=self.noise.seeing(sample))
        if after.target == target:
            return after
        # A target that falls below the factor takes it along. Where the factor was at its target, or the gain is
        # known for the first time, a ramp begins; a ramp that is under way keeps its slope.
        known = self.noise.gain(self.k) is not None
        return after if known and before < min(target, after.target) else after._from(before)

    def advanced(self, k: float | None = None) -> Self:
        """Return the rate after the coming update was made.

        With k, the update had that many base batches without being a change: the last, short batch of a pass.
        """
        k = self.k if k is None else k
        gain = self._gain(k)
        return replace(
            self,
            update=self.update + 1,
            base_updates=self.base_updates + (gain if self.rule.advances_by_gain else k),
            progress=self.progress + gain,
        )

    def state(self) -> dict[str, float | int | str]:
        """Return what `restored` takes: names and numbers, fit for JSON."""
        return {
            "rule": self.rule.name,
            "factor": self.factor,
            "k": self.k,
            "update": self.update,
            "base_updates": self.base_updates,
            "progress": self.progress,
            "variance": self.noise.variance,
            "signal": self.noise.signal,
            "samples": self.noise.samples,
            "ramp_began": self.ramp_began,
            "ramp_start": self.ramp_start,
            "ramp_aim": self.ramp_aim,
            "settled_at": self.settled_at,
        }

    def restored(self, state: Mapping[str, Any]) -> Self:
        """Return this rule's rate where a run stood that called `state`.

        Where that run had another rule, or another limit, this one climbs from the factor it had, or falls at once.
        """
        try:
            numbers = {name: float(state[name]) for name in self.state() if name != "rule"}
            if not all(map(isfinite, numbers.values())):
                raise ValueError("a number is not finite")
            if min(numbers["k"], numbers["factor"], numbers["ramp_start"], numbers["ramp_aim"]) <= 0.0:
                raise ValueError("a number is not above 0")
        except (KeyError, TypeError, ValueError) as error:
            raise LearningRateError(
                f"this is not the state of a scaled rate ({type(error).__name__}: {error})",
                "give what state_dict() returned",
            ) from None
        noise = GradientNoise(
            variance=numbers["variance"], signal=numbers["signal"], samples=int(numbers["samples"])
        )
        found = replace(
            self,
            k=numbers["k"],
            update=int(numbers["update"]),
            base_updates=numbers["base_updates"],
            progress=numbers["progress"],
            noise=noise,
            ramp_began=int(numbers["ramp_began"]),
            ramp_start=numbers["ramp_start"],
            ramp_aim=numbers["ramp_aim"],
            settled_at=int(numbers["settled_at"]),
        )
        factor = numbers["factor"]
        return found if found.factor == factor else found._from(factor)

    @property
    def _length(self) -> int:
        """Updates of the ramp. Below a k of 1 the square root of k is above k, and 8k would be too short."""
        return ramp_length(max(self.k, self.ramp_aim), self.ramp_start)

    def _gain(self, k: float) -> float:
        gain = self.noise.gain(k)
        return k if gain is None else gain

    def _from(self, factor: float) -> Self:
        """Return the rate with a ramp that begins now, from this factor or from the target if that is lower."""
        target = self.target
        return replace(self, ramp_began=self.update, ramp_start=min(factor, target), ramp_aim=target)
