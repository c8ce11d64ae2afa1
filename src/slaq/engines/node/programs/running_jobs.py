"""The program jobs that run now: what their drivers say, and how each job ends."""

import contextlib
import logging
import math
import os
import pickle
import time
from collections.abc import Callable
from functools import partial

from slaq.core.demand import Demand
from slaq.core.job import JobState
from slaq.engines import checkpoints
from slaq.engines.files import LOG, last_lines, open_log
from slaq.engines.journal import Ending, Journal
from slaq.engines.node.programs.driver_handle import Turn
from slaq.engines.node.programs.driver_messages import (
    DemandTold,
    Left,
    LossTold,
    MapBegun,
    Raised,
    RateTold,
    Returned,
    Said,
    TotalTold,
    read_driver_message,
)
from slaq.engines.node.programs.fork_client import ForkClient, Hooks
from slaq.engines.node.programs.job_orders import orders_for
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.programs.program_run import NO_LOG, ProgramRun
from slaq.engines.node.programs.shared_data import Segments
from slaq.engines.node.programs.worker_pool import WorkerPool
from slaq.engines.node.wire import HangUpError, Head, MalformedError, Message
from slaq.engines.packing import Packed
from slaq.engines.processes import how_it_ended

#: Seconds until a driver is asked for again for which the system had no process or no descriptor.
AGAIN = 0.5
#: The hooks of a driver that nobody listens to any more.
UNHEARD = Hooks(forked=lambda: None, ready=lambda: None, exited=lambda _: None)

_log = logging.getLogger(__name__)


class RunningJobs:
    """Keeps a driver for each job, restarts a driver that dies, and records each job's events in the journal.

    A program that was told to end, and has not ended after the grace, is killed. Whatever goes wrong with one
    job, because of what its driver sent or otherwise, ends that job as failed and no other.
    """

    def __init__(
        self,
        forks: ForkClient,
        workers: WorkerPool,
        segments: Segments,
        journal: Journal,
        grace_seconds: float,
    ) -> None:
        self._forks = forks
        self._workers = workers
        self._segments = segments
        self._journal = journal
        self._grace_seconds = grace_seconds
        #: By the job's id.
        self.runs: dict[str, ProgramRun] = {}
        #: Counts the losses that were not known before, and the jobs that have ended.
        self.progress = 0

    def start(self, run: ProgramRun) -> None:
        """Add a job; its driver starts at once if there is a fork server, else at a later `look`."""
        self.runs[run.job_id] = run
        self._confined(run, self._launch)

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """Tell a program to end, if it runs."""
        if job_id in self.runs:
            self._confined(self.runs[job_id], self._end, state, reason)

    def kill(self, job_id: str) -> None:
        """Kill a program at the next look that was told to end."""
        run = self.runs.get(job_id)
        if run is not None and run.ending is not None:
            run.deadline = min(run.deadline, time.monotonic())

    def look(self, now: float) -> None:
        """Handle everything that depends on time alone."""
        for run in list(self.runs.values()):
            self._confined(run, self._look, now)

    def drop(self, state: JobState, reason: str) -> None:
        """End every job at once."""
        for run in list(self.runs.values()):
            self._confined(run, self._conclude, Ending(state=state, reason=reason))

    def lose_drivers(self) -> None:
        """Mark every driver as lost through no fault of its own: `look` starts them again.

        What a driver sent before its end still counts. A program that had been told to end has ended.
        """
        for run in list(self.runs.values()):
            self._confined(run, self._lose_driver)

    def _confined(self, run: ProgramRun, act: Callable[..., None], *arguments: object) -> None:
        """Act for one job; an error ends that job and no other."""
        try:
            act(run, *arguments)
        except Exception as error:
            self.give_up(run, error)

    def _look(self, run: ProgramRun, now: float) -> None:
        driver = run.driver
        if driver.child is None and now >= run.launch_at:
            self._launch(run)
        if driver.turn is Turn.RUNS:
            run.pay(driver.look(now))
        self._tell_usage(run, now)
        if driver.began_at is not None and (over := run.job.goal.overdue(now - driver.began_at)):
            self._end(run, JobState.COMPLETED, over)
        if now > run.deadline:
            run.deadline = float("inf")
            if driver.child is None:
                self._leave(run)
            else:
                self._forks.kill(driver.child)

    def _launch(self, run: ProgramRun) -> None:
        """Have a driver forked and send it its orders; where the system refuses, the next `look` tries again."""
        if not self._forks.alive:
            return
        hooks = Hooks(
            forked=partial(self._confined, run, self._driver_forked),
            ready=partial(self._confined, run, self._driver_ready),
            exited=partial(self._confined, run, self._driver_exited),
        )
        orders = pickle.dumps(orders_for(run.job, run.directory))
        try:
            if run.log == NO_LOG:
                run.log = open_log(run.directory, run.job.checkpoint)
            child = self._forks.fork(hooks, is_driver=True)
        except OSError as error:
            self._put_off(run, str(error))
            return
        try:
            child.peer.send(Head(MessageKind.BEGIN), [orders], (run.log,))
        except OSError as error:
            # A driver without orders ends as soon as it is hung up on.
            child.hooks = UNHEARD
            child.peer.close()
            self._put_off(run, str(error))
            return
        run.driver.attach(child)
        run.map.drop()
        run.map.number = 0

    def _tell_usage(self, run: ProgramRun, now: float) -> None:
        """Tell the CPU time of a job, which may report no loss."""
        used = run.untold(now)
        if used is not None:
            self._journal.used(run.job_id, used)

    def _put_off(self, run: ProgramRun, reason: str) -> None:
        _log.warning("driver not started", extra={"job": run.job_id, "reason": reason})
        run.launch_at = time.monotonic() + AGAIN
        self._delay(run, reason)

    def _delay(self, run: ProgramRun, reason: str) -> None:
        """Tell why a job has no process yet, or that it has one, unless that was told before."""
        if reason != run.delayed:
            run.delayed = reason
            self._journal.delayed(run.job_id, reason)

    def _end(self, run: ProgramRun, state: JobState, reason: str) -> None:
        """Tell a program to end; a cancellation overrides a completion."""
        if run.ending is state or run.ending is JobState.CANCELLED:
            return
        run.ending, run.reason = state, reason
        run.deadline = min(run.deadline, time.monotonic() + self._grace_seconds)
        self._journal.ending(run.job_id, reason, self._grace_seconds)
        run.map.queue.clear()
        run.driver.send(Head(MessageKind.END), [reason.encode(errors="replace")])

    def give_up(self, run: ProgramRun, error: Exception) -> None:
        """End a job after an error: in the state that was asked for, else as failed."""
        if isinstance(error, MalformedError):
            reason = f"its driver sent {error}"
        else:
            _log.error("job given up", extra={"job": run.job_id}, exc_info=error)
            reason = f"slaq could not go on with it ({error!r}); this is a defect of slaq"
        if run.ended_at is None:
            if run.driver.child is not None:
                # No more is heard of it.
                run.driver.child.peer.close()
            ending = Ending(state=run.ending or JobState.FAILED, reason=run.reason or reason)
            self._conclude(run, ending)

    def _conclude(self, run: ProgramRun, ending: Ending) -> None:
        """Forget a job, and tell its end."""
        del self.runs[run.job_id]
        run.ended_at = time.monotonic()
        self.progress += 1
        try:
            run.map.drop()
            run.bucket.cores = 0.0
            self._workers.detach(run)
            if run.log != NO_LOG:
                os.close(run.log)
            self._segments.leave(run.segment)
            if run.driver.child is not None:
                self._forks.kill(run.driver.child)
            self._tell_usage(run, math.inf)
        finally:
            self._journal.ended(run.job_id, ending)

    # What the fork server tells of drivers.

    def _driver_forked(self, run: ProgramRun) -> None:
        if run.ended_at is None:
            run.driver.turn = Turn.WAITS
            self._delay(run, "")

    def _driver_ready(self, run: ProgramRun) -> None:
        assert run.driver.child is not None
        message = self._forks.hear(run.driver.child)
        if message is not None and run.ended_at is None:
            self._driver_says(run, message)

    def _driver_says(self, run: ProgramRun, message: Message) -> None:
        cpu, said = read_driver_message(message)
        run.pay(run.driver.account(cpu))
        if said is not None:
            self._take(run, said)
        if isinstance(said, LossTold) and said.waits:
            run.driver.rest(Turn.WAITS)

    def _take(self, run: ProgramRun, said: Said) -> None:
        if isinstance(said, MapBegun):
            run.begin_map(said.number, said.call)
        elif isinstance(said, LossTold):
            self._observe(run, said)
        elif isinstance(said, RateTold):
            self._journal.learning_rate_changed(run.job_id, said.learning_rate)
        elif isinstance(said, DemandTold):
            self._hear_demand(run, said.demand)
        elif isinstance(said, TotalTold):
            if said.iterations != run.total:
                run.total = said.iterations
                self._journal.end_foreseen(run.job_id, said.iterations)
        elif isinstance(said, Returned):
            state = run.ending or JobState.COMPLETED
            self._conclude(run, Ending(state=state, reason=run.reason, result=Packed(said.value)))
        elif isinstance(said, Raised):
            # The last line of its traceback.
            (last,) = last_lines(run.directory / LOG).splitlines()[-1:] or ["an error"]
            reason = f"its program raised {last}"
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason, error=Packed(said.error)))
        elif isinstance(said, Left):
            run.reason = run.reason or said.reason
            self._leave(run)

    def _observe(self, run: ProgramRun, said: LossTold) -> None:
        observation = run.observe(said.iteration, said.loss)
        if observation is not None:
            self.progress += 1
            self._journal.observed(run.job_id, observation, said.metrics)

    def _hear_demand(self, run: ProgramRun, demand: Demand) -> None:
        # A job that says the same again says nothing new.
        if demand != run.demand:
            run.demand = demand
            self._journal.demand_changed(run.job_id, demand)

    def _leave(self, run: ProgramRun) -> None:
        """Conclude a job whose program ended as it was told to, or was killed for not doing so."""
        state = run.ending or JobState.COMPLETED
        result = None
        if state is JobState.COMPLETED:
            with contextlib.suppress(OSError, ValueError):
                result = Packed(checkpoints.read(run.directory / checkpoints.FILE).state)
        self._conclude(run, Ending(state=state, reason=run.reason, result=result))

    def _driver_exited(self, run: ProgramRun, status: int) -> None:
        driver = run.driver
        assert driver.child is not None
        existed = driver.child.pid > 0
        self._detach(run)
        if run.ended_at is not None:
            return
        if run.ending is not None:
            self._leave(run)
        elif not existed:
            self._put_off(run, os.strerror(status))
        elif driver.restarts < run.job.retry:
            driver.restarts += 1
            died = how_it_ended(status)
            _log.warning(
                "driver restarted", extra={"job": run.job_id, "died": died, "restart": driver.restarts}
            )
            self._journal.retried(run.job_id, died)
            self._launch(run)
        else:
            again = f" after {driver.restarts} restarts" if driver.restarts else ""
            printed = last_lines(run.directory / LOG) or "(nothing was printed)"
            reason = f"its driver was lost ({how_it_ended(status)}){again}; the end of its log: {printed}"
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason))

    def _lose_driver(self, run: ProgramRun) -> None:
        self._detach(run)
        if run.ended_at is None and run.ending is not None:
            self._leave(run)

    def _detach(self, run: ProgramRun) -> None:
        """Drop a driver that has exited, once all its messages are read."""
        driver = run.driver
        if driver.child is None:
            return
        peer = driver.child.peer
        try:
            with contextlib.suppress(HangUpError):
                while run.ended_at is None and (message := peer.receive()) is not None:
                    self._driver_says(run, message)
        finally:
            peer.close()
            run.map.drop()
            driver.detach()
