"""One job's part in a decision, in numbers and in plain sentences: why it holds what it holds."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from slaq.core.appraisal import Appraisal, at_units
from slaq.core.decision import Decision
from slaq.core.errors import UnknownJobError
from slaq.core.prospects import Prospects
from slaq.core.roster import UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What an explanation has to know of the policy that decided."""

    name: str
    #: Whether units go by what each of them gains; else gains are told, but decided nothing.
    by_gain: bool = True
    #: Whether what a job needs to make its deadline comes first.
    by_need: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlooks:
    """When a job is expected to be good enough, at the units it usually holds."""

    #: The share of its whole reduction made so far.
    reduction: float
    #: Seconds from the decision; None where that is not foreseen, or nothing can be said yet.
    seconds_to_90: float | None
    seconds_to_95: float | None
    #: Its own target: seconds to it, the probability of making it by the deadline, and whether it is out of reach.
    seconds_to_target: float | None
    chance: float | None
    hopeless: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The job that got the last unit there was: the one that it brings the least, of those who got more than sure.

    The job itself has no rival where it is that one, or where nobody got more than was sure.
    """

    #: None where its name is not to be told.
    id: str | None
    units: int
    weight: float
    #: What that unit was predicted to add to its gain.
    last_unit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job holds what it holds; gains are predicted falls of normalised loss over the epoch."""

    job_id: str
    epoch: int
    #: Seconds on the scheduler's clock.
    time: float
    policy: str | None
    #: Units granted to it, and to be granted in all.
    units: int
    capacity: int
    #: Its own loss: as it stands, and as forecast for the end of the epoch with the ends of the 80% interval.
    #: None before its first loss.
    loss: float | None
    expected: float | None
    expected_low: float | None
    expected_high: float | None
    #: 1 at the start, towards 0.
    normalised_loss: float
    weight: float
    gain: float
    #: The gain for each of its units, what the last one of them added and what one more would have added.
    gain_per_unit: float
    last_unit: float
    next_unit: float
    #: (units, gain) at some numbers of units, where the decision is still at hand.
    gains: tuple[tuple[int, float], ...]
    #: Units that make its target likely by its deadline; None without one, where it cannot be made, and where the
    #: decision is no longer at hand.
    needed: float | None
    #: Its fair share of the capacity, the units it was sure of, and the most it could hold; None for no limit.
    fair_share: float
    sure: int
    most: int | None
    owner: str
    #: Where the capacity is shared between owners: its owner's share, and the units its owner's jobs hold.
    owner_share: float | None
    owner_units: int | None
    rival: Rival | None
    prospects: Outlooks | None
    #: Why it does not hold more, and what else is remarkable; sentences.
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON takes them."""
        return asdict(self) | {"gains": [list(point) for point in self.gains], "reasons": list(self.reasons)}

    def as_text(self) -> str:
        """Return it all as plain sentences, one to a line."""
        return "\n".join(_sentences(self))

    def without_names(self) -> Self:
        """Return the same without the name of the rival, which may be somebody else's job."""
        if self.rival is None or self.rival.id is None:
            return self
        nobody = replace(self.rival, id=None)
        hidden = tuple(reason.replace(_name(self.rival), _name(nobody)) for reason in self.reasons)
        return replace(self, rival=nobody, reasons=hidden)


def explain_job(
    decision: Decision,
    job_id: str,
    *,
    appraisal: Appraisal | None = None,
    prospects: Prospects | None = None,
    policy: Rule | None = None,
) -> Explanation:
    """Return why a job of this decision holds what it holds.

    The appraisal the decision was made from adds the gain over units, prospects add when the job is expected to
    be good enough; both are of the same jobs as the decision. A job that is not among them, such as one that is
    paused, raises UnknownJobError.
    """
    if job_id not in decision.ids or len(decision.sure) != len(decision.ids):
        raise UnknownJobError(job_id)
    row = decision.ids.index(job_id)
    heard = not math.isnan(decision.expected[row])
    units, gain, most = int(decision.units[row]), float(decision.gain[row]), int(decision.most[row])
    shared = len(decision.owner_share) > 0
    owner = int(decision.owner[row])
    explanation = Explanation(
        job_id=job_id,
        epoch=decision.epoch,
        time=decision.time,
        policy=None if policy is None else policy.name,
        units=units,
        capacity=decision.capacity,
        loss=float(decision.level[row]) if heard else None,
        expected=float(decision.expected[row]) if heard else None,
        expected_low=float(decision.expected_low[row]) if heard else None,
        expected_high=float(decision.expected_high[row]) if heard else None,
        normalised_loss=float(decision.loss[row]),
        weight=float(decision.weight[row]),
        gain=gain,
        gain_per_unit=gain / units if units else 0.0,
        last_unit=float(decision.last[row]),
        next_unit=float(decision.marginal[row]) if units < most else 0.0,
        gains=() if appraisal is None else _gain_curve(appraisal, row, units),
        needed=None if appraisal is None else _finite(float(appraisal.candidates.needed[row])) or None,
        fair_share=float(decision.fair_share[row]),
        sure=int(decision.sure[row]),
        most=None if most >= UNLIMITED else most,
        owner=decision.owners[owner],
        owner_share=float(decision.owner_share[owner]) if shared else None,
        owner_units=int(decision.units[decision.owner == owner].sum()) if shared else None,
        rival=_rival(decision, row),
        prospects=None if prospects is None else _outlooks(prospects, row),
        reasons=(),
    )
    return replace(explanation, reasons=tuple(_reasons(explanation, decision, row, policy)))


def _gain_curve(appraisal: Appraisal, row: int, units: int) -> tuple[tuple[int, float], ...]:
    """Return the gain at and around its units, at half and twice as many, at none and at the most it can hold."""
    candidates = appraisal.candidates
    most = int(min(candidates.max_units[row], appraisal.capacity))
    asked = (0, 1, units // 2, units - 1, units, units + 1, 2 * units, most)
    points = sorted({min(max(count, 0), most) for count in asked})
    gains = at_units(candidates.grid, candidates.gain[row : row + 1], np.array([points]))[0]
    return tuple(zip(points, gains.tolist(), strict=True))


def _rival(decision: Decision, row: int) -> Rival | None:
    """Return who got the last unit, among the owner's own jobs where the capacity is shared between owners."""
    open_to = decision.competes & (decision.units > decision.sure)
    if len(decision.owner_share):
        open_to &= decision.owner == decision.owner[row]
    takers = open_to.nonzero()[0]
    if not len(takers):
        return None
    place = int(takers[(decision.weight * decision.last)[takers].argmin()])
    if place == row:
        return None
    return Rival(
        id=decision.ids[place],
        units=int(decision.units[place]),
        weight=float(decision.weight[place]),
        last_unit=float(decision.last[place]),
    )


def _outlooks(prospects: Prospects, row: int) -> Outlooks:
    to_90, to_95 = (_finite(seconds) for seconds in prospects.seconds_to[row].tolist())
    return Outlooks(
        reduction=float(prospects.reduction[row]),
        seconds_to_90=to_90,
        seconds_to_95=to_95,
        seconds_to_target=_finite(float(prospects.seconds_to_target[row])),
        chance=_finite(float(prospects.chance[row])),
        hopeless=bool(prospects.hopeless[row]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _reasons(e: Explanation, decision: Decision, row: int, policy: Rule | None) -> Iterator[str]:
    if decision.diverged[row]:
        yield "its last loss was not a number to learn from, so it is held at what it is sure of until one is"
    if e.capacity == 0:
        yield "there are no units to hand out"
    elif e.most is not None and e.units >= e.most:
        yield f"it holds its maximum of {_units(e.most)}"
    elif e.units >= e.capacity:
        yield "it holds all there is"
    elif not decision.competes[row]:
        yield f"it does not compete by its loss: it holds its fair share of {e.fair_share:.4g} or its reservation"
    elif not decision.diverged[row]:
        yield from _why_no_more(e, policy)
    if e.owner_share is not None and e.owner_units is not None and e.owner_units < decision.units.sum():
        held = "full" if e.owner_units >= math.floor(e.owner_share) else f"used to {e.owner_units}"
        yield f"the share of its owner {e.owner!r} is {e.owner_share:.4g} of {_units(e.capacity)}, and {held}"
    if e.units == 0 and e.capacity:
        yield "what it is sure of is less than a unit, so it holds one in turn with others"


def _why_no_more(e: Explanation, policy: Rule | None) -> Iterator[str]:
    """Yield why a competing job did not get the next unit."""
    if policy is not None and not policy.by_gain:
        yield f"the policy {policy.name!r} shares out units without regard to what the next one gains"
        return
    if policy is not None and policy.by_need and e.needed is not None:
        needs = f"it needs {e.needed:.3g} of the units to make its deadline"
        got = e.units >= e.needed
        yield f"{needs}, and holds them" if got else f"{needs}, which do not fit beside those who need less"
    if e.next_unit <= 0.0:
        yield "a further unit is predicted to bring it nothing in this epoch"
    if e.rival is None:
        return
    here, there = e.weight * e.next_unit, e.rival.weight * e.rival.last_unit
    if here <= there:
        held = "it is held at what it is sure of, because " if e.units <= e.sure else ""
        yield f"{held}its next unit would add {here:.3g}, and the last one adds {there:.3g} at {_name(e.rival)}"


def _sentences(e: Explanation) -> Iterator[str]:
    yield f"Job {e.job_id!r} holds {_units(e.units)} of {e.capacity} in epoch {e.epoch}."
    if e.loss is None:
        yield "It has not reported a loss yet, so it is taken to fall as jobs do at their start."
    else:
        yield (
            f"Its loss stands at {e.loss:.6g} and is forecast to be {e.expected:.6g} at the end of the epoch "
            f"(80%: {e.expected_low:.6g} to {e.expected_high:.6g})."
        )
    yield (
        f"These units are predicted to cut its normalised loss of {e.normalised_loss:.3f} by {e.gain:.3g}, "
        f"{e.gain_per_unit:.3g} for each; one more would add {e.next_unit:.3g}."
    )
    if e.rival is not None:
        added = f"it adds {e.rival.last_unit:.3g} there"
        yield f"The last unit that was free went to {_name(e.rival)}, which holds {e.rival.units}: {added}."
        if {e.weight, e.rival.weight} != {1.0}:
            yield f"Gains are multiplied by weights: {e.weight:g} here, {e.rival.weight:g} there."
    elif e.units > e.sure:
        yield "It got the last unit that was free."
    for reason in e.reasons:
        yield f"{reason[:1].upper()}{reason[1:]}."
    yield f"Its fair share would be {e.fair_share:.4g}; it was sure of {e.sure}."
    if e.prospects is not None:
        yield from _outlook_sentences(e.prospects)


def _outlook_sentences(o: Outlooks) -> Iterator[str]:
    yield f"It has made {o.reduction:.1%} of its whole reduction, as far as is foreseen."
    for share, seconds in ((90, o.seconds_to_90), (95, o.seconds_to_95)):
        if seconds is None:
            yield f"When it makes {share}% cannot be foreseen."
        elif seconds > 0:
            yield f"At the units it usually holds it makes {share}% in {_duration(seconds)}."
    if o.chance is not None:
        yield f"It makes its target by its deadline with a probability of {o.chance:.0%}."
    if o.hopeless:
        yield "Its target is out of reach: it would not be made even with all the units the job can use."


def _name(rival: Rival) -> str:
    return "another job" if rival.id is None else f"job {rival.id!r}"


def _units(count: int) -> str:
    return "1 unit" if count == 1 else f"{count} units"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.3g} min" if minutes < 100 else f"{minutes / 60:.3g} h"
