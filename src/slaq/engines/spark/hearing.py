"""From what fits tell to losses of jobs: one fit of a job is followed at a time, each as a curve of its own."""

import contextlib
import threading
import time
from typing import Protocol

from slaq.core.job import JobState
from slaq.engines.spark.losses import REPORTING, FitBegan, FitOver, LossTold, read_line
from slaq.engines.spark.runs import Run
from slaq.engines.spark.stepwise import Step
from slaq.jobs.context import Cancelled


class Jobs(Protocol):
    """What is asked of the engine for the job that a thread works for."""

    def run_here(self) -> Run | None:
        """Return the job that this thread works for, if any."""
        ...

    def observe(self, run: Run, loss: float) -> None:
        """Note a loss, and end the job if that is enough."""
        ...

    def begin_curve(self, run: Run) -> None:
        """Note that the next loss is the first of another curve."""
        ...

    def pass_gate(self, run: Run) -> None:
        """Wait until the job may go on; raises `Cancelled` if it is to end."""
        ...


class Hearing:
    """Is told log lines and losses in the threads that fit; a job that is to wait waits in there."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def line(self, text: str) -> None:
        """Take in a log line."""
        told = read_line(text)
        run = self._jobs.run_here() if told is not None else None
        if run is None:
            return
        thread = threading.current_thread()
        run.ends_itself = False
        if isinstance(told, FitBegan):
            run.begun.add(thread)
            run.tells = told.estimator in REPORTING
        elif isinstance(told, FitOver):
            run.begun.discard(thread)
            if run.followed is thread:
                run.followed = None
        elif isinstance(told, LossTold):
            self._loss(run, thread, told)
            # A fit cannot be ended from here: its next Spark job is cancelled.
            with contextlib.suppress(Cancelled):
                self._jobs.pass_gate(run)

    def stepper(self) -> Step | None:
        """Return what a fit that is run step by step reports to in this thread; None outside a job."""
        run = self._jobs.run_here()
        if run is None:
            return None
        thread = threading.current_thread()
        run.begun.add(thread)
        run.ends_itself = True

        def step(loss: float) -> bool:
            self._loss(run, thread, LossTold(loss))
            with contextlib.suppress(Cancelled):
                self._jobs.pass_gate(run)
            if run.ending is JobState.CANCELLED:
                raise Cancelled(run.reason)
            return run.ending is None

        return step

    def _loss(self, run: Run, thread: threading.Thread, told: LossTold) -> None:
        if not run.follows(thread, time.monotonic()):
            return
        first = thread in run.begun
        if (first or run.followed is not thread) and run.iteration >= 0:
            self._jobs.begin_curve(run)
        losses = [told.before, told.loss] if first and told.before is not None else [told.loss]
        for loss in losses:
            self._jobs.observe(run, loss)
        # Not before, or it would count as silent in between.
        run.begun.discard(thread)
