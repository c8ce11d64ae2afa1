"""The workers: who is idle, who runs what, and what becomes of a task whose worker dies."""

import contextlib
import pickle
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slaq.engines.local import maps
from slaq.engines.local.nursery import Child, Hooks, Nursery
from slaq.engines.local.runs import Run, Task
from slaq.engines.local.wire import HangUpError, Head, Kind

#: CPU seconds up to which a worker is given its next task before it has done the one before, so that it need
#: not wait for it; a longer task would hold back whoever has a better claim by then.
SHORT_TASK = 0.025


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One worker process."""

    child: Child
    #: The task it runs, since when, and perhaps the one after it.
    tasks: deque[Task] = field(default_factory=deque)
    since: float = 0.0
    #: The call of each job that it knows, by the job's number: of which restart and map.
    knows: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Why it is being killed, where it is.
    condemned: str = ""


class Crew:
    """As many workers as there are cores; one that dies is replaced."""

    def __init__(self, nursery: Nursery, size: int, clock: Callable[[], float]) -> None:
        self._nursery = nursery
        self._clock = clock
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        for _ in range(size):
            self._hire()

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    @property
    def idle(self) -> int:
        """How many workers have nothing to do."""
        return len(self._idle)

    def spare(self) -> Worker | None:
        """Return a worker that is in a short task and has none to follow it."""
        for worker in self._workers:
            if len(worker.tasks) == 1 and worker.tasks[0].run.bucket.cost < SHORT_TASK:
                return worker
        return None

    def assign(self, run: Run, worker: Worker | None = None) -> None:
        """Have the next task of a job's map run by a worker; by an idle one that knows the call, if any."""
        call = (run.restarts, run.map)
        if worker is None:
            place = next((i for i, w in enumerate(self._idle) if w.knows.get(run.number) == call), -1)
            worker = self._idle.pop(place)
            worker.since = self._clock()
        peer = worker.child.peer
        index = run.queue.popleft()
        if run.number not in worker.knows:
            layout = {
                "layout": pickle.dumps(run.segment.layout),
                "partitions": run.job.data.count(run.job.partitions),
                "memory_limit": run.job.memory_limit,
            }
            peer.send(Head(Kind.ATTACH, a=run.number), [pickle.dumps(layout)], (run.log, run.segment.file))
        if worker.knows.get(run.number) != call:
            worker.knows[run.number] = call
            peer.send(Head(Kind.CALL, a=run.number, b=run.map), [run.call], more=True)
        peer.send(Head(Kind.TASK, a=run.number, b=run.map, c=index))
        worker.tasks.append(Task(run=run, restarts=run.restarts, map=run.map, index=index))
        run.bucket.running += 1

    def detach(self, run: Run) -> None:
        """Have the workers forget a job, those that are in its tasks once they are out of them."""
        for worker in self._workers:
            self._detach(worker, run)

    def look(self, now: float, grace: float) -> None:
        """Kill workers whose task takes longer than it may, or than its job lived."""
        for worker in self._workers:
            if not worker.tasks or worker.condemned:
                continue
            run = worker.tasks[0].run
            limit = run.job.task_timeout
            if limit is not None and now - worker.since > limit:
                self._condemn(worker, f"it took longer than {limit:g} seconds (the job's task_timeout)")
            elif run.ended_at is not None and now - run.ended_at > grace:
                self._condemn(worker, "its job has ended")

    def dissolve(self) -> None:
        """Give up all workers: nobody can replace them any more."""
        for worker in self._workers:
            worker.child.peer.close()
        self._workers.clear()
        self._idle.clear()

    def _condemn(self, worker: Worker, reason: str) -> None:
        worker.condemned = reason
        self._nursery.kill(worker.child)

    def _hire(self) -> None:
        """Have a worker forked."""
        worker: Worker
        # They are called only once the worker is known by that name.
        hooks = Hooks(
            forked=lambda: self._idle.append(worker),
            ready=lambda: self._ready(worker),
            exited=lambda status: self._exited(worker, status),
        )
        worker = Worker(child=self._nursery.fork(hooks, is_driver=False))
        self._workers.append(worker)

    def _ready(self, worker: Worker) -> None:
        peer = worker.child.peer
        try:
            message = peer.receive()
        except HangUpError:
            # How it died is told by the zygote.
            peer.close()
            self._nursery.kill(worker.child)
            return
        if message is not None:
            self._done(worker, message.head, message.payload)

    def _done(self, worker: Worker, head: Head, payload: memoryview) -> None:
        task = worker.tasks.popleft()
        worker.since = self._clock()
        if not worker.tasks:
            self._idle.append(worker)
        bucket = task.run.bucket
        bucket.running -= 1
        bucket.learn(head.x)
        task.run.pay(head.x)
        if task.run.ended_at is not None:
            self._detach(worker, task.run)
        else:
            maps.done(task, head, payload)

    def _detach(self, worker: Worker, run: Run) -> None:
        if run.number in worker.knows and all(task.run is not run for task in worker.tasks):
            del worker.knows[run.number]
            worker.child.peer.send(Head(Kind.DETACH, a=run.number))

    def _exited(self, worker: Worker, status: int) -> None:
        # What it said before it died still counts.
        with contextlib.suppress(HangUpError):
            while worker.tasks and (message := worker.child.peer.receive()) is not None:
                self._done(worker, message.head, message.payload)
        worker.child.peer.close()
        self._workers.remove(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self._hire()
        for place, task in enumerate(worker.tasks):
            task.run.bucket.running -= 1
            if place:
                # It had not begun.
                maps.returned(task)
            elif worker.condemned:
                maps.failed(task, worker.condemned)
            else:
                maps.lost(task, death(status))


def death(status: int) -> str:
    """Return in words how a process ended."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
