"""The program jobs that run now: what their drivers say, and how each job ends."""

import contextlib
import logging
import os
import pickle
import time
from functools import partial

from slaq.core.job import JobState
from slaq.engines import checkpoints
from slaq.engines.files import LOG, last_lines
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.node.programs.driver_handle import Turn
from slaq.engines.node.programs.fork_client import ForkClient, Hooks
from slaq.engines.node.programs.job_orders import orders_for
from slaq.engines.node.programs.messages import WAITS, MessageKind
from slaq.engines.node.programs.program_run import ProgramRun
from slaq.engines.node.programs.shared_data import Segments
from slaq.engines.node.programs.worker_pool import WorkerPool
from slaq.engines.node.reports import json_object, read_metrics
from slaq.engines.node.wire import HangUpError, Head, Message
from slaq.engines.packing import Packed
from slaq.engines.processes import how_it_ended
from slaq.jobs.demands import read_demand

_log = logging.getLogger(__name__)


class RunningJobs:
    """Has a driver for each job, starts again one that dies, and tells the journal what becomes of each job.

    A program that was told to end, and has not ended after the grace, is killed.
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
        #: Why no job can run any more, where that is so.
        self.broken = ""

    def start(self, run: ProgramRun) -> None:
        """Take a job on."""
        self.runs[run.job_id] = run
        if self.broken:
            self._conclude(run, Ending(state=JobState.FAILED, reason=self.broken))
        else:
            self._launch(run)

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """Tell a program to end, if it runs."""
        if job_id in self.runs:
            self._end(self.runs[job_id], state, reason)

    def look(self, now: float) -> None:
        """Look at all that time alone can change."""
        for run in list(self.runs.values()):
            driver = run.driver
            if driver.turn is Turn.RUNS:
                run.pay(driver.look(now))
            if driver.began_at is not None and (over := run.job.goal.overdue(now - driver.began_at)):
                self._end(run, JobState.COMPLETED, over)
            if now > run.deadline and driver.child is not None:
                run.deadline = float("inf")
                self._forks.kill(driver.child)

    def drop(self) -> None:
        """End every job at once: as failed where something of slaq broke, else as cancelled."""
        state = JobState.FAILED if self.broken else JobState.CANCELLED
        for run in list(self.runs.values()):
            self._conclude(run, Ending(state=state, reason=self.broken or SHUT_DOWN))

    def _launch(self, run: ProgramRun) -> None:
        """Have a driver forked and send it its orders."""
        hooks = Hooks(
            forked=partial(self._driver_forked, run),
            ready=partial(self._driver_ready, run),
            exited=partial(self._driver_exited, run),
        )
        run.driver.attach(self._forks.fork(hooks, is_driver=True))
        orders = pickle.dumps(orders_for(run.job, run.directory))
        run.driver.send(Head(MessageKind.BEGIN), [orders], (run.log,))
        run.map.drop()
        run.map.number = 0

    def _end(self, run: ProgramRun, state: JobState, reason: str) -> None:
        """Tell a program to end; a cancellation overrides a completion."""
        if run.ending is state or run.ending is JobState.CANCELLED:
            return
        run.ending, run.reason = state, reason
        run.deadline = min(run.deadline, time.monotonic() + self._grace_seconds)
        run.map.queue.clear()
        run.driver.send(Head(MessageKind.END), [reason.encode()])

    def _conclude(self, run: ProgramRun, ending: Ending) -> None:
        """Forget a job, and tell its end."""
        del self.runs[run.job_id]
        run.ended_at = time.monotonic()
        run.map.drop()
        run.bucket.cores = 0.0
        self._workers.detach(run)
        os.close(run.log)
        self._segments.leave(run.segment)
        if run.driver.child is not None:
            self._forks.kill(run.driver.child)
        self._journal.ended(run.job_id, ending)

    # What the fork server tells of drivers.

    def _driver_forked(self, run: ProgramRun) -> None:
        if run.ended_at is None:
            run.driver.turn = Turn.WAITS

    def _driver_ready(self, run: ProgramRun) -> None:
        assert run.driver.child is not None
        message = self._forks.hear(run.driver.child)
        if message is not None and run.ended_at is None:
            self._driver_says(run, message)

    def _driver_says(self, run: ProgramRun, message: Message) -> None:
        head, payload = message
        run.pay(run.driver.account(head.x))
        if head.kind == MessageKind.MAP:
            run.begin_map(head.b, payload)
        elif head.kind == MessageKind.REPORT:
            self._report(run, head, payload)
        elif head.kind == MessageKind.ANNOUNCE:
            self._journal.learning_rate_changed(run.job_id, head.y)
        elif head.kind == MessageKind.CAN_USE:
            self._hear_demand(run, payload)
        elif head.kind == MessageKind.RETURNED:
            state = run.ending or JobState.COMPLETED
            self._conclude(run, Ending(state=state, reason=run.reason, result=Packed(payload)))
        elif head.kind == MessageKind.RAISED:
            # The last line of its traceback.
            (last,) = last_lines(run.directory / LOG).splitlines()[-1:] or ["an error"]
            reason = f"its program raised {last}"
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason, error=Packed(payload)))
        elif head.kind == MessageKind.LEFT:
            run.reason = run.reason or str(payload, "utf-8")
            self._leave(run)

    def _report(self, run: ProgramRun, head: Head, payload: memoryview) -> None:
        observation = run.observe(head.c, head.y)
        if observation is not None:
            metrics = read_metrics(json_object(bytes(payload))) if payload else {}
            self._journal.observed(run.job_id, observation, metrics)
        if head.flag == WAITS:
            run.driver.rest(Turn.WAITS)

    def _hear_demand(self, run: ProgramRun, payload: memoryview) -> None:
        demand = read_demand(json_object(bytes(payload)).get("can_use"))
        # A job that says the same again says nothing new.
        if demand is not None and demand != run.demand:
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
        peer = driver.child.peer
        with contextlib.suppress(HangUpError, OSError):
            while run.ended_at is None and (message := peer.receive()) is not None:
                self._driver_says(run, message)
        peer.close()
        driver.detach()
        if run.ended_at is not None:
            return
        if run.ending is not None:
            self._leave(run)
        elif driver.restarts < run.job.max_restarts:
            driver.restarts += 1
            _log.warning(
                "driver restarted",
                extra={"job": run.job_id, "died": how_it_ended(status), "restart": driver.restarts},
            )
            self._launch(run)
        else:
            again = f" after {driver.restarts} restarts" if driver.restarts else ""
            printed = last_lines(run.directory / LOG) or "(nothing was printed)"
            reason = f"its driver was lost ({how_it_ended(status)}){again}; the end of its log: {printed}"
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason))
