"""Puts the scheduler of a service together: its admission, its policy, and the jobs of an earlier run."""

from collections.abc import Callable, Sequence
from datetime import datetime

from slaq.config.service import ServiceSettings
from slaq.core.admission import Admission, MostJobs, MostJobsOfOwner, Rule
from slaq.core.allocation import Policy
from slaq.core.appraisal import Appraiser
from slaq.core.errors import UnknownJobError
from slaq.core.job import JobState
from slaq.core.policies import BetweenOwners, searching
from slaq.scheduler import Scheduler
from slaq.service.admission import CoresOfOwner, Paused, StoreWritable
from slaq.service.buffered_store import BufferedStore
from slaq.service.live_jobs import LiveJobs
from slaq.service.loop import EpochLoop
from slaq.service.overrides import Overrides
from slaq.service.parts import Parts, Policies
from slaq.service.recovery import Recovery
from slaq.service.starting import PreparingEngine


def make_loop(
    settings: Callable[[], ServiceSettings], parts: Parts, live_jobs: LiveJobs, overrides: Overrides
) -> EpochLoop:
    """Return the loop of a scheduler that has taken up the jobs of an earlier run; it is not started yet."""
    store, engine = BufferedStore(parts.store, live_jobs), PreparingEngine(parts.engine, live_jobs)
    epoch_seconds, last = settings().epoch_seconds, parts.store.decision()
    scheduler = Scheduler(
        engine=engine,
        store=store,
        clock=parts.clock,
        policy=chosen_policy(parts.policies, overrides),
        appraiser=Appraiser(epoch_seconds=epoch_seconds, units_per_core=parts.units_per_core),
        roster=parts.roster,
        admission=Admission(
            rules=[
                StoreWritable(lambda: store.trouble),
                *_rules(settings, live_jobs, overrides),
                *parts.admission,
            ],
            ended=_ended(live_jobs),
            written=lambda moment: f"{datetime.fromtimestamp(moment):%F %T}",
        ),
        epoch=0 if last is None else last.epoch + 1,
    )
    for restart in Recovery(roster=parts.roster, live_jobs=live_jobs).recover(parts.clock.now()):
        scheduler.admission.running.begin(restart.job.row.spec)
        engine.begin(restart.job, fresh_curve=restart.fresh_curve)
    return EpochLoop(scheduler, parts.engine, store, live_jobs)


def _ended(live_jobs: LiveJobs) -> Callable[[str], JobState | None]:
    def state_of(job_id: str) -> JobState | None:
        try:
            return live_jobs.find(job_id).state
        except UnknownJobError:
            # Removed since; what waited for it was looked at soon after its end.
            return None

    return state_of


def chosen_policy(policies: Policies, overrides: Overrides) -> Policy:
    """Return the policy that is chosen now, inside what each user is due."""
    return BetweenOwners(searching(policies.make(overrides.policy)), **overrides.sharing)


def _rules(
    settings: Callable[[], ServiceSettings], live_jobs: LiveJobs, overrides: Overrides
) -> Sequence[Rule]:
    """Return the reasons to hold jobs back that their owners, the settings and users' limits give."""
    return (
        Paused(lambda job_id: live_jobs.jobs[job_id].row.paused),
        MostJobs(lambda: settings().concurrent),
        MostJobsOfOwner(lambda owner: overrides.limits_of(owner).max_running),
        CoresOfOwner(lambda owner: overrides.limits_of(owner).max_cores),
    )
