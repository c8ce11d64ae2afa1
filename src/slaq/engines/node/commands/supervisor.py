"""Runs commands: starts them, keeps their process trees to their shares, hears their losses, ends whole trees."""

import math
import os
import signal
import time
from contextlib import suppress
from itertools import count

from slaq.engines.files import last_lines
from slaq.engines.node.commands.launch import NOT_EXECUTED, Child, LaunchSetting, launch
from slaq.engines.node.commands.readers import Readers
from slaq.engines.node.commands.records import CommandExited, Launch, Record
from slaq.engines.node.commands.shares import Throttle
from slaq.engines.node.commands.supervised_command import SupervisedCommand, begin
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.processes import send

#: Seconds between two readings of everyone's CPU time.
USAGE_SECONDS = 0.2
#: Seconds that a command waits at its gate for the process that reads it.
READY_SECONDS = 5.0
#: Seconds between two looks at a tree that is being ended.
END_SECONDS = 0.01
#: Seconds after which a tree that was killed and is still there is given up (it waits for a broken disk).
ABANDON_SECONDS = 10.0
#: Seconds without news of its losses after which a command that has ended is read no further.
LAST_WORDS_SECONDS = 10.0
#: Messages of readers that are taken in at one step, so that shares are looked at often enough.
MOST_HEARD = 2


class Supervisor:
    """All commands of one node. Belongs in the main thread of a process of its own, which adopts orphans."""

    def __init__(self, throttle: Throttle, table: ProcessTable, readers: Readers, grace: float) -> None:
        self._throttle = throttle
        self._table = table
        self._readers = readers
        self._grace = grace
        #: By the number that the readers know a command by.
        self._numbers = count(1)
        self._by_number: dict[int, SupervisedCommand] = {}
        #: By the job's id.
        self._commands: dict[str, SupervisedCommand] = {}
        self._news: list[Record] = []
        self._usage_at = 0.0
        #: When the next step is due; at once, where something has changed.
        self._due = 0.0

    @property
    def idle(self) -> bool:
        """Whether no command is left."""
        return not self._commands

    def start(self, order: Launch) -> None:
        """Start a command; it has no share yet. One that cannot be started ends at once."""
        self._due = 0.0
        number = next(self._numbers)
        try:
            command = begin(order, number)
            self._readers.open(number, order)
            command.child = self._launch(order)
        except OSError as error:
            self._readers.forget(number)
            fault = f"it could not be started ({error})"
            self._news.append(CommandExited(job_id=order.job_id, status=NOT_EXECUTED, fault=fault))
            return
        command.release_at = time.monotonic() + READY_SECONDS
        self._commands[order.job_id] = self._by_number[command.number] = command

    def share(self, job_id: str, cores: float) -> None:
        """Change the share of a command."""
        command = self._commands.get(job_id)
        if command is not None and command.kill_at is None:
            # Fails where someone else has removed the group; the job then runs as it can.
            with suppress(OSError):
                self._throttle.set(command.tree, cores)
            self._due = 0.0

    def stop(self, job_id: str) -> None:
        """End a command and its tree: asked first, then killed."""
        command = self._commands.get(job_id)
        if command is not None and command.kill_at is None:
            command.stopped = True
            self._table.scan(thorough=True)
            self._ask_to_end(command, self._grace)

    def stop_all(self, grace: float) -> None:
        """End all commands, within a shorter time."""
        self._table.scan(thorough=True)
        for command in self._commands.values():
            if command.kill_at is None:
                command.stopped = True
                self._ask_to_end(command, grace)
            command.kill_at = min(command.kill_at or math.inf, time.monotonic() + grace)
            if command.read_until is not None:
                command.read_until = min(command.read_until, time.monotonic() + grace)

    def step(self, *, listen: bool = True) -> tuple[list[Record], float]:
        """Do what is due; return the news and the seconds until the next call. Losses wait unless listened to."""
        now = time.monotonic()
        self._reap()
        self._hear(now, items=listen)
        if now < self._due:
            # Woken by a process that was stopped or continued, most likely by us.
            return self._take_news(), self._due - now
        wanted = self._throttle.tick()
        for command in self._commands.values():
            if command.release_at is not None:
                wanted = min(wanted, command.release_at - now)
                if now >= command.release_at:
                    command.fail_source(
                        "the process that reads the losses does not answer; check the loss file"
                    )
                    command.release()
        if now >= self._usage_at:
            self._usage_at = now + USAGE_SECONDS
            for command in self._commands.values():
                command.samples.append((now, self._throttle.cpu_seconds(command.tree)))
        ending = [command for command in self._commands.values() if command.kill_at is not None]
        if ending:
            self._table.scan()
            wanted = min(wanted, END_SECONDS)
        for command in ending:
            self._end(command, now)
        if listen and self._readers.waiting:
            wanted = 0.0
        wanted = min(wanted, USAGE_SECONDS if self._commands else math.inf)
        self._due = now + wanted
        return self._take_news(), wanted

    def free(self) -> None:
        """Leave nothing stopped and no group behind, whatever state things are in."""
        for command in self._commands.values():
            members = set(self._table.members(command.tree))
            self._throttle.remove(command.tree)
            send(members, signal.SIGCONT, signal.SIGKILL)
        self._commands.clear()
        self._readers.close()
        self._table.scan(thorough=True)
        send(self._table.strays, signal.SIGKILL)

    def _take_news(self) -> list[Record]:
        for command in self._commands.values():
            self._news += command.news
            command.news = []
        news, self._news = self._news, []
        return news

    def _launch(self, order: Launch) -> Child:
        spec = order.spec
        setting = LaunchSetting(
            cwd=order.cwd, env=order.env, log=spec.log, run_as=spec.run_as, open_files=spec.open_files
        )
        child = launch(spec.argv, setting)
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

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._table.waited(pid, usage)
            self._due = 0.0
            for command in self._commands.values():
                if command.child is not None and command.child.pid == pid and command.status is None:
                    command.status = os.waitstatus_to_exitcode(status)
                    command.fault = command.child.complaint()
                    if command.kill_at is None:
                        # What it leaves behind may still have to clear up, and is given the time to.
                        self._table.scan(thorough=True)
                        self._ask_to_end(command, self._grace)

    def _ask_to_end(self, command: SupervisedCommand, grace: float) -> None:
        command.kill_at = time.monotonic() + grace
        self._due = 0.0
        with suppress(OSError):
            self._throttle.set(command.tree, math.inf)
        send(self._table.members(command.tree), signal.SIGTERM, signal.SIGCONT)

    def _end(self, command: SupervisedCommand, now: float) -> None:
        """See to a tree that was asked to end: kill it once its time is up, and conclude it once empty and read."""
        assert command.kill_at is not None
        members = self._table.members(command.tree)
        if command.read_until is not None:
            if command.all_read or now >= command.read_until:
                self._conclude(command)
        elif not members and command.status is not None:
            self._finish_reading(command, now)
        elif now >= command.kill_at + ABANDON_SECONDS:
            command.fault = command.fault or f"processes {sorted(members)} could not be killed"
            self._finish_reading(command, now)
        elif now >= command.kill_at:
            # Stopped first, so that none forks while the others are being killed.
            send(members, signal.SIGSTOP)
            self._table.scan()
            send(self._table.members(command.tree), signal.SIGKILL)

    def _finish_reading(self, command: SupervisedCommand, now: float) -> None:
        """Have all that a command wrote be read, now that it writes no more."""
        command.read_until = now + LAST_WORDS_SECONDS
        self._readers.finish(command.number)

    def _conclude(self, command: SupervisedCommand) -> None:
        cpu_seconds = self._throttle.cpu_seconds(command.tree)
        if not command.all_read and not command.stopped:
            command.fail_source("the losses could not be read to their end: their files do not answer")
        self._readers.forget(command.number)
        self._throttle.remove(command.tree)
        self._table.forget(command.tree)
        order = command.launch
        del self._commands[order.job_id], self._by_number[command.number]
        end = CommandExited(
            job_id=order.job_id,
            status=-signal.SIGKILL if command.status is None else command.status,
            stopped=command.stopped,
            cpu_seconds=cpu_seconds,
            tail=last_lines(order.spec.log, command.log_start),
            fault=command.fault,
        )
        self._news += [*command.news, end]

    def _hear(self, now: float, *, items: bool) -> None:
        """Take in what the readers have read; with `items` unset losses wait."""
        for _ in range(MOST_HEARD):
            heard = self._readers.heard(items=items)
            if heard is None:
                return
            self._due = 0.0
            command = self._by_number.get(heard.number)
            if command is None:
                continue
            if heard.failure:
                command.fail_source(heard.failure)
            if heard.ready:
                command.release()
            if heard.items:
                command.take(heard.items, now, self._throttle.cpu_seconds(command.tree))
                if command.read_until is not None:
                    command.read_until = now + LAST_WORDS_SECONDS
            command.all_read = command.all_read or heard.done
