"""Runs the commands: starts them, reads their losses, keeps count of their CPU time, ends their whole trees."""

import math
import os
import signal
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slaq.core.errors import LossSourceError
from slaq.core.job import Observation
from slaq.engines.processes.launch import Child, Setting, launch
from slaq.engines.processes.records import RunAs
from slaq.engines.processes.shares import Throttle
from slaq.engines.processes.sources import LossFile, LossPattern, LossSource, NewRate, Reading, Reported
from slaq.engines.processes.tree import ProcessTable, send

#: Seconds between two looks for new losses, and between two readings of everyone's CPU time.
READ_SECONDS, USAGE_SECONDS = 0.1, 0.2
#: Seconds between two looks at a tree that is being ended.
END_SECONDS = 0.01
#: Seconds after which a tree that was killed and is still there is given up (it waits for a broken disk).
ABANDON_SECONDS = 10.0
#: Seconds that are spent on the last output of a command that has ended.
LAST_WORDS_SECONDS = 2.0
#: How much of the output is kept to explain a failure.
TAIL_BYTES, TAIL_LINES = 4096, 20

#: What the warden sends and is sent: plain JSON objects.
Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A command to start, with everything settled."""

    #: Marks the tree, and is its name in messages.
    tree: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    log: str
    reports: str
    loss_pattern: str | None
    loss_file: str | None
    loss_column: str
    first_iteration: int
    run_as: RunAs | None = None


@dataclass(slots=True)
class _Run:
    """One command from its start to the end of its tree."""

    order: Order
    child: Child
    #: Where in its log this run begins.
    log_start: int
    reports: LossSource
    source: LossSource | None
    #: (time, CPU seconds of the tree), at least one.
    samples: deque[tuple[float, float]]
    #: Number, time and CPU seconds of the last loss.
    iteration: int
    seen_at: float
    seen_cpu: float = 0.0
    losses: int = 0
    silent: bool = False
    #: Set when its first process has ended.
    status: int | None = None
    ended_at: float = 0.0
    stopped: bool = False
    #: Once the tree is to end: when it is killed.
    kill_at: float | None = None
    fault: str = ""
    news: list[Message] = field(default_factory=list)

    @property
    def tree(self) -> str:
        return self.order.tree


class Supervisor:
    """All commands of one engine. Belongs in the main thread of a process of its own, that is a subreaper."""

    def __init__(self, throttle: Throttle, table: ProcessTable, grace: float) -> None:
        self._throttle = throttle
        self._table = table
        self._grace = grace
        self._runs: dict[str, _Run] = {}
        self._read_at = self._usage_at = 0.0
        #: When the next step is due; at once, where something has changed.
        self._due = 0.0

    @property
    def idle(self) -> bool:
        """Whether no command is left."""
        return not self._runs

    def start(self, order: Order) -> None:
        """Start a command; it has no share yet. Raises OSError where that fails, and nothing is left of it."""
        now = time.monotonic()
        log = Path(order.log)
        log_start = log.stat().st_size if log.exists() else 0
        try:
            reports = Reported(Path(order.reports))
        except LossSourceError as error:
            raise OSError(str(error)) from None
        fault = None
        source: LossSource | None = None
        try:
            source = _source(order)
        except LossSourceError as error:
            fault = error
        child = self._launch(order)
        run = _Run(
            order=order,
            child=child,
            log_start=log_start,
            reports=reports,
            source=source,
            samples=deque([(now, 0.0)], maxlen=64),
            iteration=order.first_iteration - 1,
            seen_at=now,
        )
        self._runs[run.tree] = run
        self._due = 0.0
        child.release()
        if fault is not None:
            self._silence(run, now, fault)

    def share(self, tree: str, cores: float) -> None:
        """Change the share of a command."""
        run = self._runs.get(tree)
        if run is not None and run.kill_at is None:
            # Fails where someone else has removed the group; the job then runs as it can.
            with suppress(OSError):
                self._throttle.set(tree, cores)
            self._due = 0.0

    def stop(self, tree: str) -> None:
        """End a command and its tree: asked first, then killed."""
        run = self._runs.get(tree)
        if run is not None and run.kill_at is None:
            run.stopped = True
            self._begin_end(run, self._grace)

    def stop_all(self, grace: float) -> None:
        """End all commands, within a shorter time."""
        self._table.scan(thorough=True)
        for run in self._runs.values():
            if run.kill_at is None:
                run.stopped = True
                self._ask_to_end(run, grace)
            run.kill_at = min(run.kill_at or math.inf, time.monotonic() + grace)

    def step(self, *, listen: bool = True) -> tuple[list[Message], float]:
        """Do what is due; return the news and the seconds until the next call. Losses wait unless listened to."""
        now = time.monotonic()
        self._reap(now)
        if now < self._due:
            # Woken by a process that was stopped or continued, most likely by us.
            return [], self._due - now
        wanted = self._throttle.tick()
        news: list[Message] = []
        if listen and now >= self._read_at:
            self._read_at = now + READ_SECONDS
            for run in self._runs.values():
                self._listen(run, now)
        if now >= self._usage_at and self._runs:
            self._usage_at = now + USAGE_SECONDS
            news.append(
                {"is": "usage", "cpu": {run.tree: self._sample(run, now) for run in self._runs.values()}}
            )
        if any(run.kill_at is not None for run in self._runs.values()):
            self._table.scan()
            wanted = min(wanted, END_SECONDS)
        for run in list(self._runs.values()):
            if run.kill_at is not None:
                self._end(run, now, run.kill_at)
            news += run.news
            run.news = []
        wanted = min(wanted, READ_SECONDS if self._runs else math.inf)
        self._due = now + wanted
        return news, wanted

    def free(self) -> None:
        """Leave nothing stopped and no group behind, whatever state things are in."""
        for tree in list(self._runs):
            members = set(self._table.members(tree))
            self._throttle.remove(tree)
            send(members, signal.SIGCONT, signal.SIGKILL)
        self._runs.clear()
        self._table.scan(thorough=True)
        send(self._table.strays, signal.SIGKILL)

    def _launch(self, order: Order) -> Child:
        setting = Setting(cwd=order.cwd, env=order.env, log=Path(order.log), run_as=order.run_as)
        child = launch(order.argv, setting)
        try:
            self._table.plant(order.tree, child.pid)
            self._throttle.add(order.tree, child.pid)
        except OSError:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            self._throttle.remove(order.tree)
            self._table.forget(order.tree)
            raise
        return child

    def _reap(self, now: float) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._table.waited(pid, usage)
            self._due = 0.0
            run = next(
                (run for run in self._runs.values() if run.child.pid == pid and run.status is None), None
            )
            if run is not None:
                run.status = os.waitstatus_to_exitcode(status)
                run.ended_at = now
                run.fault = run.child.complaint()
                if run.kill_at is None:
                    # What it leaves behind may still have to clear up, and is given the time to.
                    self._begin_end(run, self._grace)

    def _begin_end(self, run: _Run, grace: float) -> None:
        self._table.scan(thorough=True)
        self._ask_to_end(run, grace)

    def _ask_to_end(self, run: _Run, grace: float) -> None:
        run.kill_at = time.monotonic() + grace
        self._due = 0.0
        with suppress(OSError):
            self._throttle.set(run.tree, math.inf)
        send(self._table.members(run.tree), signal.SIGTERM, signal.SIGCONT)

    def _end(self, run: _Run, now: float, kill_at: float) -> None:
        members = self._table.members(run.tree)
        if not members and run.status is not None:
            self._finish(run, now)
        elif now >= kill_at + ABANDON_SECONDS:
            run.fault = run.fault or f"processes {sorted(members)} could not be killed"
            self._finish(run, now)
        elif now >= kill_at:
            # Stopped first, so that none forks while the others are being killed.
            send(members, signal.SIGSTOP)
            self._table.scan()
            send(self._table.members(run.tree), signal.SIGKILL)

    def _finish(self, run: _Run, now: float) -> None:
        cpu_seconds = self._sample(run, now)
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while self._listen(run, now, final=True) and time.monotonic() < deadline:
            pass
        for source in (run.reports, run.source):
            if source is not None:
                source.close()
        self._throttle.remove(run.tree)
        self._table.forget(run.tree)
        del self._runs[run.tree]
        run.news.append(
            exit_message(
                run.tree,
                at=run.ended_at or now,
                status=-signal.SIGKILL if run.status is None else run.status,
                stopped=run.stopped,
                cpu_seconds=cpu_seconds,
                losses=run.losses,
                tail=_tail(Path(run.order.log), run.log_start),
                fault=run.fault,
            )
        )

    def _listen(self, run: _Run, now: float, *, final: bool = False) -> bool:
        """Take in what the sources have; return whether there was anything."""
        found = self._poll(run, run.reports, now, final=final)
        if run.order.loss_pattern is not None or run.order.loss_file is not None:
            # Where the owner said where the losses are, reports of losses do not count; announcements do.
            found = [item for item in found if isinstance(item, NewRate)]
            if run.source is not None:
                found += self._poll(run, run.source, now, final=final)
        if found:
            self._sample(run, now)
            ahead = time.time() - time.monotonic()
            for item in found:
                # A clock that was set meanwhile must not lead to times out of order.
                at = now if item.at is None else min(max(item.at - ahead, run.seen_at), now)
                if isinstance(item, NewRate):
                    run.news.append(
                        {"is": "rate", "tree": run.tree, "at": at, "learning_rate": item.learning_rate}
                    )
                else:
                    self._observe(run, item, at)
        return bool(found)

    def _poll(self, run: _Run, source: LossSource, now: float, *, final: bool) -> list[Reading | NewRate]:
        try:
            # A file that its owner names is read with its owner's rights, not with ours.
            with _as_user(run.order.run_as if source is run.source else None):
                return list(source.poll(final=final))
        except LossSourceError as error:
            self._silence(run, now, error)
        except OSError as error:
            self._silence(run, now, LossSourceError(f"the losses cannot be read ({error})", "check the disk"))
        return []

    def _silence(self, run: _Run, now: float, error: LossSourceError) -> None:
        if run.source is not None:
            run.source.close()
            run.source = None
        if not run.silent:
            run.silent = True
            run.news.append({"is": "silent", "tree": run.tree, "at": now, "reason": str(error)})

    def _observe(self, run: _Run, reading: Reading, at: float) -> None:
        iteration = run.iteration + 1 if reading.iteration is None else reading.iteration
        if iteration <= run.iteration:
            return
        cpu = _interpolated(run.samples, at)
        observation = Observation(
            iteration=iteration,
            loss=reading.loss,
            cpu_seconds=max(cpu - run.seen_cpu, 0.0),
            wall_seconds=at - run.seen_at,
        )
        run.iteration, run.seen_at, run.seen_cpu = iteration, at, cpu
        run.losses += 1
        run.news.append(
            {
                "is": "loss",
                "tree": run.tree,
                "at": at,
                "observation": asdict(observation),
                "metrics": dict(reading.metrics),
            }
        )

    def _sample(self, run: _Run, now: float) -> float:
        cpu = self._throttle.cpu_seconds(run.tree)
        run.samples.append((now, cpu))
        return cpu


def exit_message(tree: str, *, at: float, status: int, fault: str, **rest: Any) -> Message:
    """Return the message that a command has ended; what `rest` does not say is that it never ran."""
    never_ran = {"stopped": False, "cpu_seconds": 0.0, "losses": 0, "tail": ""}
    return {"is": "exit", "tree": tree, "at": at, "status": status, "fault": fault, **never_ran, **rest}


def order_of(message: Mapping[str, Any]) -> Order:
    """Return the order in a message."""
    order = {name: message[name] for name in Order.__slots__}
    user = order["run_as"]
    if user is not None:
        order["run_as"] = RunAs(uid=user["uid"], gid=user["gid"], groups=tuple(user["groups"]))
    return Order(**order)


@contextmanager
def _as_user(user: RunAs | None) -> Iterator[None]:
    """Act with someone else's rights in the body."""
    if user is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups(user.groups)
    os.setegid(user.gid)
    os.seteuid(user.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(os.getgid())
        os.setgroups(groups)


def _source(order: Order) -> LossSource | None:
    if order.loss_pattern is not None:
        return LossPattern(order.loss_pattern, Path(order.log))
    if order.loss_file is not None:
        with _as_user(order.run_as):
            return LossFile(Path(order.loss_file), order.loss_column)
    return None


def _interpolated(samples: deque[tuple[float, float]], at: float) -> float:
    """Return the CPU seconds at a moment, between the two readings around it."""
    place = bisect_left(samples, (at, math.inf))
    if place == 0:
        return samples[0][1]
    if place == len(samples):
        return samples[-1][1]
    (t0, c0), (t1, c1) = samples[place - 1], samples[place]
    return c0 + (c1 - c0) * (at - t0) / (t1 - t0)


def _tail(log: Path, start: int) -> str:
    with suppress(OSError), log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - TAIL_BYTES, min(start, end)))
        lines = file.read(TAIL_BYTES).decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])
    return ""
