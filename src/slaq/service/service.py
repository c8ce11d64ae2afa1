"""The service: all that users may ask of it; its parts know how, and who may."""

import importlib.metadata
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

from slaq.bootstrap import make_live_policy
from slaq.config.service import ServiceSettings
from slaq.core.errors import ClosingError, DuplicateJobError, UnknownDecisionError
from slaq.core.job import JobState
from slaq.service import views
from slaq.service.access import Access, check_admin, may_touch, owner_of
from slaq.service.accounts import account_of
from slaq.service.files import JobFiles
from slaq.service.listing import Wanted, page
from slaq.service.outlook import Outlook
from slaq.service.preferences import Preferences
from slaq.service.records import ClusterView, Identity, JobView, LogChunk, Notice, Submission, UserView
from slaq.service.scheduling import Scheduling
from slaq.service.standing import Standing
from slaq.service.steering import Steering
from slaq.service.upkeep import Upkeep
from slaq.service.users import Users
from slaq.service.work import check, name_for, spec_of
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite_records import JobRow, Pruned

#: Bytes of a log that are handed out at a time.
MOST_LOG = 1 << 20
#: Epochs without a decision after which the service counts as stuck.
STUCK_EPOCHS = 30

_log = logging.getLogger(__name__)


class Service:
    """Jobs of many users on one machine; every method may be called from any thread.

    A user sees and touches their own jobs; admins, all of them. What a method acknowledges is on disk.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o711)
        settings.jobs.mkdir(exist_ok=True, mode=0o711)
        self.store = SqliteStore(settings.database)
        self.started_at = time.time()
        self._closing = False
        self._jobs = str(settings.jobs)
        self._next_number: dict[str, int] = {}
        try:
            self._at_work = Scheduling(settings, self.store, self.started_at)
            self._access = Access(lambda: self.settings, self.store, self._at_work.board)
            self._preferences = Preferences(self.store, settings)
            self._users = Users(self._preferences, self._at_work.board, self._at_work.units_per_core)
            self._steering = Steering(self._at_work, self._access, self._open)
            self._outlook = Outlook(self._at_work, self._preferences, self._access)
            self._decide_by()
            self._at_work.start()
            self._upkeep = Upkeep(lambda: self.settings, self._at_work.clock.now, self._prune)
            self._upkeep.start()
        except BaseException:
            self.store.close()
            raise

    # Jobs

    def submit(self, who: Identity, submission: Submission) -> JobView:
        """Take a job; it is kept, whatever happens to the service, once this returns."""
        self._open()
        owner = owner_of(who, submission)
        check(submission)
        if not submission.external:
            account_of(owner)
        work = self._at_work
        # Held throughout, so that the job is on the board before the scheduler can start it.
        with work.lock:
            self._users.check_room(owner)
            job = work.board.replace_row(self._keep(submission, owner))
            work.publish("job.submitted", job)
            view = self._view(job)
        _log.info("job submitted", extra={"job": view.id, "owner": owner})
        work.wake()
        return view

    def _keep(self, submission: Submission, owner: str) -> JobRow:
        """Store a job under an id that no other has."""
        work = self._at_work
        now = work.clock.now()
        asked = asdict(replace(submission, user=None))
        for job_id in self._ids(name_for(submission)):
            spec = spec_of(
                submission, job_id, owner, now=now, capacity=work.capacity, units_per_core=work.units_per_core
            )
            with suppress(DuplicateJobError):
                return self.store.submit_job(spec, owner=owner, submission=asked, at=now)
        raise AssertionError("numbers never end")

    def jobs(
        self,
        who: Identity,
        *,
        states: Collection[JobState] | None = None,
        owner: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[JobView]:
        """Return jobs in the order of submission, those after the named one."""
        if not self._access.sees_all(who):
            if owner not in (None, who.user):
                return []
            owner = who.user
        number = None if after is None else self._access.find(who, after).row.number
        wanted = Wanted(states=states, owner=owner, tag=tag, after=number)
        return [self._seen(who, job) for job in page(self._at_work.board, self.store, wanted, limit)]

    def job(self, who: Identity, job_id: str) -> JobView:
        """Return one job."""
        return self._seen(who, self._access.find(who, job_id))

    def submission(self, who: Identity, job_id: str) -> Submission:
        """Return what the job's owner asked for."""
        return self._access.own(who, job_id).submission

    def observations(
        self, who: Identity, job_id: str, *, after: int = -1, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return what the job reported after an iteration."""
        job = self._access.find(who, job_id)
        return views.observations(self.store.observations(job.row.id, after=after, limit=limit))

    def allocations(
        self, who: Identity, job_id: str, *, since: float = 0.0, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Return what the job held, and from when on."""
        job = self._access.find(who, job_id)
        per_core = self._at_work.units_per_core
        found = self.store.allocations(job.row.id, since=since, limit=limit)
        return [{"at": at, "units": units, "cores": units / per_core} for at, units in found]

    def forecast(self, who: Identity, job_id: str, horizons: Sequence[int]) -> dict[str, Any]:
        """Predict the job's losses that many iterations ahead."""
        return self._outlook.forecast(self._access.find(who, job_id), horizons)

    def why(self, who: Identity, job_id: str) -> dict[str, Any]:
        """Tell why the job holds what it holds, in numbers and as text: the last decision about it."""
        return self._outlook.why(who, self._access.own(who, job_id))

    def whatif(
        self,
        who: Identity,
        *,
        policy: str | None = None,
        cores: int | None = None,
        horizon: float = 3600.0,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Play the present jobs forward as things are, and under another policy or capacity."""
        self._open()
        return self._outlook.whatif(who, policy=policy, cores=cores, horizon=horizon, seed=seed)

    def log(self, who: Identity, job_id: str, *, offset: int = 0, limit: int = 65536) -> LogChunk:
        """Return a piece of what the job printed; a negative offset counts from the end."""
        job = self._access.own(who, job_id)
        return self._files(job_id).read_log(offset, min(limit, MOST_LOG), ended=job.state.ended)

    # Steering

    def pause(self, who: Identity, job_id: str) -> JobView:
        """Hold a job: it keeps all it has, and gets nothing until it is resumed."""
        return self._view(self._steering.pause(who, job_id, paused=True))

    def resume(self, who: Identity, job_id: str) -> JobView:
        """Let a paused job go on."""
        return self._view(self._steering.pause(who, job_id, paused=False))

    def cancel(self, who: Identity, job_id: str) -> JobView:
        """Ask for a job's end; it has ended when its state says so."""
        return self._view(self._steering.cancel(who, job_id))

    def change(
        self,
        who: Identity,
        job_id: str,
        *,
        weight: float | None = None,
        tags: Sequence[str] | None = None,
        max_cores: float | None = None,
    ) -> JobView:
        """Change what a job was given; None leaves a thing as it is."""
        return self._view(self._steering.change(who, job_id, weight=weight, tags=tags, max_cores=max_cores))

    def report(self, who: Identity, job_id: str, lines: bytes, *, offset: int, source: str = "") -> int:
        """Take what a job reported elsewhere; return how far its reports now reach.

        The lines are those that `slaq.report` writes, from that byte of its reports on; what is known already
        is passed over, so that sending again does no harm. `source` names where they are sent from: when
        another one begins, the job goes on there.
        """
        self._open()
        return self._steering.report(who, job_id, lines, offset=offset, source=source)

    def end(self, who: Identity, job_id: str, *, state: JobState, reason: str = "") -> JobView:
        """Take note that a job which runs elsewhere has ended."""
        return self._view(self._steering.end(who, job_id, state, reason))

    # The whole

    def decisions(self, who: Identity, *, since: int = -1, limit: int = 10) -> list[dict[str, Any]]:
        """Return decisions after an epoch; of other users' jobs only the totals."""
        return [
            views.decision(made, self._access.visible(who, made.ids))
            for made in self.store.decisions_since(since, limit)
        ]

    def decision(self, who: Identity, epoch: int | None = None) -> dict[str, Any]:
        """Return the decision of an epoch, or the last one."""
        made = self.store.decision(epoch)
        if made is None:
            raise UnknownDecisionError(epoch)
        return views.decision(made, self._access.visible(who, made.ids))

    def cluster(self, who: Identity) -> ClusterView:
        """Return the whole of it at a glance."""
        work = self._at_work
        states = [job.state for job in list(work.board.jobs.values())]
        decision = work.decision
        return ClusterView(
            version=importlib.metadata.version("slaq"),
            policy=self._preferences.policy,
            cores=work.cores,
            units_per_core=work.units_per_core,
            capacity=work.capacity,
            granted=0 if decision is None else int(decision.units.sum()),
            epoch=work.scheduler.epoch,
            epoch_seconds=self.settings.epoch_seconds,
            started_at=self.started_at,
            now=work.clock.now(),
            queued=states.count(JobState.QUEUED),
            running=states.count(JobState.RUNNING),
            paused=states.count(JobState.PAUSED),
            throttle=work.station.commands.way,
            troubles=self.troubles(),
        )

    def set_policy(self, who: Identity, policy: str) -> None:
        """Decide by another policy from now on; for admins."""
        check_admin(who, "change the policy")
        make_live_policy(policy)
        self._preferences.choose_policy(policy)
        self._decide_by()
        self._at_work.bulletin.publish("cluster.changed", self._at_work.clock.now(), {"policy": policy})

    def users(self, who: Identity) -> list[UserView]:
        """Return the users who have jobs under way or limits of their own; one who is no admin, themselves."""
        names = self._users.names() | {who.user} if who.admin else {who.user}
        return [self._users.view(name) for name in sorted(names)]

    def user(self, who: Identity, name: str) -> UserView:
        """Return one user's standing."""
        if name != who.user:
            check_admin(who, f"see the standing of {name}")
        return self._users.view(name)

    def set_user(self, who: Identity, name: str, **changes: Any) -> UserView:
        """Change a user's `weight`, `max_jobs` or `max_cores`; None lifts a limit. For admins."""
        check_admin(who, "change the limits of users")
        with self._at_work.lock:
            self._users.limit(name, **changes)
        self._decide_by()
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
        """Remove ended jobs with their files, and old decisions; for admins."""
        check_admin(who, "remove what has ended")
        pruned = self._prune(
            before=before, keep_jobs=keep_jobs, keep_decisions=keep_decisions, dry_run=dry_run
        )
        return asdict(pruned)

    def _prune(self, *, dry_run: bool = False, **which: Any) -> Pruned:
        pruned = self.store.prune(dry_run=dry_run, **which)
        if not dry_run:
            for job_id in pruned.jobs:
                self._files(job_id).remove()
        return pruned

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
    ) -> AsyncIterator[Notice]:
        """Tell what happens from now on, or after the notice of that number."""
        if job_id is not None:
            self._access.find(who, job_id)

        def may_see(notice: Notice) -> bool:
            mine = notice.owner is None or notice.owner == who.user or self._access.sees_all(who)
            return mine and (job_id is None or notice.job_id == job_id)

        return self._at_work.bulletin.listen(may_see, after=after, kinds=kinds)

    def health(self) -> dict[str, Any]:
        """Return whether the service works, and what troubles it."""
        troubles = self.troubles()
        return {"status": "ok" if not troubles else "troubled", "troubles": list(troubles)}

    def ready(self) -> tuple[bool, str]:
        """Return whether jobs are taken, and why not."""
        if self._closing:
            return False, "the service is stopping"
        if not self._at_work.alive:
            return False, "the scheduler is not running"
        return True, ""

    def metrics(self) -> str:
        """Return what Prometheus reads."""
        from slaq.service.metrics import exposition

        return exposition(self._at_work)

    def troubles(self) -> tuple[str, ...]:
        """Return what is wrong, in one sentence each."""
        found = []
        work = self._at_work
        if work.ledger.trouble:
            found.append(work.ledger.trouble)
        if not work.alive and not self._closing:
            found.append("the scheduler has stopped; see the log")
        late = work.clock.now() - work.decided_at
        if work.alive and late > STUCK_EPOCHS * self.settings.epoch_seconds:
            found.append(f"the last decision was made {late:.0f} seconds ago")
        return tuple(found)

    def reload(self, settings: ServiceSettings) -> tuple[str, ...]:
        """Take up other settings; return the names of those that wait for a restart."""
        waiting = self.settings.waiting_for_restart(settings)
        kept = {name: getattr(self.settings, name) for name in waiting}
        with self._at_work.lock:
            self.settings = self._at_work.settings = replace(settings, **kept)
            self._preferences.reset(self.settings)
        self._decide_by()
        _log.info("settings reloaded", extra={"waiting": list(waiting)})
        return waiting

    def close(self) -> None:
        """Stop: every process ends, every job is still to be done."""
        if self._closing:
            return
        self._closing = True
        self._upkeep.close()
        self._at_work.close()
        self.store.close()
        _log.info("service closed")

    # The rest

    def _open(self) -> None:
        if self._closing:
            raise ClosingError

    def _files(self, job_id: str) -> JobFiles:
        return self._at_work.launcher.files(job_id)

    def _ids(self, name: str) -> Iterator[str]:
        """Yield the ids to try for a job: its name, else with a number."""
        if name not in self._next_number:
            self._next_number[name] = 2
            yield name
        for number in count(self._next_number[name]):
            self._next_number[name] = number + 1
            yield f"{name}-{number}"

    def _view(self, job: Standing) -> JobView:
        return job.view(self._at_work.units_per_core, f"{self._jobs}/{job.row.id}")

    def _seen(self, who: Identity, job: Standing) -> JobView:
        view = self._view(job)
        return view if may_touch(who, job) else views.without_secrets(view)

    def _decide_by(self) -> None:
        """Have the scheduler decide as is preferred now."""
        chosen = self._preferences
        with self._at_work.lock:
            self._at_work.set_policy(chosen.policy, chosen.limits, chosen.usual)
        self._at_work.wake()
