"""The worker processes: which are idle, which task each runs, and what happens when one dies."""

import contextlib
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slaq.engines.node.programs.fork_client import ForkClient, ForkedChild, Hooks
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.programs.program_run import ProgramRun, Task
from slaq.engines.node.wire import HangUpError, Head
from slaq.engines.processes import how_it_ended
from slaq.jobs import share

#: CPU seconds up to which a task is short: its worker is sent the next task ahead of time, to save a round trip.
#: A longer task would delay a job that has a better claim by then.
SHORT_TASK = 0.025


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One worker process."""

    child: ForkedChild
    #: The task that runs, perhaps the next one, and when the first of them began.
    tasks: deque[Task] = field(default_factory=deque)
    since: float = 0.0
    #: The call it was last sent of each job, by the job's number: (restart, map).
    knows: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Why it is being killed; empty where it is not.
    condemned: str = ""


class WorkerPool:
    """As many workers as there are cores; a worker that dies is replaced."""

    def __init__(self, forks: ForkClient, size: int, clock: Callable[[], float]) -> None:
        self._forks = forks
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
        """Return a worker that runs a short task and has no next one; None where there is none."""
        for worker in self._workers:
            if len(worker.tasks) == 1 and worker.tasks[0].run.bucket.cost < SHORT_TASK:
                return worker
        return None

    def assign(self, run: ProgramRun, worker: Worker | None = None) -> None:
        """Send the next task of a job's map to a worker; by default to an idle one, if possible with the call."""
        call = (run.driver.restarts, run.map.number)
        if worker is None:
            place = next((i for i, w in enumerate(self._idle) if w.knows.get(run.number) == call), -1)
            worker = self._idle.pop(place)
            worker.since = self._clock()
        peer = worker.child.peer
        index = run.map.queue.popleft()
        if run.number not in worker.knows:
            layout = {
                "layout": pickle.dumps(run.segment.layout),
                "partitions": run.job.data.count(run.job.partitions),
                "memory": run.job.memory,
                "share": str(run.directory / share.FILE),
            }
            peer.send(
                Head(MessageKind.ATTACH, a=run.number), [pickle.dumps(layout)], (run.log, run.segment.file)
            )
        if worker.knows.get(run.number) != call:
            worker.knows[run.number] = call
            peer.send(Head(MessageKind.CALL, a=run.number, b=run.map.number), [run.map.call], more=True)
        peer.send(Head(MessageKind.TASK, a=run.number, b=run.map.number, c=index))
        worker.tasks.append(Task(run=run, restarts=run.driver.restarts, map=run.map.number, index=index))
        run.bucket.running += 1

    def detach(self, run: ProgramRun) -> None:
        """Make the workers forget a job; a worker that runs one of its tasks forgets it afterwards."""
        for worker in self._workers:
            self._detach(worker, run)

    def look(self, now: float, grace: float) -> None:
        """Kill workers whose task exceeds its time, or whose job has ended."""
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
        """Drop all workers: the fork server is gone, so that none can be replaced."""
        for worker in self._workers:
            worker.child.peer.close()
        self._workers.clear()
        self._idle.clear()

    def _condemn(self, worker: Worker, reason: str) -> None:
        worker.condemned = reason
        self._forks.kill(worker.child)

    def _hire(self) -> None:
        """Start a worker."""
        worker: Worker
        # Called only after `worker` is bound.
        hooks = Hooks(
            forked=lambda: self._idle.append(worker),
            ready=lambda: self._ready(worker),
            exited=lambda status: self._exited(worker, status),
        )
        worker = Worker(child=self._forks.fork(hooks, is_driver=False))
        self._workers.append(worker)

    def _ready(self, worker: Worker) -> None:
        message = self._forks.hear(worker.child)
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
            task.run.task_done(task, head, payload)

    def _detach(self, worker: Worker, run: ProgramRun) -> None:
        if run.number in worker.knows and all(task.run is not run for task in worker.tasks):
            del worker.knows[run.number]
            worker.child.peer.send(Head(MessageKind.DETACH, a=run.number))

    def _exited(self, worker: Worker, status: int) -> None:
        # Results that it sent before it died still count.
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
                # This task had not begun.
                task.run.task_returned(task)
            elif worker.condemned:
                task.run.task_failed(task, worker.condemned)
            else:
                task.run.task_lost(task, how_it_ended(status))
