"""Turns what fits log into losses of jobs: one fit of a job is followed at a time, each as a curve of its own."""

import contextlib
import threading
import time
from collections.abc import Callable

from slaq.core.job import JobState
from slaq.engines.spark.losses import REPORTING, FitBegan, FitOver, LossLogged, read_line
from slaq.engines.spark.runs import SparkRun
from slaq.engines.spark.stepwise import Step
from slaq.jobs.context import Cancelled


class LossTracker:
    """Handles log lines and losses in the threads that fit, and blocks a thread while its job has to wait."""

    def __init__(self, run_here: Callable[[], SparkRun | None]) -> None:
        #: Returns the job that this thread works for, if any.
        self._run_here = run_here

    def line(self, text: str) -> None:
        """Handle a log line."""
        told = read_line(text)
        run = self._run_here() if told is not None else None
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
        elif isinstance(told, LossLogged):
            self._loss(run, thread, told)
            # A fit cannot be ended from here: its next Spark job is cancelled.
            with contextlib.suppress(Cancelled):
                run.pass_gate()

    def stepper(self) -> Step | None:
        """Return the callback for the losses of a fit that runs step by step in this thread; None outside a job."""
        run = self._run_here()
        if run is None:
            return None
        thread = threading.current_thread()
        run.begun.add(thread)
        run.ends_itself = True

        def step(loss: float) -> bool:
            self._loss(run, thread, LossLogged(loss))
            with contextlib.suppress(Cancelled):
                run.pass_gate()
            if run.ending is JobState.CANCELLED:
                raise Cancelled(run.reason)
            return run.ending is None

        return step

    def _loss(self, run: SparkRun, thread: threading.Thread, told: LossLogged) -> None:
        if not run.follows(thread, time.monotonic()):
            return
        first = thread in run.begun
        if (first or run.followed is not thread) and run.iteration >= 0:
            run.journal.curve_began(run.job_id)
        losses = [told.before, told.loss] if first and told.before is not None else [told.loss]
        for loss in losses:
            run.take_loss(loss)
        # Afterwards, because the job would count as silent in between.
        run.begun.discard(thread)
