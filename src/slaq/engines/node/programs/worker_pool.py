"""The worker processes: which are idle, which task each runs, and what happens when one dies."""

import contextlib
import logging
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slaq.engines.node.programs.driver_messages import cpu_said
from slaq.engines.node.programs.fork_client import ForkClient, ForkedChild, Hooks
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.programs.program_run import ProgramRun, Task
from slaq.engines.node.wire import HangUpError, Head, MalformedError, Message
from slaq.engines.processes import how_it_ended
from slaq.jobs import share

#: CPU seconds up to which a task is short: its worker is sent the next task ahead of time, to save a round trip.
#: A longer task would delay a job that has a better claim by then.
SHORT_TASK = 0.025

#: Stands for the last call of a job that a worker was sent, where it was sent none.
NO_CALL = (0, 0)

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One worker process."""

    child: ForkedChild
    #: The task that runs, perhaps the next one, and when the first of them began.
    tasks: deque[Task] = field(default_factory=deque)
    since: float = 0.0
    #: The call it was last sent of each job, by the job's number: (driver, map).
    knows: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Why it is being killed; empty where it is not.
    condemned: str = ""
    #: How it spoiled its tasks before it was killed, where it did; they are run again, as if it had died of them.
    spoiled: str = ""


class WorkerPool:
    """As many workers as there are cores; `look` replaces those that are gone."""

    def __init__(self, forks: ForkClient, size: int, clock: Callable[[], float]) -> None:
        self._forks = forks
        self._clock = clock
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._wanted = size
        self.hire()

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
        """Send the next task of a job's map to a worker; by default to an idle one, if possible with the call.

        Raises OSError, with nothing changed, where there are too few descriptors to tell the worker of the job.
        """
        call = (run.driver.number, run.map.number)
        if worker is None:
            worker = next((w for w in self._idle if w.knows.get(run.number) == call), self._idle[-1])
        if run.number not in worker.knows:
            self._attach(worker, run)
        if not worker.tasks:
            self._idle.remove(worker)
            worker.since = self._clock()
        peer = worker.child.peer
        index = run.map.queue.popleft()
        if worker.knows.get(run.number) != call:
            worker.knows[run.number] = call
            peer.send(Head(MessageKind.CALL, a=run.number, b=run.map.number), [run.map.call], more=True)
        peer.send(Head(MessageKind.TASK, a=run.number, b=run.map.number, c=index))
        worker.tasks.append(Task(run=run, driver=run.driver.number, map=run.map.number, index=index))
        run.bucket.running += 1

    def detach(self, run: ProgramRun) -> None:
        """Make the workers forget a job; a worker that runs one of its tasks forgets it afterwards."""
        for worker in self._workers:
            self._detach(worker, run)

    def look(self, now: float, grace: float) -> None:
        """Kill workers whose task exceeds its time, or whose job has ended, and hire those that are missing."""
        self.hire()
        for worker in self._workers:
            if not worker.tasks or worker.condemned:
                continue
            run = worker.tasks[0].run
            limit = run.job.task_timeout
            if limit is not None and now - worker.since > limit:
                self._condemn(worker, f"it took longer than {limit:g} seconds (the job's task_timeout)")
            elif run.ended_at is not None and now - run.ended_at > grace:
                self._condemn(worker, "its job has ended")

    def hire(self) -> None:
        """Start the workers that are missing, as far as the system has descriptors for them."""
        while self._forks.alive and len(self._workers) < self._wanted:
            try:
                self._hire()
            except OSError as error:
                _log.warning("worker not started", extra={"reason": str(error)})
                return

    def dissolve(self) -> None:
        """Drop all workers: the fork server is gone, and they with it."""
        for worker in self._workers:
            worker.child.peer.close()
            for task in worker.tasks:
                task.run.bucket.running -= 1
        self._workers.clear()
        self._idle.clear()

    def _attach(self, worker: Worker, run: ProgramRun) -> None:
        """Tell a worker of a job: its data, its log, its limits."""
        layout = {
            "layout": pickle.dumps(run.segment.layout),
            "partitions": run.job.data.count(run.job.partitions),
            "memory": run.job.memory,
            "share": str(run.directory / share.FILE),
        }
        head, files = Head(MessageKind.ATTACH, a=run.number), (run.log, run.segment.file)
        worker.child.peer.send(head, [pickle.dumps(layout)], files)
        worker.knows[run.number] = NO_CALL

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
        try:
            message = self._forks.hear(worker.child)
            if message is not None:
                self._done(worker, message)
        except MalformedError as error:
            self._spoil(worker, error)
        if not worker.child.peer.open and worker in self._idle:
            self._idle.remove(worker)

    def _spoil(self, worker: Worker, error: MalformedError) -> None:
        """Kill a worker that sent nonsense: most likely the task that it runs wrote to its socket."""
        _log.warning("worker sent nonsense", extra={"found": str(error)})
        worker.child.peer.close()
        worker.spoiled = f"it sent {error}"
        self._forks.kill(worker.child)

    def _done(self, worker: Worker, message: Message) -> None:
        """Take in the answer to the first of a worker's tasks; raises MalformedError where it is none."""
        head, payload = message
        task = _answered(worker, head)
        worker.tasks.popleft()
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
        with contextlib.suppress(HangUpError, MalformedError):
            while worker.tasks and (message := worker.child.peer.receive()) is not None:
                self._done(worker, message)
        worker.child.peer.close()
        self._workers.remove(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.child.pid:
            self.hire()
        # Where the system had no process for it, the next look tries again.
        for place, task in enumerate(worker.tasks):
            task.run.bucket.running -= 1
            if place:
                # This task had not begun.
                task.run.task_returned(task)
            elif worker.condemned:
                task.run.task_failed(task, worker.condemned)
            else:
                task.run.task_lost(task, worker.spoiled or how_it_ended(status))


def _answered(worker: Worker, head: Head) -> Task:
    """Return the task that a message answers; raises MalformedError where it answers none."""
    task = worker.tasks[0] if worker.tasks else None
    if head.kind != MessageKind.DONE or task is None:
        raise MalformedError("an answer that nobody asked for")
    if (head.a, head.b, head.c) != (task.run.number, task.map, task.index):
        raise MalformedError("the answer of another task")
    cpu_said(head.x)
    return task
