"""Ends jobs on Spark: by what their threads raised, or by force."""

import contextlib
import ctypes
import threading
import traceback

from slaq.core.job import JobState
from slaq.engines import checkpoints
from slaq.engines.journal import Ending
from slaq.engines.packing import unpack
from slaq.engines.spark.application import Application
from slaq.engines.spark.runs import SparkRun
from slaq.jobs.context import Cancelled

STOPPED = "the Spark session was stopped"
#: Seconds between two attempts to cancel the Spark jobs of a job that is to end.
AGAIN = 0.5


def ending_of(run: SparkRun, error: BaseException, *, stopped: bool) -> Ending:
    """Return the ending of a job whose work raised; a job that was asked to end has not failed."""
    if run.ending is None and isinstance(error, Cancelled):
        run.ending, run.reason = JobState.COMPLETED, str(error)
    if run.ending is not None:
        kept = None
        if run.ending is JobState.COMPLETED:
            with contextlib.suppress(OSError, ValueError):
                kept = unpack(checkpoints.read(run.directory / checkpoints.FILE).state)
        return Ending(state=run.ending, reason=run.reason, result=kept)
    if stopped:
        return Ending(state=JobState.FAILED, reason=STOPPED)
    run.note("".join(traceback.format_exception(error)))
    last = traceback.format_exception_only(error)[0].strip().splitlines()[0]
    return Ending(state=JobState.FAILED, reason=f"its work raised {last}", error=error)


def press(run: SparkRun, application: Application, grace: float, now: float) -> bool:
    """Cancel the Spark jobs of a job that was told to end and has not, then interrupt its thread.

    Returns whether that did not help for long enough to give it up.
    """
    waited = now - run.ending_at
    patience = grace if run.ending is JobState.COMPLETED and run.ends_itself else 0.0
    if waited > patience and now - run.cancelled_at > AGAIN:
        run.cancelled_at = now
        application.cancel(run.pool.name)
    if waited > grace and not run.interrupted and run.thread is not None:
        run.interrupted = True
        _interrupt(run.thread)
        return False
    return waited > 2 * grace


def _interrupt(thread: threading.Thread) -> None:
    """Raise `Cancelled` in a thread that runs Python code without a look at `ctx.stopping`."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Cancelled))
