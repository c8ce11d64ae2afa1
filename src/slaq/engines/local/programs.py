"""The runner of program jobs: one thread, the dispatcher, hears all their processes and hands out free cores."""

import math
import os
import selectors
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.job import JobSpec, JobState
from slaq.engines.files import job_directory, open_log
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, Runner
from slaq.engines.local import turns
from slaq.engines.local.claims import Claims
from slaq.engines.local.crew import Crew
from slaq.engines.local.inbox import Inbox
from slaq.engines.local.jobs import Jobs
from slaq.engines.local.nursery import Nursery
from slaq.engines.local.orders import ProgramJob
from slaq.engines.local.runs import Run, Turn
from slaq.engines.local.shared import Segment, Segments

#: Seconds between two looks at limits and at drivers that hold a core.
TICK = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and how programs run."""

    cores: int
    units_per_core: int
    epoch_seconds: float
    directory: Path
    #: Modules loaded before anything is forked, so that all share their memory.
    preload: Sequence[str] = ()
    #: Whether the directory is to vanish with the process that made it, however that ends.
    temporary: bool = False
    #: Seconds a program has to end by itself once it was told to.
    grace_seconds: float = 5.0


class Programs(Runner[ProgramJob]):
    """Runs program jobs: a driver each, and their tasks on as many workers as there are cores.

    All state belongs to the dispatcher's thread; other threads only leave orders for it.
    """

    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._journal = journal
        self._segments = Segments()
        self._prepared: dict[str, tuple[ProgramJob, Segment]] = {}
        self._count = 0
        self._next_tick = 0.0
        self._selector = selectors.DefaultSelector()
        self._inbox = Inbox(self._selector)
        self._closed = False
        site.directory.mkdir(parents=True, exist_ok=True)
        with (site.directory / "engine.log").open("ab") as log:
            self._nursery = Nursery(
                self._selector,
                log=log,
                preload=site.preload,
                temporary=site.directory if site.temporary else None,
                died=self._zygote_died,
            )
        self._crew = Crew(self._nursery, site.cores, time.monotonic)
        self._jobs = Jobs(self._nursery, self._crew, self._segments, journal, site.grace_seconds)
        self._claims = Claims(self._jobs.runs, site.cores, site.units_per_core, site.epoch_seconds)
        self._thread = threading.Thread(target=self._dispatch, name="slaq-dispatcher", daemon=True)
        self._thread.start()

    @override
    def prepare(self, job_id: str, job: ProgramJob) -> None:
        if job_id in self._prepared or job_id in self._jobs.runs:
            raise DuplicateJobError(job_id)
        self._prepared[job_id] = (job, self._segments.take(job.data))

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        try:
            job, segment = self._prepared.pop(spec.id)
        except KeyError:
            raise UnknownJobError(spec.id) from None
        directory = self.directory(spec.id)
        try:
            log = open_log(directory, checkpoint)
        except OSError as error:
            self._segments.leave(segment)
            reason = f"its directory cannot be written: {error}"
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))
            return
        self._count += 1
        run = Run(
            number=self._count,
            job_id=spec.id,
            job=job,
            segment=segment,
            directory=directory,
            log=log,
            reported_at=time.monotonic(),
        )
        if not self._inbox.leave(partial(self._jobs.start, run)):
            # Its data went with all that was prepared.
            os.close(log)
            reason = self._jobs.broken or SHUT_DOWN
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))

    @override
    def stop(self, job_id: str) -> None:
        self._inbox.leave(partial(self._jobs.end, job_id, JobState.CANCELLED, "stopped on request"))

    @override
    def finish(self, job_id: str, reason: str) -> None:
        self._inbox.leave(partial(self._jobs.end, job_id, JobState.COMPLETED, reason))

    @override
    def grant(self, units: Mapping[str, int]) -> None:
        self._inbox.leave(partial(self._grant, dict(units)))

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.ring()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def directory(self, job_id: str) -> Path:
        """Return where a job's files are."""
        return job_directory(self._site.directory, job_id)

    # The loop.

    def _dispatch(self) -> None:
        runs, kept_until = self._jobs.runs, math.inf
        try:
            while not self._closed:
                due = min(self._next_tick, kept_until)
                wait = max(due - time.monotonic(), 0.0) if runs else None
                for key, events in self._selector.select(wait):
                    key.data(events)
                if runs and time.monotonic() >= self._next_tick:
                    self._tick()
                kept_until = self._fill()
        except BaseException as error:
            self._jobs.broken = f"the dispatcher failed ({error!r}); this is a defect of slaq"
            raise
        finally:
            self._shut()

    def _shut(self) -> None:
        """End everything, jobs whose start is still to be ordered included."""
        self._inbox.finish()
        self._jobs.drop()
        self._nursery.close()
        for _, segment in self._prepared.values():
            self._segments.leave(segment)
        self._selector.close()
        self._inbox.close()

    def _fill(self) -> float:
        """Give every free core to who has the best claim to it; return until when at most one is kept free."""
        runs = self._jobs.runs
        if not runs:
            return math.inf
        now = time.monotonic()
        seated = sum(run.seated for run in runs.values())
        while True:
            # A driver that holds a core takes the place of a worker.
            free = self._crew.idle > seated
            spare = None if free else self._crew.spare()
            if not free and spare is None:
                return math.inf
            # Of few tasks none is given ahead: each goes to who is idle first.
            run, kept_until = self._claims.choose(now, least=0 if free else self._crew.size)
            if run is None:
                return kept_until
            if run.turn is Turn.WAITS:
                turns.let_go(run, seated=True)
                seated += 1
            else:
                self._crew.assign(run, spare)

    def _tick(self) -> None:
        """Look at all that time alone can change."""
        now = time.monotonic()
        self._next_tick = now + TICK
        self._crew.look(now, self._site.grace_seconds)
        self._claims.fill(now)
        self._jobs.look(now)
        self._claims.settle()

    def _grant(self, units: dict[str, int]) -> None:
        self._claims.grant(units, time.monotonic())

    def _zygote_died(self) -> None:
        self._jobs.broken = (
            f"the process that starts all others died; see {self._site.directory / 'engine.log'}, "
            "and make a new cluster"
        )
        self._crew.dissolve()
        self._jobs.drop()
