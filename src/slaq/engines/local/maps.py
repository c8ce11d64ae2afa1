"""A driver's maps: results on their way back to it, and tasks that are run again or given up."""

import logging

from slaq.engines.local import turns
from slaq.engines.local.runs import Run, Task, Turn
from slaq.engines.local.wire import FAILED, NOTHING, Head, Kind

#: Bytes from which a result is passed on without waiting for the others of its map.
LARGE = 1 << 16
#: How often a task may lose its worker.
ATTEMPTS = 3

_log = logging.getLogger(__name__)


def begin(run: Run, number: int, call: memoryview) -> None:
    """Have a task queued for each partition."""
    run.turn = Turn.MAPS
    run.map, run.call = number, call
    count = run.job.data.count(run.job.partitions)
    run.missing = set(range(count))
    run.lost.clear()
    if run.ending is None:
        run.queue.extend(range(count))


def done(task: Task, head: Head, payload: memoryview) -> None:
    """Pass on what a task returned or raised; the driver goes on after the last one, or the first error."""
    run = task.run
    if not task.missed or run.driver is None:
        return
    run.missing.discard(task.index)
    result = Head(Kind.RESULT, head.flag, b=task.map, c=task.index, x=run.bucket.cores)
    raised = head.flag == FAILED
    last = not run.missing and not raised
    at_once = last and turns.goes_on_at_once(run)
    # The driver is woken once for all small results of a map; large ones are sent while others are made.
    more = at_once if last else not raised and len(payload) < LARGE
    run.driver.peer.send(result, [payload], more=more)
    if raised:
        _abandon(run)
    elif last:
        run.call = NOTHING
        if at_once:
            turns.let_go(run, seated=False)
        else:
            run.turn = Turn.WAITS


def lost(task: Task, how: str) -> None:
    """Run a task again whose worker died, unless it seems to be the task that kills them."""
    run = task.run
    count = run.lost[task.index] = run.lost.get(task.index, 0) + 1
    if count >= ATTEMPTS:
        failed(task, f"its worker {how}, {count} times in a row")
    else:
        _log.warning("task retried", extra={"job": run.job_id, "partition": task.index, "attempt": count})
        returned(task)


def returned(task: Task) -> None:
    """Queue a task again that was not begun or not ended."""
    if task.missed and task.run.ended_at is None and task.run.ending is None:
        task.run.queue.appendleft(task.index)


def failed(task: Task, reason: str) -> None:
    """Tell the driver that a task cannot be run."""
    run = task.run
    if task.missed and run.ended_at is None and run.driver is not None:
        run.driver.peer.send(Head(Kind.LOST, b=task.map, c=task.index), [reason.encode()])
        _abandon(run)


def _abandon(run: Run) -> None:
    """Let the driver go on with an error."""
    run.queue.clear()
    run.missing.clear()
    turns.begin(run)
