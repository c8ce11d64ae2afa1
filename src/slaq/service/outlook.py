"""What is told of the time to come, and of why a job holds what it holds."""

from collections.abc import Sequence
from typing import Any

from slaq.bootstrap import make_live_policy, rule_of
from slaq.core.errors import ConflictError
from slaq.core.explanation import explain_job
from slaq.core.forecast import forecast
from slaq.core.job import JobState
from slaq.service import views
from slaq.service.access import Access
from slaq.service.preferences import Preferences
from slaq.service.records import Identity
from slaq.service.replaying import Course, Question, ask
from slaq.service.scheduling import Scheduling
from slaq.service.standing import Standing, how_ended
from slaq.simulation.whatif import Situation


class Outlook:
    """Looks ahead from where the scheduler stands; names no job to someone who may not see it."""

    def __init__(self, work: Scheduling, preferences: Preferences, access: Access) -> None:
        self._work = work
        self._preferences = preferences
        self._access = access

    def forecast(self, job: Standing, horizons: Sequence[int]) -> dict[str, Any]:
        """Predict the job's losses that many iterations ahead."""
        curve = self._work.store.observations(job.row.id)
        seen = forecast(curve.loss.tolist(), list(horizons))
        return {
            "iteration": job.iteration,
            "horizons": list(horizons),
            "mean": [views.finite(value) for value in seen.mean.tolist()],
            "low": [views.finite(value) for value in seen.low.tolist()],
            "high": [views.finite(value) for value in seen.high.tolist()],
            "ignored": list(seen.ignored),
            "restarts": list(seen.restarts),
        }

    def why(self, who: Identity, job: Standing) -> dict[str, Any]:
        """Tell why the job holds what it holds: the last decision about it, in numbers and as text."""
        work, job_id = self._work, job.row.id
        with work.lock:
            decision, appraisal, prospects = work.decision, work.scheduler.appraisal, work.prospects
        about = {"job_id": job_id, "state": str(job.state)}
        if decision is None or job.state is not JobState.RUNNING or job_id not in decision.ids:
            return {**about, "text": self._waits(job)}
        told = explain_job(
            decision,
            job_id,
            appraisal=appraisal,
            prospects=prospects,
            policy=rule_of(self._preferences.policy),
        )
        rival = None if told.rival is None else told.rival.id
        if rival is not None and not self._access.visible(who, [rival]) and not self._access.sees_all(who):
            told = told.without_names()
        return {**about, **views.plain(told.as_json()), "text": told.as_text()}

    def whatif(
        self, who: Identity, *, policy: str | None, cores: int | None, horizon: float, seed: int | None
    ) -> dict[str, Any]:
        """Play the present jobs forward as things are, and under another policy or capacity."""
        if policy is not None:
            make_live_policy(policy)
        work = self._work
        with work.lock:
            situation = self._situation()
            sharing = work.sharing
        courses = [self._course(self._preferences.policy, work.cores)]
        if policy is not None or cores is not None:
            courses.append(self._course(policy or self._preferences.policy, cores or work.cores))
        question = Question(situation=situation, courses=courses, sharing=sharing, horizon=horizon, seed=seed)
        replays = ask(question)
        seen = self._access.visible(who, [job["id"] for job in replays[0]["jobs"]])
        for played in replays:
            played["jobs"] = [job for job in played["jobs"] if seen is None or job["id"] in seen]
        return {"horizon": horizon, "replays": views.plain(replays)}

    def _course(self, policy: str, cores: int) -> Course:
        name = f"{policy}, {cores} {'core' if cores == 1 else 'cores'}"
        return Course(name=name, policy=policy, cores=cores, capacity=cores * self._work.units_per_core)

    def _situation(self) -> Situation:
        """Return the cluster as it stands; the caller holds the lock."""
        work = self._work
        jobs = sorted(work.board.jobs.values(), key=lambda job: job.row.number)
        if not jobs:
            raise ConflictError("there are no jobs to play forward", "submit some first")
        limited = {job.row.id: job.submission.max_iterations for job in jobs}
        return Situation(
            roster=work.roster.dump(),
            now=work.clock.now(),
            epoch_seconds=work.settings.epoch_seconds,
            queued=tuple(job.row.spec for job in jobs if job.state is JobState.QUEUED),
            iterations_left={
                job.row.id: max(most - max(job.iteration, 0), 0)
                for job in jobs
                if (most := limited[job.row.id]) is not None
            },
            stop_at={job.row.id: job.enough.share for job in jobs if job.enough is not None},
        )

    def _waits(self, job: Standing) -> str:
        """Say why a job that is in no decision holds nothing."""
        if job.state.ended:
            return (
                f"{job.row.id} has {how_ended(job.state)}{f': {job.row.reason}' if job.row.reason else ''}."
            )
        if job.state is JobState.PAUSED:
            return f"{job.row.id} is paused and holds nothing; `slaq resume {job.row.id}` lets it go on."
        if job.state is JobState.QUEUED:
            jobs = list(self._work.board.jobs.values())
            ahead = sum(
                other.state is JobState.QUEUED and other.row.number < job.row.number for other in jobs
            )
            most = self._work.settings.max_jobs_active
            return f"{job.row.id} waits to be started: {ahead} jobs before it, and {most} may run at a time."
        return f"{job.row.id} has just been started; the next decision will be about it too."
