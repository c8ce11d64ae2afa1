"""A node: what runs jobs on one machine, whatever their kinds."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, UnknownJobError, UnknownNameError
from slaq.core.events import JobEnded, JobLost
from slaq.core.job import JobState
from slaq.engines.journal import Ending, Journal, JournalEntry
from slaq.engines.node.commands.runner import CommandJob, CommandRunner
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.programs.runner import ProgramRunner
from slaq.engines.node.runner import Runner
from slaq.engines.node.share_file import ShareFile
from slaq.engines.node.site import Site
from slaq.jobs.share import Share

_log = logging.getLogger(__name__)


class Node(Protocol):
    """Runs jobs. All that goes in and comes out are plain values, so that a node can live in another process.

    The laws are those of an engine; a node is also told what each job does, before the job is started.
    """

    def capacity(self) -> float:
        """Return the cores that can be handed out now."""
        ...

    def prepare(self, job_id: str, work: Any) -> None:
        """Take what a job does; raises if that cannot run. A job that was lost may be prepared once more."""
        ...

    def start(self, job_id: str) -> None:
        """Begin a job that was prepared; a job that cannot begin ends as failed."""
        ...

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """End a job in that state; a job that has ended or is unknown is left alone."""
        ...

    def kill(self, job_id: str) -> None:
        """End a job at once that was told to end; any other is left alone."""
        ...

    def grant(self, cores: Mapping[str, float]) -> None:
        """Resize every job at once; one that is not named holds nothing from now on."""
        ...

    def poll(self) -> Sequence[JournalEntry]:
        """Return what has happened since the last call, in the order it happened."""
        ...

    def close(self) -> None:
        """End every job and leave nothing behind; what has happened can still be polled."""
        ...


class LocalNode(Node):
    """The node of this process: a runner for each kind of work, and a share file for each job.

    An error about one job, or in one runner, is logged and keeps no other job from what is asked for.
    """

    def __init__(self, site: Site, journal: Journal, runners: Mapping[type, Runner[Any]]) -> None:
        self._site = site
        self._journal = journal
        self._runners = runners
        self._lock = threading.Lock()
        #: By the ids of jobs that were prepared and have not ended.
        self._runner: dict[str, Runner[Any]] = {}
        #: Those of them that were not started yet, and those that were lost and can be started again.
        self._prepared: set[str] = set()
        self._lost: set[str] = set()
        self._shares: dict[str, ShareFile] = {}

    @override
    def capacity(self) -> float:
        return self._site.capacity()

    @override
    def prepare(self, job_id: str, work: Any) -> None:
        runner = self._runners.get(type(work))
        if runner is None:
            known = sorted(kind.__name__ for kind in self._runners)
            raise UnknownNameError("kind of work on this node", type(work).__name__, known)
        with self._lock:
            if job_id in self._runner and job_id not in self._lost:
                raise DuplicateJobError(job_id)
            self._runner[job_id] = runner
        try:
            share = runner.prepare(job_id, work)
        except BaseException:
            with self._lock:
                self._forget(job_id)
            raise
        with self._lock:
            self._prepared.add(job_id)
            if share is not None:
                self._shares[job_id] = share

    @override
    def start(self, job_id: str) -> None:
        with self._lock:
            if job_id not in self._prepared:
                raise UnknownJobError(job_id)
            self._prepared.remove(job_id)
            self._lost.discard(job_id)
        if job_id in self._shares:
            _attempt(self._shares[job_id].write, _share_of(0.0))
        try:
            self._runner[job_id].start(job_id)
        except Exception as error:
            _log.exception("job not started", extra={"job": job_id})
            reason = f"it could not be started ({error!r}); this is a defect of slaq"
            self._journal.ended(job_id, Ending(state=JobState.FAILED, reason=reason))

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        if job_id in self._runner:
            _attempt(self._runner[job_id].end, job_id, state, reason)

    @override
    def kill(self, job_id: str) -> None:
        if job_id in self._runner:
            _attempt(self._runner[job_id].kill, job_id)

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        with self._lock:
            shares, runners = dict(self._shares), dict(self._runner)
        # Files first: a job that is let run finds what it holds.
        for job_id, file in shares.items():
            _attempt(file.write, _share_of(cores.get(job_id, 0.0)))
        for runner in self._runners.values():
            mine = {job_id: held for job_id, held in cores.items() if runners.get(job_id) is runner}
            # What nobody was granted, nobody can use, or may.
            _attempt(runner.grant, mine, sum(mine.values()))

    @override
    def poll(self) -> Sequence[JournalEntry]:
        entries = self._journal.take()
        with self._lock:
            for entry in entries:
                if isinstance(entry.event, JobLost):
                    self._prepared.add(entry.event.job_id)
                    self._lost.add(entry.event.job_id)
                elif isinstance(entry.event, JobEnded):
                    self._forget(entry.event.job_id)
        return entries

    def _forget(self, job_id: str) -> None:
        self._runner.pop(job_id, None)
        self._shares.pop(job_id, None)
        self._prepared.discard(job_id)
        self._lost.discard(job_id)

    @override
    def close(self) -> None:
        for runner in self._runners.values():
            _attempt(runner.close)


def make_node(site: Site, journal: Journal) -> LocalNode:
    """Return a node that runs programs and commands."""
    programs = ProgramRunner(site, journal)
    commands = CommandRunner(journal, site.throttle, site.token, site.directory)
    commands.seats_taken = programs.leave_cores
    return LocalNode(site, journal, {ProgramJob: programs, CommandJob: commands})


def _attempt(act: Callable[..., None], *arguments: Any) -> None:
    try:
        act(*arguments)
    except Exception:
        _log.exception("node went on after an error", extra={"act": getattr(act, "__qualname__", "")})


def _share_of(cores: float) -> Share:
    return Share(cores=cores, workers=cores)
