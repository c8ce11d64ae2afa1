"""Explain why a job holds its cores: the part of a decision about one job, in numbers and sentences."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from slaq.core.appraisal import Appraisal, at_units
from slaq.core.decision import Decision
from slaq.core.errors import UnknownJobError
from slaq.core.prospects import Prospects


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What an explanation needs to know about the policy that decided."""

    name: str
    #: Whether the policy gives cores to the jobs that gain the most.
    by_gain: bool = True
    #: Whether the policy first serves jobs that need cores to meet their deadlines.
    by_need: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProspects:
    """When a job is expected to reach 90%, 95% and its target with the cores it usually holds."""

    #: The share of the whole reduction reached so far.
    reduction: float
    #: Seconds from the decision; None if they cannot be forecast.
    seconds_to_90: float | None
    seconds_to_95: float | None
    #: The ends of the 80% intervals of these times; None where there is no time.
    between_90: tuple[float, float] | None
    between_95: tuple[float, float] | None
    #: For the job's own target: seconds to it, the probability of reaching it by the deadline, and whether it is
    #: out of reach.
    seconds_to_target: float | None
    chance: float | None
    out_of_reach: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The job that got the last step: of all jobs above their guarantee, the one that gains least by its last.

    There is no rival if the explained job itself got the last step, or if no job holds more than its guarantee.
    """

    #: None if the reader may not see the name.
    id: str | None
    cores: float
    weight: float
    #: The gain predicted from the rival's last step.
    last_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a job of a search stands in it, in its own loss."""

    #: The 80% interval of the best loss that it is forecast to have had at its end; None before its second loss.
    low: float | None
    high: float | None
    #: The best of the search is forecast to end at this or better; None while that is not known.
    best: float | None
    #: Whether the numbers of the search should rise.
    maximize: bool

    @property
    def able(self) -> bool:
        """Whether the job may still become the best."""
        mine = self.high if self.maximize else self.low
        return (
            mine is None or self.best is None or (mine >= self.best if self.maximize else mine <= self.best)
        )

    @property
    def sentence(self) -> str:
        """How the job stands, for a person; no full stop."""
        if self.low is None or self.high is None:
            return "too little is known yet of where its loss will end"
        what, better = ("number", "above") if self.maximize else ("loss", "below")
        own = f"its {what} is expected to end between {self.low:.4g} and {self.high:.4g}"
        return own if self.best is None else f"{own}; the best is expected {better} {self.best:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job holds its cores.

    Gains are predicted falls of normalised loss over the epoch, with what coming nearer to its end is worth.
    """

    job_id: str
    epoch: int
    #: Seconds on the scheduler's clock.
    time: float
    policy: str | None
    #: Cores granted to the job, cores to hand out in all, and cores of one step, the smallest amount decided on.
    cores: float
    capacity: float
    step: float
    #: The job's own loss now, and its forecast for the end of the epoch with an 80% interval; None before its
    #: first loss.
    loss: float | None
    expected: float | None
    expected_low: float | None
    expected_high: float | None
    #: Whether the job's own loss is a number that should rise.
    maximize: bool
    #: The share of the whole reduction still to make: 1 at the start, falling towards 0.
    normalised_loss: float
    weight: float
    gain: float
    #: The part of the gain that is for coming nearer to the job's end, and the losses until then; None where the
    #: end is not known.
    finish: float | None
    losses_left: float | None
    #: The gain per core, from the last step granted, and from one step more.
    gain_per_core: float
    last_step: float
    next_step: float
    #: (cores, gain) at some numbers of cores; empty for older decisions.
    gains: tuple[tuple[float, float], ...]
    #: Its n cores advance it like worth * n / (worth - 1 + n) single ones; None where n advance it like n, and for
    #: older decisions.
    worth: float | None
    #: Cores that make the target likely by the deadline; None without a deadline, if the target cannot be
    #: reached, and for older decisions.
    needed: float | None
    #: In cores: the fair share of the capacity, the guarantee, and the most the job can use (None for no limit).
    fair_share: float
    guarantee: float
    most: float | None
    owner: str
    #: The owner's share, and the cores of all its jobs; None if the capacity is not shared between owners.
    owner_share: float | None
    owner_cores: float | None
    rival: Rival | None
    #: None for a job of no search.
    standing: Standing | None
    prospects: JobProspects | None
    #: Sentences on why the job does not hold more cores.
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"gains": [list(point) for point in self.gains], "reasons": list(self.reasons)}

    def as_text(self) -> str:
        """Return the explanation as sentences, one a line."""
        return "\n".join(_sentences(self))

    def without_names(self) -> Self:
        """Return the explanation without the name of the rival, which may be another user's job."""
        if self.rival is None or self.rival.id is None:
            return self
        nobody = replace(self.rival, id=None)
        hidden = tuple(reason.replace(_name(self.rival), _name(nobody)) for reason in self.reasons)
        return replace(self, rival=nobody, reasons=hidden)


def standing_of(decision: Decision, row: int) -> Standing | None:
    """Return how the job of this row stands in its search; None for a job of no search."""
    if not len(decision.best_final) or not decision.searching[row]:
        return None
    return Standing(
        low=_finite(float(decision.final_low[row])),
        high=_finite(float(decision.final_high[row])),
        best=_finite(float(decision.best_final[row])),
        maximize=bool(decision.maximize[row]),
    )


def why_beaten(decision: Decision, job_id: str) -> str:
    """Return why a job of this decision is ended as beaten."""
    standing = standing_of(decision, decision.ids.index(job_id))
    told = "" if standing is None else f": {standing.sentence}"
    return f"it had practically no chance to become the best of its search{told}"


def explain_job(
    decision: Decision,
    job_id: str,
    *,
    appraisal: Appraisal | None = None,
    prospects: Prospects | None = None,
    policy: PolicyRule | None = None,
) -> Explanation:
    """Return why a job of this decision holds its cores.

    `appraisal` adds the gain at other numbers of cores, `prospects` adds expected times; both must be of the
    same jobs as the decision. Raises UnknownJobError for a job without a part in it, such as a paused one.
    """
    if job_id not in decision.ids or len(decision.sure) != len(decision.ids):
        raise UnknownJobError(job_id)
    row = decision.ids.index(job_id)
    heard = not math.isnan(decision.expected[row])
    cores, gain, most = float(decision.cores[row]), float(decision.gain[row]), float(decision.most[row])
    shared = len(decision.owner_share) > 0
    left = _finite(float(decision.to_end[row])) if len(decision.to_end) else None
    owner = int(decision.owner[row])
    explanation = Explanation(
        job_id=job_id,
        epoch=decision.epoch,
        time=decision.time,
        policy=None if policy is None else policy.name,
        cores=cores,
        capacity=decision.capacity,
        step=decision.unit,
        loss=float(decision.level[row]) if heard else None,
        expected=float(decision.expected[row]) if heard else None,
        expected_low=float(decision.expected_low[row]) if heard else None,
        expected_high=float(decision.expected_high[row]) if heard else None,
        maximize=bool(len(decision.maximize) and decision.maximize[row]),
        normalised_loss=1.0 - float(decision.made[row]),
        weight=float(decision.weight[row]),
        gain=gain,
        finish=None if left is None else float(decision.finish[row]),
        losses_left=left,
        gain_per_core=gain / cores if cores else 0.0,
        last_step=float(decision.last[row]),
        next_step=float(decision.marginal[row]) if cores < most else 0.0,
        gains=() if appraisal is None else _gain_curve(appraisal, row, round(cores / decision.unit)),
        worth=None if appraisal is None else _finite(float(appraisal.worth[row])),
        needed=None if appraisal is None else _needed(appraisal, row),
        fair_share=float(decision.fair_share[row]),
        guarantee=float(decision.sure[row]),
        most=_finite(most),
        owner=decision.owners[owner],
        owner_share=float(decision.owner_share[owner]) if shared else None,
        owner_cores=float(decision.cores[decision.owner == owner].sum()) if shared else None,
        rival=_rival(decision, row),
        standing=standing_of(decision, row),
        prospects=None if prospects is None else _job_prospects(prospects, row),
        reasons=(),
    )
    return replace(explanation, reasons=tuple(_reasons(explanation, decision, row, policy)))


def _needed(appraisal: Appraisal, row: int) -> float | None:
    """Return the cores that the job needs to meet its deadline; None if it needs none or cannot meet it."""
    return _finite(float(appraisal.candidates.needed[row]) * appraisal.candidates.unit) or None


def _gain_curve(appraisal: Appraisal, row: int, units: int) -> tuple[tuple[float, float], ...]:
    """Return the gain at 0, 1, the held and the most units, at half and twice the held, and next to the held."""
    candidates = appraisal.candidates
    most = int(min(candidates.max_units[row], appraisal.capacity))
    asked = (0, 1, units // 2, units - 1, units, units + 1, 2 * units, most)
    points = sorted({min(max(count, 0), most) for count in asked})
    gains = at_units(candidates.grid, candidates.gain[row : row + 1], np.array([points]))[0]
    return tuple((point * candidates.unit, gain) for point, gain in zip(points, gains.tolist(), strict=True))


def _rival(decision: Decision, row: int) -> Rival | None:
    """Return the job that got the last step; only the owner's own jobs if the capacity is shared between owners."""
    open_to = decision.competes & (decision.cores > decision.sure)
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
        cores=float(decision.cores[place]),
        weight=float(decision.weight[place]),
        last_step=float(decision.last[place]),
    )


def _job_prospects(prospects: Prospects, row: int) -> JobProspects:
    to_90, to_95 = (_finite(seconds) for seconds in prospects.seconds_to[row].tolist())
    ends = zip(prospects.earliest[row].tolist(), prospects.latest[row].tolist(), strict=True)
    around_90, around_95 = ((low, high) if math.isfinite(low + high) else None for low, high in ends)
    return JobProspects(
        reduction=float(prospects.reduction[row]),
        seconds_to_90=to_90,
        seconds_to_95=to_95,
        between_90=around_90,
        between_95=around_95,
        seconds_to_target=_finite(float(prospects.seconds_to_target[row])),
        chance=_finite(float(prospects.chance[row])),
        out_of_reach=bool(prospects.out_of_reach[row]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _reasons(e: Explanation, decision: Decision, row: int, policy: PolicyRule | None) -> Iterator[str]:
    if decision.diverged[row]:
        yield "the last loss is not a finite number, so the job holds only its guarantee until a loss is finite"
    if e.capacity == 0:
        yield "there are no cores to hand out"
    elif e.most is not None and e.cores >= e.most:
        last = " because it would end after all other jobs even so" if _ends_last(e, policy) else ""
        yield f"the job holds its maximum of {_cores(e.most)}{last}"
    elif e.cores >= e.capacity:
        yield "the job holds all cores"
    elif not decision.competes[row]:
        share = _cores(e.fair_share)
        yield f"the job reports no loss, so it holds its reservation or its fair share of {share}"
    elif not decision.diverged[row]:
        yield from _why_no_more(e, policy) if e.standing is None else _why_it_waits(e, e.standing)
    if e.owner_share is not None and e.owner_cores is not None and e.owner_cores < decision.cores.sum():
        full = e.owner_cores >= e.owner_share - e.step
        held = "all of it is used" if full else f"{_cores(e.owner_cores)} of it are used"
        yield f"the share of its owner {e.owner!r} is {e.owner_share:.4g} of {_cores(e.capacity)}, and {held}"
    if e.cores == 0 and e.capacity and e.standing is None:
        least = "1 core" if e.step == 1 else f"{e.step:.3g} of a core"
        yield f"the job's guarantee is below {least}, so it runs in turn with others"


def _ends_last(e: Explanation, policy: PolicyRule | None) -> bool:
    """Tell whether the job holds its maximum because it would end last."""
    by_gain = policy is not None and policy.by_gain and e.losses_left is not None
    return by_gain and e.most is not None and e.guarantee >= e.most > e.fair_share


def _why_it_waits(e: Explanation, standing: Standing) -> Iterator[str]:
    """Yield why a job of a search does not hold more."""
    if not standing.able:
        yield "it can hardly become the best of its search, so it waits while others of it can use the cores"
    elif e.cores < e.fair_share:
        yield "it may still become the best of its search, and jobs that may end better are served first"


def _why_no_more(e: Explanation, policy: PolicyRule | None) -> Iterator[str]:
    """Yield why a competing job did not get one step more."""
    if policy is not None and not policy.by_gain:
        yield f"the policy {policy.name!r} does not divide cores by predicted gain"
        return
    if policy is not None and policy.by_need and e.needed is not None:
        needs = f"the job needs {_cores(e.needed)} to meet its deadline"
        got = e.cores >= e.needed
        yield f"{needs}, and holds them" if got else f"{needs}, and jobs that need fewer come first"
    if e.next_step <= 0.0:
        yield "more cores are predicted to gain nothing in this epoch"
    if e.rival is None:
        return
    here, there = e.weight * e.next_step, e.rival.weight * e.rival.last_step
    if here <= there:
        held = "the job holds only its guarantee: " if e.cores <= e.guarantee else ""
        step = f"{e.step:.3g} of a core more" if e.step < 1 else "one core more"
        yield f"{held}{step} would gain {here:.3g} for this job, and gains {there:.3g} for {_name(e.rival)}"


def _sentences(e: Explanation) -> Iterator[str]:
    yield f"Job {e.job_id!r} holds {_cores(e.cores)} of {e.capacity:.4g} in epoch {e.epoch}."
    if e.loss is None:
        yield "The job has not reported a loss yet: slaq assumes the fall that is usual at the start of a job."
    else:
        yield (
            f"{'The number that it maximizes' if e.maximize else 'Its loss'} stands at {e.loss:.6g} and is "
            f"forecast to be {e.expected:.6g} at the end of the epoch "
            f"(80%: {e.expected_low:.6g} to {e.expected_high:.6g})."
        )
    yield (
        f"In this epoch these cores are predicted to cut its normalised loss of {e.normalised_loss:.3f} by "
        f"{e.gain - (e.finish or 0.0):.3g}."
    )
    if e.worth is not None and e.cores > 1:
        worth = e.worth * e.cores / (e.worth - 1 + e.cores)
        yield (
            f"Its workers make its batch larger, so that {_cores(e.cores)} advance it like {worth:.3g}, and no "
            f"number of them like more than {e.worth:.3g}."
        )
    if e.finish and e.losses_left is not None:
        yield (
            f"The job ends after about {_losses(e.losses_left)} more, and coming nearer to its end counts as "
            f"another {e.finish:.3g}."
        )
    if e.standing is not None:
        yield f"{e.standing.sentence[:1].upper()}{e.standing.sentence[1:]}."
        yield "It is one of a search, whose cores go to those of its jobs that may become the best."
    elif e.rival is not None:
        yield (
            f"The last share of a core went to {_name(e.rival)}, which holds {_cores(e.rival.cores)} and gains "
            f"{e.rival.last_step:.3g} by that share."
        )
        if {e.weight, e.rival.weight} != {1.0}:
            yield (
                f"Gains are multiplied by weights: {e.weight:g} for this job, {e.rival.weight:g} for "
                f"{_name(e.rival)}."
            )
    elif e.cores > e.guarantee:
        yield "The job itself got the last free share of a core."
    for reason in e.reasons:
        yield f"{reason[:1].upper()}{reason[1:]}."
    yield f"Its fair share would be {_cores(e.fair_share)}; its guarantee is {_cores(e.guarantee)}."
    if e.prospects is not None:
        yield from _prospect_sentences(e.prospects, "rise" if e.maximize else "fall")


def _prospect_sentences(o: JobProspects, way: str) -> Iterator[str]:
    yield f"The job has made {o.reduction:.1%} of its whole predicted {way}."
    expected = ((90, o.seconds_to_90, o.between_90), (95, o.seconds_to_95, o.between_95))
    for share, seconds, between in expected:
        if seconds is None:
            yield f"No time can be predicted yet for {share}%."
        elif seconds > 0:
            ends = "" if between is None else f" (80%: {_duration(between[0])} to {_duration(between[1])})"
            yield f"With the cores it usually holds, the job reaches {share}% in about {_duration(seconds)}{ends}."
    if o.chance is not None:
        yield f"The job reaches its target by its deadline with a probability of {o.chance:.0%}."
    if o.out_of_reach:
        yield "The target is out of reach, even with all the cores the job can use."


def _name(rival: Rival) -> str:
    return "another job" if rival.id is None else f"job {rival.id!r}"


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{count:.4g} cores"


def _losses(count: float) -> str:
    whole = max(round(count), 1)
    return "one loss" if whole == 1 else f"{whole:,} losses"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.3g} min" if minutes < 100 else f"{minutes / 60:.3g} h"
