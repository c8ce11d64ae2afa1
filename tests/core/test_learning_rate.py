"""Laws of the factor on the learning rate: where it goes, how it gets there, and what a larger batch is worth."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, inf, isclose, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.errors import LearningRateError, UnknownNameError
from slaq.core.learning_rate import (
    BELIEVED_AFTER,
    REST,
    RULE_NAMES,
    GradientNoise,
    NoiseSample,
    OptimizerKind,
    RateRule,
    ScaledRate,
    ramp_length,
    rate_rule,
)

KINDS: tuple[OptimizerKind, ...] = ("sgd", "adaptive")
RULES = tuple(rate_rule(name, kind) for name in RULE_NAMES for kind in KINDS)
RAMPED = tuple(rule for rule in RULES if rule.ramps)

#: Base batches in a batch, from much less than one to far more than anybody has workers.
sizes = st.one_of(st.integers(1, 64).map(float), st.floats(0.05, 300.0))
noises = st.builds(
    lambda variance, signal: NoiseSample(variance=variance, signal=signal),
    st.floats(0.0, 1e6),
    st.floats(-1.0, 1e6),
)
#: What happens to a run: a new k, a sample of the noise, or so many updates.
happenings = st.lists(st.one_of(sizes, noises, st.integers(1, 300)), max_size=12)


def after(rate: ScaledRate, happened: Sequence[object], each: Callable[[ScaledRate], None]) -> ScaledRate:
    """Return the rate after all that, and show `each` the rate of every update."""
    for what in happened:
        if isinstance(what, float):
            rate = rate.resized(what)
        elif isinstance(what, NoiseSample):
            rate = rate.seen(what)
        else:
            assert isinstance(what, int)
            for _ in range(what):
                each(rate)
                rate = rate.advanced()
    each(rate)
    return rate


def measured(rate: ScaledRate, variance: float, signal: float) -> ScaledRate:
    """Return the rate once it believes these two numbers."""
    for _ in range(20 * BELIEVED_AFTER):
        rate = rate.seen(NoiseSample(variance=variance, signal=signal))
    return rate


@pytest.mark.parametrize("rule", RULES)
@given(happened=happenings)
def test_the_factor_stays_between_its_targets(rule: RateRule, happened: list[object]) -> None:
    """The factor never leaves the hull of 1, where the run began, and the targets there have been."""
    lowest = highest = 1.0
    rate = ScaledRate.begin(rule)
    for what in happened:
        rate = after(rate, [what], lambda _: None)
        lowest, highest = min(lowest, rate.target), max(highest, rate.target)
        seen: list[float] = []
        after(rate, [5], lambda now, seen=seen: seen.append(now.factor))  # type: ignore[misc]
        assert all(lowest * (1 - 1e-12) <= factor <= highest * (1 + 1e-12) for factor in seen)


@pytest.mark.parametrize("rule", RAMPED)
@given(happened=happenings)
def test_the_factor_climbs_without_jumps(rule: RateRule, happened: list[object]) -> None:
    """From one update to the next the factor grows by an eighth of itself at most, whatever happens in between."""
    factors: list[float] = []
    after(ScaledRate.begin(rule), happened, lambda rate: factors.append(rate.factor))
    assert all(later <= now * 1.125 * (1 + 1e-12) for now, later in pairwise(factors))


@pytest.mark.parametrize("rule", RULES)
@given(happened=happenings, k=sizes)
def test_the_factor_reaches_its_target(rule: RateRule, happened: list[object], k: float) -> None:
    """One ramp after the last change the factor is its target exactly, and stays there."""
    rate = after(ScaledRate.begin(rule), happened, lambda _: None).resized(2.0 * k).resized(k)
    there = rate.update + ramp_length(max(k, 1.0), rate.ramp_start)
    assert rate.factor_at(there) == rate.factor_at(there + 1000) == rate.target


@pytest.mark.parametrize("rule", RAMPED)
@given(happened=happenings, k=sizes)
def test_a_change_starts_from_where_the_ramp_stands(rule: RateRule, happened: list[object], k: float) -> None:
    """Where the target rises the factor is what it was; where it falls below, the factor is there at once."""
    before = after(ScaledRate.begin(rule), happened, lambda _: None)
    changed = before.resized(k)
    assert isclose(changed.factor, min(before.factor, changed.target), rel_tol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@given(happened=happenings)
def test_asking_changes_nothing(rule: RateRule, happened: list[object]) -> None:
    """What is asked now of an update is what that update asks, and asking is no event."""
    rate = after(ScaledRate.begin(rule), happened, lambda _: None)
    asked = [rate.factor_at(rate.update + ahead) for ahead in range(20)]
    found: list[float] = []
    after(rate, [19], lambda now: found.append(now.factor))
    assert asked == found
    assert rate.resized(rate.k) is rate


@pytest.mark.parametrize("rule", RULES)
@given(samples=st.lists(noises, max_size=20), updates=st.integers(0, 50))
def test_the_base_batch_is_left_alone(rule: RateRule, samples: list[NoiseSample], updates: int) -> None:
    """With one base batch throughout, the factor is 1 and a schedule advances by one, whatever is measured."""
    ones: list[float] = []
    happened = [*samples, updates] if updates else samples
    rate = after(ScaledRate.begin(rule), happened, lambda now: ones.append(now.factor))
    assert ones == pytest.approx([1.0] * len(ones), rel=1e-12)
    assert rate.base_updates == pytest.approx(updates)


def test_the_ramp_is_the_papers() -> None:
    """From 1 to k the factor climbs in a straight line over 8k updates: 1 + (t/T)(k - 1)."""
    rate = ScaledRate.begin(rate_rule("linear"), k=16.0)
    line = [1 + t / 128 * 15 for t in range(129)] + [16.0] * 20
    assert [rate.factor_at(t) for t in range(149)] == pytest.approx(line)


def test_a_ramp_is_as_much_shorter_as_its_start_is_higher() -> None:
    """From a factor of 4 the ramp to 16 takes a quarter of the updates that it takes from 1."""
    rate = after(ScaledRate.begin(rate_rule("linear"), k=4.0), [32], lambda _: None)
    assert rate.factor == 4.0
    grown = rate.resized(16.0)
    assert grown.factor_at(32 + 16) == 10.0
    assert grown.factor_at(32 + 32) == 16.0
    assert grown.settled_at == 32 + REST * 32
    assert grown.resized(2.0).factor == 2.0


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("linear", "adaptive", 16.0),
        ("linear-at-once", "sgd", 16.0),
        ("sqrt", "sgd", 4.0),
        ("adascale", "adaptive", 1.0),
        ("none", "sgd", 1.0),
        ("auto", "sgd", 4.0),
        ("auto", "adaptive", 4.0),
    ],
)
def test_targets_without_a_measurement(name: str, kind: OptimizerKind, target: float) -> None:
    """As long as no noise was measured, each rule aims at what its name says."""
    rate = ScaledRate.begin(rate_rule(name, kind), k=16.0)
    assert rate.target == target
    assert rate.factor == (1.0 if rate.rule.ramps else target)
    assert rate.gain == 16.0
    assert replace(rate, max_scale=3.0).target == min(target, 3.0)


@given(k=st.floats(1.0, 300.0), variance=st.floats(1e-3, 1e3), signal=st.floats(0.0, 1e3))
def test_the_gain_limits_what_is_automatic(k: float, variance: float, signal: float) -> None:
    """`auto` aims at AdaScale's gain between the root of k and k for SGD, and below the root for others."""
    gain = (variance + signal) / (variance / k + signal)
    root = sqrt(k)
    for kind, target in zip(KINDS, (max(gain, root), min(gain, root)), strict=True):
        rate = measured(ScaledRate.begin(rate_rule("auto", kind), k=k), variance, signal)
        assert rate.gain == pytest.approx(gain)
        assert 1.0 - 1e-9 <= rate.gain <= k * (1 + 1e-9)
        assert rate.target == pytest.approx(target)


def test_a_limit_that_rises_lets_the_factor_climb_on_a_ramp() -> None:
    """A gain that falls takes the factor with it at once; one that returns does not lift it at once."""
    rate = measured(ScaledRate.begin(rate_rule("auto"), k=16.0), 1.0, 0.0)
    rate = after(rate, [200], lambda _: None)
    assert rate.factor == rate.target == 16.0
    low = measured(rate, 1.0, 1 / 16)
    assert low.factor == low.target == pytest.approx(8.5, rel=1e-3)
    free = measured(low, 1.0, 0.0)
    assert free.target == pytest.approx(16.0, rel=0.01)
    assert free.factor == pytest.approx(8.5, rel=1e-3)
    later = after(free, [2000], lambda _: None)
    assert later.factor == later.target


def test_schedules_advance_by_base_updates() -> None:
    """A schedule advances by k for each update, by the gain under AdaScale, and by its size for a short batch."""
    linear = measured(ScaledRate.begin(rate_rule("linear"), k=4.0), 1.0, 1.0).advanced().advanced(k=0.5)
    gain, short = 2 / (1 / 4 + 1), 2 / (1 / 0.5 + 1)
    assert linear.base_updates == 4.5
    assert linear.progress == pytest.approx(gain + short)
    assert linear.k == 4.0
    published = measured(ScaledRate.begin(rate_rule("adascale"), k=4.0), 1.0, 1.0).advanced()
    assert published.base_updates == published.progress == pytest.approx(gain)


@given(
    counts=st.lists(st.integers(1, 64), min_size=2, max_size=6),
    base=st.integers(1, 64),
    seed=st.integers(0, 1000),
)
def test_micro_batches_tell_variance_and_signal_exactly(counts: list[int], base: int, seed: int) -> None:
    """For gradients whose noise has its expected size, the two numbers come out exactly, short batches included."""
    # Orthogonal noise of exactly the expected length makes every squared norm equal its expectation.
    rng = np.random.default_rng(seed)
    truth = np.zeros(1 + len(counts))
    truth[0], variance = rng.normal(), 2.0
    gradients = np.tile(truth, (len(counts), 1))
    for row, count in enumerate(counts):
        gradients[row, 1 + row] = sqrt(variance / count)
    mean = np.average(gradients, axis=0, weights=counts)
    sample = NoiseSample.of_micro_batches(
        counts, [float(g @ g) for g in gradients], float(mean @ mean), float(base)
    )
    assert sample is not None
    assert sample.signal == pytest.approx(truth[0] ** 2, abs=1e-9)
    assert sample.variance == pytest.approx(variance / base)


@given(
    k=st.floats(0.1, 8.0), more=st.floats(0.1, 8.0), variance=st.floats(0.0, 9.0), signal=st.floats(0.0, 9.0)
)
def test_a_part_and_the_whole_tell_variance_and_signal_exactly(
    k: float, more: float, variance: float, signal: float
) -> None:
    """From squared norms that have their expected sizes, both numbers come out, whatever part was looked at."""
    part, whole = ((size, signal + variance / size) for size in (k, k + more))
    sample = NoiseSample.of_nested(part, whole)
    assert sample.variance == pytest.approx(variance, abs=1e-6)
    assert sample.signal == pytest.approx(signal, abs=1e-6)


def test_one_micro_batch_tells_nothing() -> None:
    """The noise cannot be told from a single gradient."""
    assert NoiseSample.of_micro_batches([32], [1.0], 1.0, 32.0) is None


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (4.0, 4.0), (2.0, 8.0)])
def test_successive_gradients_tell_variance_and_signal(sizes: tuple[float, float]) -> None:
    """Over many pairs of gradients of the same truth, both numbers are right on average, whatever their k."""
    rng = np.random.default_rng(3)
    truth, spread, dimensions, pairs = 0.2, 0.5, 50, 4000
    noise = GradientNoise()
    first, second = (truth + rng.normal(scale=spread / sqrt(k), size=(pairs, dimensions)) for k in sizes)
    found = [
        NoiseSample.of_successive(
            (sizes[0], float(a @ a)), (sizes[1], float(b @ b)), float((a - b) @ (a - b))
        )
        for a, b in zip(first, second, strict=True)
    ]
    for sample in found:
        noise = noise.seeing(sample)
    assert np.mean([one.variance for one in found]) == pytest.approx(dimensions * spread**2, rel=0.02)
    assert np.mean([one.signal for one in found]) == pytest.approx(dimensions * truth**2, rel=0.05)
    assert noise.variance == pytest.approx(dimensions * spread**2, rel=0.2)


def test_the_noise_is_believed_after_some_samples_and_not_spoilt_by_one() -> None:
    """The gain is unknown at first; a sample that overflowed tells nothing; without any noise it is 1."""
    noise = GradientNoise()
    for _ in range(BELIEVED_AFTER):
        assert noise.gain(4.0) is None
        noise = noise.seeing(NoiseSample(variance=1.0, signal=1.0))
    assert noise.seeing(NoiseSample(variance=inf, signal=1.0)) is noise
    assert noise.seeing(NoiseSample(variance=1.0, signal=nan)) is noise
    assert noise.gain(4.0) == pytest.approx(1.6)
    assert GradientNoise(variance=0.0, signal=1.0, samples=99).gain(8.0) == 1.0
    assert GradientNoise(variance=1.0, signal=-1.0, samples=99).gain(8.0) == 8.0
    assert GradientNoise(variance=0.0, signal=-1.0, samples=99).gain(8.0) is None


@pytest.mark.parametrize("rule", RULES)
@given(happened=happenings, later=happenings)
def test_a_restored_run_goes_on_as_if_nothing_had_been(
    rule: RateRule, happened: list[object], later: list[object]
) -> None:
    """State is plain JSON, and what a restored rate does is bit for bit what the saved one would have done."""
    rate = after(ScaledRate.begin(rule), happened, lambda _: None)
    restored = ScaledRate.begin(rule).restored(json.loads(json.dumps(rate.state())))
    assert restored == rate
    assert after(restored, later, lambda _: None) == after(rate, later, lambda _: None)


def test_another_rule_takes_over_where_the_run_stands() -> None:
    """Restored under a rule with a higher target, the factor climbs from where it was; under a lower, it falls."""
    state = after(ScaledRate.begin(rate_rule("sqrt"), k=16.0), [200], lambda _: None).state()
    grown = ScaledRate.begin(rate_rule("linear")).restored(state)
    assert (grown.factor, grown.target) == (4.0, 16.0)
    assert ScaledRate.begin(rate_rule("none")).restored(state).factor == 1.0
    assert ScaledRate.begin(rate_rule("sqrt"), max_scale=2.0).restored(state).factor == 2.0


def test_bad_values_are_refused_in_one_sentence() -> None:
    """What cannot be a size, a limit, a rule or a state is refused with what to give instead."""
    rate = ScaledRate.begin(rate_rule("auto"))
    for k in (0.0, -1.0, nan, inf):
        with pytest.raises(
            LearningRateError, match=r"^the batch is .* base batches; give a finite number above 0$"
        ):
            rate.resized(k)
    for limit in (0.5, nan):
        with pytest.raises(LearningRateError, match=r"^max_scale is .*; give a number of 1 or more$"):
            ScaledRate.begin(rate_rule("auto"), max_scale=limit)
    with pytest.raises(UnknownNameError, match=r"^there is no rate rule 'liner'; did you mean 'linear'\?"):
        rate_rule("liner")
    for spoilt in (
        {},
        {**rate.state(), "k": 0.0},
        {**rate.state(), "variance": nan},
        {**rate.state(), "k": "x"},
    ):
        with pytest.raises(LearningRateError, match=r"^this is not the state of a scaled rate"):
            rate.restored(spoilt)


def test_changes_have_room_for_their_ramps() -> None:
    """Twice the length of a ramp passes before k had better change again; after a shrink it may at once."""
    rate = ScaledRate.begin(rate_rule("linear"), k=8.0)
    assert rate.settled_at == REST * ceil(8 * 8)
    shrunk = replace(rate, update=500).resized(2.0)
    assert shrunk.settled_at == 500
