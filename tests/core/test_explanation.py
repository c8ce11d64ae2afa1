"""Laws of explanations: they say what the decision was made from, and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Policy
from slaq.core.appraisal import FINISH, Appraisal, Appraiser, explain
from slaq.core.decision import Decision
from slaq.core.demand import Demand
from slaq.core.errors import UnknownJobError
from slaq.core.events import DemandChanged
from slaq.core.explanation import PolicyRule, explain_job
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec
from slaq.core.policies import BetweenOwners, Deadline, Fair, MinQuality, TotalQuality
from slaq.core.prospects import Prospects, foresee
from slaq.core.roster import Roster
from tests.core.test_prospects import all_reported

POLICIES = [TotalQuality(), BetweenOwners(TotalQuality()), MinQuality(), Fair(), Deadline()]


def busy(seed: int, jobs: int) -> Roster:
    """Jobs of different ages, weights, owners and limits, some of them without a loss, other work or diverged."""
    rng = np.random.default_rng(seed)
    roster = Roster(CurveForecaster())
    for number in range(jobs):
        spec = JobSpec(
            id=f"job-{number}",
            trains=rng.random() >= 0.1,
            weight=float(rng.choice([1.0, 1.0, 2.0])),
            demand=Demand(most=float(rng.integers(1, 30)) if rng.random() < 0.7 else None),
            owner=str(rng.choice(["ann", "bob"])),
            deadline=float(rng.uniform(0, 100)) if rng.random() < 0.5 else None,
            max_iterations=int(rng.integers(1, 200)) if rng.random() < 0.5 else None,
        )
        roster.admit(spec, 0.0)
        row = np.array([roster.ids[spec.id]])
        end, rate = rng.uniform(0, 5), rng.uniform(0.5, 0.99)
        for k in range(int(rng.integers(0, 30)) if spec.trains else 0):
            took = np.full(1, float(k > 0))
            loss = np.nan if rng.random() < 0.02 else end + rate**k + rng.normal(0, 0.003)
            roster.observe(row, np.full(1, float(k)), np.full(1, loss), took, took)
    return roster


def decided(roster: Roster, policy: Policy, capacity: int) -> tuple[Decision, Appraisal, Prospects]:
    appraisal = Appraiser(epoch_seconds=1.0).appraise(roster, capacity, 30.0)
    allocation = policy.allocate(appraisal.candidates, capacity)
    decision = explain(appraisal, allocation, 3, 30.0, 0.001)
    return decision, appraisal, foresee(roster, appraisal, allocation.units.astype(np.float64))


rosters = st.builds(busy, st.integers(0, 2**20), st.integers(1, 12))


@settings(max_examples=40, deadline=None)
@given(rosters, st.sampled_from(POLICIES), st.integers(0, 40))
def test_numbers_are_those_of_the_decision(roster: Roster, policy: Policy, capacity: int) -> None:
    """Cores, gains and the gain of one step more are those of the appraisal."""
    decision, appraisal, prospects = decided(roster, policy, capacity)
    for row, job_id in enumerate(decision.ids):
        found = explain_job(decision, job_id, appraisal=appraisal, prospects=prospects)
        curve = dict(found.gains)
        assert found.cores == decision.cores[row]
        assert curve[found.cores] == pytest.approx(found.gain, abs=1e-12)
        most = min(capacity, appraisal.candidates.max_units[row])
        if found.cores < most:
            assert curve[found.cores + 1] - found.gain == pytest.approx(found.next_step, abs=1e-12)
        if found.cores > 0:
            assert found.gain - curve[found.cores - 1] == pytest.approx(found.last_step, abs=1e-12)
        assert sorted(curve.values()) == [curve[cores] for cores in sorted(curve)]


@settings(max_examples=40, deadline=None)
@given(rosters, st.integers(0, 40))
def test_what_the_end_counts_is_told(roster: Roster, capacity: int) -> None:
    """The part of a gain for coming nearer to the end is told where the end is known, and is its worth at most."""
    decision, _, _ = decided(roster, TotalQuality(), capacity)
    for job_id in decision.ids:
        found = explain_job(decision, job_id)
        known = not np.isnan(roster.limit[roster.ids[job_id]]) and roster.observed[roster.ids[job_id]] >= 2
        assert (found.losses_left is not None) == (found.finish is not None) == known
        if found.finish is not None:
            assert 0.0 <= found.finish <= min(found.gain, FINISH) + 1e-12
            assert ("nearer to its end" in found.as_text()) == (found.finish > 0)


def test_decisions_of_earlier_versions_are_explained() -> None:
    """A decision that was stored without the ends of jobs is explained without them."""
    decision, _, _ = decided(busy(1, 5), TotalQuality(), 8)
    old = replace(decision, to_end=np.empty(0), finish=np.empty(0))
    for job_id in old.ids:
        found = explain_job(old, job_id)
        assert found.finish is None
        assert found.losses_left is None


@settings(max_examples=60, deadline=None)
@given(rosters, st.integers(1, 40), st.booleans())
def test_nobody_was_passed_over(roster: Roster, capacity: int, shared: bool) -> None:
    """If cores go by gain, no job's next step is worth more than the last step of its rival."""
    policy = BetweenOwners(TotalQuality()) if shared else TotalQuality()
    decision, _, _ = decided(roster, policy, capacity)
    for row, job_id in enumerate(decision.ids):
        found = explain_job(decision, job_id)
        if found.rival is not None and decision.competes[row]:
            assert found.weight * found.next_step <= found.rival.weight * found.rival.last_step + 1e-9


@settings(max_examples=40, deadline=None)
@given(rosters, st.sampled_from(POLICIES), st.integers(0, 40))
def test_is_told_in_json_and_in_words(roster: Roster, policy: Policy, capacity: int) -> None:
    """Every explanation is valid JSON without NaN, and its text consists of whole sentences."""
    decision, appraisal, prospects = decided(roster, policy, capacity)
    for job_id in decision.ids:
        found = explain_job(
            decision,
            job_id,
            appraisal=appraisal,
            prospects=prospects,
            policy=PolicyRule(name="total-quality"),
        )
        assert json.loads(json.dumps(found.as_json(), allow_nan=False))["job_id"] == job_id
        for sentence in found.as_text().splitlines():
            assert sentence[0].isupper() or sentence[0].isdigit(), sentence
            assert sentence.endswith("."), sentence
            assert "nan" not in sentence.split(), sentence


@settings(max_examples=40, deadline=None)
@given(rosters, st.integers(1, 40))
def test_names_can_be_left_out(roster: Roster, capacity: int) -> None:
    """Without names, an explanation does not tell which other job got the last step."""
    decision, appraisal, _ = decided(roster, TotalQuality(), capacity)
    for job_id in decision.ids:
        found = explain_job(decision, job_id, appraisal=appraisal).without_names()
        told = f"{json.dumps(found.as_json())} {found.as_text()}".replace(job_id, "")
        assert "job-" not in told


def test_a_stranger_is_not_explained() -> None:
    """A job that is not in the decision, or whose decision lacks the numbers, raises UnknownJobError."""
    decision, _, _ = decided(busy(1, 3), TotalQuality(), 4)
    with pytest.raises(UnknownJobError):
        explain_job(decision, "ghost")
    with pytest.raises(UnknownJobError):
        explain_job(replace(decision, sure=np.empty(0, dtype=np.int64)), decision.ids[0])


def test_what_a_weight_does_is_told() -> None:
    """A weight is told beside its rival's, and the reason compares gains times weights."""
    roster = all_reported([[1.0 + 0.95**k for k in range(20)]] * 2)
    policy = PolicyRule(name="total-quality")
    for weight in (1.0, 4.0):
        roster.weight[roster.ids["1"]] = weight
        decision, appraisal, _ = decided(roster, TotalQuality(), 12)
        light = explain_job(decision, "0", appraisal=appraisal, policy=policy)
        told = f"Gains are multiplied by weights: 1 for this job, {weight:g} for job '1'."
        assert (told in light.as_text()) == (weight > 1.0)
        assert (decision.cores[1] > decision.cores[0]) == (weight > 1.0)
    assert light.rival is not None
    there = weight * light.rival.last_step
    assert light.next_step <= there
    assert any(f"and gains {there:.3g} for job '1'" in reason for reason in light.reasons)


def test_a_need_is_told() -> None:
    """Under the policy `deadline`, a job with a deadline is told the cores it needs, and whether it holds them."""
    curve = [1.0 + 0.95**k for k in range(20)]
    roster = all_reported([curve, curve], target_loss=1.0 + 0.95**40, deadline=45.0)
    roster.deadline[roster.ids["0"]] = 42.0
    decision, appraisal, _ = decided(roster, Deadline(), 12)
    told = [
        explain_job(decision, name, appraisal=appraisal, policy=PolicyRule(name="deadline", by_need=True))
        for name in ("0", "1")
    ]
    assert [one.needed for one in told] == appraisal.candidates.needed.tolist()
    needs = [" ".join(one.reasons) for one in told]
    assert "jobs that need fewer come first" in needs[0]
    assert "and holds them" in needs[1]


def test_reasons_name_what_holds_a_job_back() -> None:
    """The reasons name a job at its maximum, one that diverged, and one that runs in turn."""
    roster = Roster(CurveForecaster())
    for name, most in (("full", 2), ("lost", None), ("late", None)):
        roster.admit(JobSpec(id=name, demand=Demand(most=most)), 0.0)
    curves = {"full": [9.0, 5.0, 3.0], "lost": [3.0, 2.0, np.nan], "late": [1.0 + 0.5**k for k in range(40)]}
    for name, losses in curves.items():
        row = np.array([roster.ids[name]])
        for k, loss in enumerate(losses):
            took = np.full(1, float(k > 0))
            roster.observe(row, np.full(1, float(k)), np.full(1, loss), took, took)
    decision, _, _ = decided(roster, TotalQuality(), 2)
    reasons = {name: " ".join(explain_job(decision, name).reasons) for name in curves}
    assert "its maximum of 2 cores" in reasons["full"]
    assert "not a finite number" in reasons["lost"]
    assert "for job 'full'" in reasons["late"]


@given(st.floats(1.0, 100.0), st.integers(2, 12))
def test_what_workers_are_worth_is_told(worth: float, cores: int) -> None:
    """Of a job whose batch grows with its workers it is told what its cores are worth; of others nothing is."""
    roster = Roster(CurveForecaster())
    for name in ("wide", "plain"):
        roster.admit(JobSpec(id=name), 0.0)
    roster.absorb([DemandChanged(job_id="wide", at=0.0, demand=Demand(least=1e6, worth=worth))])
    decision, appraisal, _ = decided(roster, Fair(), 2 * cores)
    wide, plain = (explain_job(decision, name, appraisal=appraisal) for name in ("wide", "plain"))
    assert wide.worth == pytest.approx(worth)
    assert plain.worth is None
    told = worth * wide.cores / (worth - 1 + wide.cores)
    assert f"advance it like {told:.3g}," in wide.as_text()
    assert "advance it like" not in plain.as_text()
