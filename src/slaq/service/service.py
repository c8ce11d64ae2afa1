"""The service: everything that users can ask of it."""

import importlib.metadata
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any, Unpack

from slaq.config.service import ServiceSettings
from slaq.core.errors import ClosingError, DuplicateJobError, UnknownDecisionError
from slaq.core.job import JobState
from slaq.jobs import variables
from slaq.jobs.options import JobChanges, check_search
from slaq.service import disclosure, views
from slaq.service.access import Access, check_admin, may_change, owner_of
from slaq.service.event_broker import EventBroker, Subscription
from slaq.service.groups import Groups
from slaq.service.insights import Insights
from slaq.service.job_control import JobControl
from slaq.service.listing import Filters, Wanted, last, page
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.service.overrides import Overrides
from slaq.service.parts import EndedJob, Parts, Watched
from slaq.service.records import ClusterView, Identity, JobView, LogChunk, Notice, Submission, UserView
from slaq.service.retention import Retention
from slaq.service.scheduling import chosen_policy, make_loop
from slaq.service.users import Users
from slaq.service.work import identifier, spec_for
from slaq.stores.sqlite.records import JobRow

#: Bytes of a log that are handed out at a time.
MOST_LOG = 1 << 20
#: Characters of a reason that a command is told when a job has ended.
MOST_REASON = 2_000
#: Epochs without a decision after which the service counts as stuck.
STUCK_EPOCHS = 30

_log = logging.getLogger(__name__)


class Service:
    """Jobs of many users on one cluster; every method may be called from any thread.

    Users see and change their own jobs, admins all of them. What a method acknowledges is on disk.
    """

    def __init__(self, settings: ServiceSettings, parts: Parts) -> None:
        """Take up the jobs of an earlier run and begin to decide; `close` also closes the store and the engine."""
        self.settings = settings
        self.store, self._parts = parts.store, parts
        self.started_at = time.time()
        self._closing = False
        self._next_number: dict[str, int] = {}
        self._broker = EventBroker(lambda count: parts.store.next_notice(count).start)
        self._live_jobs = LiveJobs(parts.store, parts.kinds, self._broker, parts.clock)
        self._live_jobs.ended = self._notify
        self._access = Access(lambda: self.settings, self._live_jobs)
        self._overrides = Overrides(self.store, settings)
        self._users = Users(self._overrides, self._live_jobs)
        self._loop = make_loop(lambda: self.settings, parts, self._live_jobs, self._overrides)
        self._control = JobControl(self._loop, self._live_jobs, self._access, self._check_open)
        self._groups = Groups(self._live_jobs)
        self._insights = Insights(self._loop, self._live_jobs, parts.policies, self._overrides, self._access)
        self._retention = Retention(lambda: self.settings, parts)
        self._loop.start()
        self._retention.rounds.start()

    # Jobs

    def submit(self, who: Identity, submission: Submission) -> JobView:
        """Store a job and queue it; once this returns, the job survives whatever happens to the service."""
        self._check_open()
        submission = submission.completed()
        owner = owner_of(who, submission)
        for awaited in (*submission.options["after"], *submission.options["after_any"]):
            self._access.find(who, awaited)
        self._parts.kinds.find(submission).check(submission, owner)
        if submission.options["notify"] is not None:
            self._parts.notifier.check(owner)
        # Between two epochs, so that the scheduler cannot start a job that is not among the live ones.
        with self._loop.changing():
            self._users.check_room(owner)
            live = self._live_jobs.jobs.values()
            check_search(
                submission.options, (job.submission.options for job in live if job.row.owner == owner)
            )
            job = self._live_jobs.replace_row(self._keep(submission, owner))
            self._live_jobs.publish("job.submitted", job)
            view = job.view()
        _log.info("job submitted", extra={"job": view.id, "owner": owner})
        return view

    def _keep(self, submission: Submission, owner: str) -> JobRow:
        """Store a job under an id that no other has."""
        now = self._parts.clock.now()
        asked = {**submission.as_json(), "user": None}
        described = self._parts.kinds.find(submission).describe(submission)
        for job_id in self._ids(submission.options["name"] or identifier(described.name)):
            spec = spec_for(submission, job_id, owner, now=now, watched=described.watched)
            with suppress(DuplicateJobError):
                return self.store.submit_job(spec, owner=owner, submission=asked, at=now)
        raise AssertionError("numbers never end")

    def jobs(
        self, who: Identity, *, after: str | None = None, limit: int = 100, **filters: Unpack[Filters]
    ) -> list[JobView]:
        """Return jobs in the order of submission, those after the named one."""
        wanted = self._wanted(who, filters)
        if wanted is None:
            return []
        number = None if after is None else self._access.find(who, after).row.number
        return [self._seen(who, job) for job in page(self._live_jobs, replace(wanted, after=number), limit)]

    def last_jobs(self, who: Identity, most: int, **filters: Unpack[Filters]) -> tuple[list[JobView], int]:
        """Return the jobs that ended last or have not ended, and how many there are without a limit."""
        wanted = self._wanted(who, filters)
        if wanted is None:
            return [], 0
        found, total = last(self._live_jobs, wanted, most)
        return [self._seen(who, job) for job in found], total

    def _wanted(self, who: Identity, filters: Filters) -> Wanted | None:
        """Return which jobs are listed; None where the asker may see none of them."""
        wanted = Wanted(**filters)
        if wanted.group is not None:
            # A group is of one user, as its name is.
            wanted = replace(wanted, owner=wanted.owner or who.user)
            return wanted if who.admin or wanted.owner == who.user else None
        # Nobody can find others' jobs by their tags, which only their owners see.
        if self._access.sees_all(who) and (who.admin or wanted.tag is None):
            return wanted
        return replace(wanted, owner=who.user) if wanted.owner in (None, who.user) else None

    def job(self, who: Identity, job_id: str) -> JobView:
        """Return one job."""
        return self._seen(who, self._access.find(who, job_id))

    def submission(self, who: Identity, job_id: str) -> Submission:
        """Return the job as its owner submitted it."""
        return self._access.own(who, job_id).submission

    def observations(
        self, who: Identity, job_id: str, *, after: int = -1, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return what the job reported after an iteration."""
        job = self._access.find(who, job_id)
        found = views.observations(self.store.observations(job.row.id, after=after, limit=limit))
        return found if may_change(who, job) else disclosure.observations_for_others(found)

    def curves(self, who: Identity, ids: Sequence[str], *, most: int = 1000) -> list[dict[str, Any]]:
        """Return the losses of several jobs in columns: of a longer curve, so many evenly spaced ones."""
        self._access.check_all(who, ids)
        return [views.curve(job_id, rows) for job_id, rows in self.store.curves(ids, most).items()]

    def allocations(
        self, who: Identity, job_id: str, *, since: float = 0.0, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return how many cores the job held, and from when on."""
        job = self._access.find(who, job_id)
        found = self.store.allocations(job.row.id, since=since, limit=limit)
        return [{"at": at, "cores": float(cores)} for at, cores in found]

    def forecast(self, who: Identity, job_id: str, horizons: Sequence[int]) -> dict[str, Any]:
        """Predict the job's losses that many iterations ahead."""
        return self._insights.forecast(self._access.find(who, job_id), horizons)

    def why(self, who: Identity, job_id: str) -> dict[str, Any]:
        """Explain, in numbers and as text, why the job holds what it holds or why it waits."""
        return self._insights.why(who, self._access.own(who, job_id))

    def whatif(
        self,
        who: Identity,
        *,
        policy: str | None = None,
        cores: int | None = None,
        horizon: float = 3600.0,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Simulate the present jobs from now on, as things are and under another policy or capacity."""
        self._check_open()
        return self._insights.whatif(who, policy=policy, cores=cores, horizon=horizon, seed=seed)

    def log(self, who: Identity, job_id: str, *, offset: int = 0, limit: int = 65536) -> LogChunk:
        """Return a piece of what the job printed; a negative offset counts from the end."""
        job = self._access.own(who, job_id)
        return job.kind.files(job.row.identity).read_log(offset, min(limit, MOST_LOG), ended=job.state.ended)

    # Changes of jobs

    def pause(self, who: Identity, job_id: str) -> JobView:
        """Pause a job: it keeps its processes and memory, and gets no cores until it is resumed."""
        return self._control.pause(who, job_id, paused=True).view()

    def resume(self, who: Identity, job_id: str) -> JobView:
        """Resume a paused job."""
        return self._control.pause(who, job_id, paused=False).view()

    def cancel(self, who: Identity, job_id: str, *, now: bool = False) -> JobView:
        """Ask for a job's end; the job has ended when its state says so. With `now` it is killed at once."""
        return self._control.cancel(who, job_id, now=now).view()

    def change(self, who: Identity, job_id: str, **changes: Unpack[JobChanges]) -> JobView:
        """Change a job's weight, tags or limit; what is not given stays as it is."""
        return self._control.change(who, job_id, changes).view()

    def pause_group(self, who: Identity, group: str, owner: str | None = None) -> list[JobView]:
        """Pause each job of a group that has not ended; return them."""
        return self._steer(who, group, owner, lambda job_id: self._control.pause(who, job_id, paused=True))

    def resume_group(self, who: Identity, group: str, owner: str | None = None) -> list[JobView]:
        """Resume each paused job of a group; return those that have not ended."""
        return self._steer(who, group, owner, lambda job_id: self._control.pause(who, job_id, paused=False))

    def cancel_group(self, who: Identity, group: str, owner: str | None = None) -> list[JobView]:
        """Ask for the end of each job of a group; return those that had not ended."""
        return self._steer(who, group, owner, lambda job_id: self._control.cancel(who, job_id))

    def change_group(
        self, who: Identity, group: str, owner: str | None = None, **changes: Unpack[JobChanges]
    ) -> list[JobView]:
        """Change each job of a group that has not ended, as `change` does; return them."""
        return self._steer(who, group, owner, lambda job_id: self._control.change(who, job_id, changes))

    def _steer(
        self, who: Identity, group: str, owner: str | None, act: Callable[[str], LiveJob]
    ) -> list[JobView]:
        self._check_open()
        return [job.view() for job in self._groups.each(who, group, owner, act)]

    def report(self, who: Identity, job_id: str, lines: bytes, *, offset: int, source: str = "") -> int:
        """Take what a job reported elsewhere; return how many bytes of its reports there are now.

        The lines are those that `slaq.report` writes, from that byte of its reports on. What is known already
        is ignored, so lines may be sent again. `source` names the process that sends them: once another one
        begins, the earlier one is refused.
        """
        self._check_open()
        return self._control.report(who, job_id, lines, offset=offset, source=source)

    def end(self, who: Identity, job_id: str, *, state: JobState, reason: str = "") -> JobView:
        """End an external job with the state that its owner reports."""
        return self._control.end(who, job_id, state, reason).view()

    # The cluster

    def decisions(
        self, who: Identity, *, since: int = -1, limit: int = 10, every: int = 1
    ) -> list[dict[str, Any]]:
        """Return decisions after an epoch, of every so many epochs; others' jobs count in the totals only."""
        return [
            views.decision(made, self._access.visible(who, made.ids))
            for made in self.store.decisions_since(since, limit, every)
        ]

    def decision(self, who: Identity, epoch: int | None = None) -> dict[str, Any]:
        """Return the decision of an epoch, or the last one."""
        made = self.store.decision(epoch)
        if made is None:
            raise UnknownDecisionError(epoch)
        return views.decision(made, self._access.visible(who, made.ids))

    def cluster(self, who: Identity) -> ClusterView:
        """Return the state of the cluster."""
        states = [job.state for job in list(self._live_jobs.jobs.values())]
        return ClusterView(
            version=importlib.metadata.version("slaq"),
            policy=self._overrides.policy,
            capacity=self._parts.engine.capacity(),
            granted=self._loop.decided.granted,
            epoch=self._loop.status.epoch,
            epoch_seconds=self.settings.epoch_seconds,
            started_at=self.started_at,
            now=self._parts.clock.now(),
            queued=states.count(JobState.QUEUED),
            running=states.count(JobState.RUNNING),
            paused=states.count(JobState.PAUSED),
            throttle=self._parts.enforcement(),
            troubles=self._told(who),
        )

    def set_policy(self, who: Identity, policy: str) -> None:
        """Decide by another policy from now on; for admins."""
        check_admin(who, "change the policy")
        self._parts.policies.make(policy)
        self._overrides.choose_policy(policy)
        self._apply_policy()
        self._broker.publish("cluster.changed", self._parts.clock.now(), {"policy": policy})

    def users(self, who: Identity) -> list[UserView]:
        """Return every user who has live jobs or limits of their own; to anyone but an admin, only themselves."""
        names = self._users.names() | {who.user} if who.admin else {who.user}
        return [self._users.view(name) for name in sorted(names)]

    def user(self, who: Identity, name: str) -> UserView:
        """Return what a user may have, and what their jobs hold."""
        if name != who.user:
            check_admin(who, f"see the limits of {name}")
        return self._users.view(name)

    def set_user(self, who: Identity, name: str, **changes: Any) -> UserView:
        """Change a user's weight and limits; None lifts a limit. For admins."""
        check_admin(who, "change the limits of users")
        with self._loop.paused():
            self._users.limit(name, **changes)
        self._apply_policy()
        return self._users.view(name)

    def prune(
        self,
        who: Identity,
        *,
        before: float | None = None,
        keep_jobs: int | None = None,
        keep_decisions: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove ended jobs with their files, and old decisions; for admins.

        `left` tells by job why something of its folder is left, which is tried again in every round of upkeep.
        """
        check_admin(who, "remove ended jobs")
        return asdict(
            self._retention.prune(
                before=before, keep_jobs=keep_jobs, keep_decisions=keep_decisions, dry_run=dry_run
            )
        )

    def backup(self, who: Identity, path: Path) -> None:
        """Write a copy of the database while it is in use; for admins."""
        check_admin(who, "copy the database")
        self.store.backup(path)

    def notices(
        self,
        who: Identity,
        *,
        after: int | None = None,
        kinds: Collection[str] | None = None,
        job_id: str | None = None,
    ) -> Subscription:
        """Subscribe to what happens from now on, or after the notice of that number."""
        if job_id is not None:
            self._access.find(who, job_id)

        def show(notice: Notice) -> Notice | None:
            if job_id is not None and notice.job_id != job_id:
                return None
            if notice.owner in (None, who.user) or who.admin:
                return notice
            return disclosure.notice_for_others(notice) if self._access.sees_all(who) else None

        return self._broker.listen(show, after=after, kinds=kinds)

    def end_streams(self) -> None:
        """End every subscription to notices: the service is about to close."""
        self._broker.close()

    def health(self, who: Identity | None = None) -> dict[str, Any]:
        """Return whether the service works, and what troubles it as far as the asker may know."""
        troubles = self._told(who)
        return {"status": "ok" if not troubles else "troubled", "troubles": list(troubles)}

    def ready(self) -> tuple[bool, str]:
        """Return whether jobs are taken, and why not."""
        if self._closing:
            return False, "the service is stopping"
        if not self._loop.status.alive:
            return False, "the scheduler is not running"
        if self._undecided > STUCK_EPOCHS * self.settings.epoch_seconds:
            return False, "the scheduler does not decide"
        if not all(one.alive for one in self._threads):
            return False, "a thread of the service has stopped"
        if self._loop.status.store_trouble:
            return False, "the store cannot be written"
        return True, ""

    def metrics(self, who: Identity) -> str:
        """Return the metrics of the scheduler and the store, as Prometheus reads them.

        Of single users, admins are told of all, anyone else of themselves.
        """
        from slaq.service.metrics import Shown, exposition

        shown = Shown(
            capacity=self._parts.engine.capacity(),
            threads={one.name: one for one in self._threads},
            user=None if who.admin else who.user,
        )
        return exposition(self._loop, self._live_jobs, shown)

    def troubles(self) -> tuple[str, ...]:
        """Return what is wrong, in one sentence each."""
        found = []
        status = self._loop.status
        if status.store_trouble:
            found.append(status.store_trouble)
        if not status.alive and not self._closing:
            found.append("the scheduler has stopped; see the log")
        late = self._undecided
        if status.alive and late > STUCK_EPOCHS * self.settings.epoch_seconds:
            found.append(f"the last decision was made {late:.0f} seconds ago")
        if status.trouble:
            found.append(status.trouble)
        return (*found, *(trouble for one in self._threads for trouble in one.troubles))

    @property
    def _undecided(self) -> float:
        """Seconds since the last decision was made."""
        return self._parts.clock.now() - self._loop.status.decided_at

    @property
    def _threads(self) -> Sequence[Watched]:
        """The background threads beside the scheduler's."""
        return (self._retention.rounds, *self._parts.threads)

    def reload(self, settings: ServiceSettings) -> tuple[str, ...]:
        """Apply other settings; return the names of those that wait for a restart."""
        waiting = self.settings.waiting_for_restart(settings)
        kept = {name: getattr(self.settings, name) for name in waiting}
        with self._loop.paused():
            self.settings = replace(settings, **kept)
            self._overrides.reset(self.settings)
        self._apply_policy()
        _log.info("settings reloaded", extra={"waiting": list(waiting)})
        return waiting

    def close(self) -> None:
        """End every process; the jobs go on when the service is opened again."""
        if self._closing:
            return
        self._closing = True
        self._retention.rounds.close()
        self._loop.close()
        self._parts.notifier.close()
        self.store.close()
        _log.info("service closed")

    # Parts of the above

    def _notify(self, job: LiveJob) -> None:
        """Run what the owner of a job wants to be run at its end; the job's events tell how that went."""
        asked, seen = job.submission.options, job.losses
        if asked["notify"] is None:
            return

        def told(problem: str) -> None:
            if problem:
                _log.warning("notification failed", extra={"job": job.row.id, "reason": problem})
            self._live_jobs.publish("job.notified", job, {"state": str(job.state), "reason": problem})

        about = {
            variables.JOB: job.row.id,
            variables.STATE: str(job.state),
            variables.REASON: job.reason[:MOST_REASON].replace("\0", " "),
            variables.BEST_LOSS: "" if seen.best is None else repr(seen.best),
            variables.LOSSES: str(job.iteration + 1),
        }
        env = {**asked.get("env", {}), **about}
        cwd = asked.get("cwd")
        ended = EndedJob(
            owner=job.row.owner, command=asked["notify"], cwd=None if cwd is None else str(cwd), env=env
        )
        self._parts.notifier.notify(ended, told)

    def _told(self, who: Identity | None) -> tuple[str, ...]:
        troubles = self.troubles()
        return troubles if who is not None and who.admin else disclosure.troubles_for_others(troubles)

    def _check_open(self) -> None:
        if self._closing:
            raise ClosingError

    def _ids(self, name: str) -> Iterator[str]:
        """Yield the ids to try for a job: its name, else with a number."""
        if name not in self._next_number:
            yield name
            self._next_number[name] = self.store.last_number(name) + 1
        for number in count(self._next_number[name]):
            self._next_number[name] = number + 1
            yield f"{name}-{number}"

    def _seen(self, who: Identity, job: LiveJob) -> JobView:
        view = job.view()
        return view if may_change(who, job) else disclosure.job_for_others(view)

    def _apply_policy(self) -> None:
        """Decide by the policy and the limits that are chosen now."""
        with self._loop.changing() as scheduler:
            scheduler.policy = chosen_policy(self._parts.policies, self._overrides)
