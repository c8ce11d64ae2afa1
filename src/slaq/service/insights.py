"""Forecasts, what-if replays and explanations."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slaq.core.errors import ConflictError
from slaq.core.explanation import explain_job
from slaq.core.forecast import forecast
from slaq.core.job import JobState
from slaq.scheduler import Scheduler
from slaq.service import views
from slaq.service.access import Access
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.service.loop import EpochLoop
from slaq.service.overrides import Overrides
from slaq.service.parts import Policies
from slaq.service.records import Identity
from slaq.service.replaying import NamedAlternative, Question, ask
from slaq.simulation.whatif import Situation


class Insights:
    """Answers questions about the last decision and the jobs to come; names no job that the asker may not see."""

    def __init__(
        self,
        loop: EpochLoop,
        live_jobs: LiveJobs,
        policies: Policies,
        overrides: Overrides,
        access: Access,
    ) -> None:
        self._loop = loop
        self._live_jobs = live_jobs
        self._policies = policies
        self._overrides = overrides
        self._access = access

    def forecast(self, job: LiveJob, horizons: Sequence[int]) -> dict[str, Any]:
        """Predict the job's losses that many iterations ahead."""
        curve = self._live_jobs.store.observations(job.row.id)
        seen = forecast(curve.loss.tolist(), list(horizons), maximize=job.row.spec.maximize)
        return {
            "iteration": job.iteration,
            "horizons": list(horizons),
            "mean": [views.finite(value) for value in seen.mean.tolist()],
            "low": [views.finite(value) for value in seen.low.tolist()],
            "high": [views.finite(value) for value in seen.high.tolist()],
            "ignored": list(seen.ignored),
            "restarts": list(seen.restarts),
        }

    def why(self, who: Identity, job: LiveJob) -> dict[str, Any]:
        """Explain why the job holds what it holds or why it waits, in numbers and as text."""
        job_id, decided = job.row.id, self._loop.decided
        about = {"job_id": job_id, "state": str(job.state)}
        decision = decided.decision
        if decision is None or job.state is not JobState.RUNNING or job.delayed or job_id not in decision.ids:
            return {**about, "text": _why_nothing(job) + _about_losses(job)}
        told = explain_job(
            decision,
            job_id,
            appraisal=decided.appraisal,
            prospects=decided.prospects,
            policy=self._policies.rule(self._overrides.policy),
        )
        rival = None if told.rival is None else told.rival.id
        if rival is not None and not self._access.visible(who, [rival]) and not self._access.sees_all(who):
            told = told.without_names()
        return {**about, **views.plain(told.as_json()), "text": told.as_text() + _about_losses(job)}

    def whatif(
        self, who: Identity, *, policy: str | None, cores: int | None, horizon: float, seed: int | None
    ) -> dict[str, Any]:
        """Simulate the present jobs from now on, as things are and under another policy or capacity."""
        if policy is not None:
            self._policies.make(policy)
        with self._loop.paused() as scheduler:
            situation, capacity = self._situation(scheduler), scheduler.engine.capacity()
        present = self._overrides.policy
        alternatives = [_alternative(present, capacity)]
        if policy is not None or cores is not None:
            alternatives.append(_alternative(policy or present, cores or capacity))
        question = Question(
            situation=situation,
            alternatives=alternatives,
            sharing=self._overrides.sharing,
            horizon=horizon,
            seed=seed,
        )
        replays = ask(question)
        seen = self._access.visible(who, [job["id"] for job in replays[0]["jobs"]])
        for played in replays:
            played["jobs"] = [job for job in played["jobs"] if seen is None or job["id"] in seen]
        return {"horizon": horizon, "replays": views.plain(replays)}

    def _situation(self, scheduler: Scheduler) -> Situation:
        """Return the cluster as it is between two epochs."""
        jobs = sorted(self._live_jobs.jobs.values(), key=lambda job: job.row.number)
        if not jobs:
            raise ConflictError("there are no jobs to simulate", "submit some first")
        known = {
            job.row.id: max(end - max(job.iteration, 0), 0)
            for job in jobs
            if (end := job.known_end) is not None
        }
        roster = scheduler.roster
        left = {
            job_id: math.ceil(losses)
            for job_id, row in roster.ids.items()
            if math.isfinite(losses := float(roster.losses_left(np.array([row]))[0]))
        }
        appraiser = scheduler.appraiser
        return Situation(
            roster=roster.dump(),
            now=scheduler.clock.now(),
            epoch_seconds=appraiser.epoch_seconds,
            units_per_core=appraiser.units_per_core,
            queued=tuple(job.row.spec for job in jobs if job.state is JobState.QUEUED),
            iterations_left=known | left,
            stop_at={job.row.id: job.enough.share for job in jobs if job.enough is not None},
        )


def _alternative(policy: str, cores: float) -> NamedAlternative:
    name = f"{policy}, {cores:g} {'core' if cores == 1 else 'cores'}"
    return NamedAlternative(name=name, policy=policy, cores=cores)


def _about_losses(job: LiveJob) -> str:
    """Return sentences on where a job's losses come from, and on what is wrong with that."""
    reads = f"\nIts losses are read from {job.loss_source}." if job.loss_source else ""
    return reads + (f"\nTrouble: {job.loss_trouble}." if job.loss_trouble else "")


def _why_nothing(job: LiveJob) -> str:
    """Return why a job that is not in the last decision holds no cores."""
    job_id = job.row.id
    if job.state.ended:
        return f"{job_id} has {job.state.perfect}{f': {job.reason}' if job.reason else ''}."
    if job.state is JobState.PAUSED:
        return f"{job_id} is paused and holds nothing; `slaq resume {job_id}` resumes it."
    if job.state is JobState.QUEUED or job.delayed:
        return f"{job_id} {job.reason}."
    return f"{job_id} has just been started; the next decision will be about it too."
