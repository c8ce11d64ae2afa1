"""Runs commands: starts them, keeps their process trees to their shares, hears their losses, ends whole trees."""

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from slaq.core.events import CpuUsed, JobDelayed
from slaq.core.scarcity import scarce
from slaq.engines.files import last_lines
from slaq.engines.memory import memory_available, memory_here
from slaq.engines.node.commands.descriptors import check_room
from slaq.engines.node.commands.launch import NOT_EXECUTED, Child, Inherited, LaunchSetting, launch
from slaq.engines.node.commands.memory_gate import MemoryGate, MemoryTaker
from slaq.engines.node.commands.readers import Heard, Readers
from slaq.engines.node.commands.records import CommandExited, Launch, Record, SeatsTaken
from slaq.engines.node.commands.shares import Throttle
from slaq.engines.node.commands.supervised_command import WIDTHS, SupervisedCommand, begin
from slaq.engines.node.commands.threads import Crowd, Threads, choose_threads
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.node.commands.turn_keeper import TurnKeeper
from slaq.engines.processes import send

#: Seconds between two readings of everyone's CPU time.
USAGE_SECONDS = 0.2
#: Seconds that a command waits at its gate for the process that reads it.
READY_SECONDS = 5.0
#: Seconds between two times that a command's CPU time is told, where it has grown by so many seconds.
TELL_SECONDS, TELL_GROWTH = 2.0, 0.01
#: Seconds after which a command that has not begun says what it waits for.
PATIENT_SECONDS = 1.0
#: Seconds between two tries to start a command where the system is short of something.
TRY_SECONDS = 1.0
#: Children that are waited for in a row; where there are more, whatever forks too fast is stopped meanwhile.
MOST_REAPED = 1000
#: Process ids that are named where processes cannot be killed.
MOST_NAMED = 10
#: Seconds between two looks at a tree that is being ended.
END_SECONDS = 0.01
#: Seconds after which a tree that was killed and is still there is given up (it waits for a broken disk).
ABANDON_SECONDS = 10.0
#: Seconds without any progress after which a command that has ended is read no further, and those after which it
#: is not in any case: it may have left a file without an end. The first is also the most for one that was stopped.
LAST_WORDS_SECONDS, LONGEST_LAST_WORDS = 10.0, 600.0
#: Why its last losses may be missing then.
UNREAD = "the losses could not be read to their end: their files do not answer, or hold too much"
#: Messages of readers that are taken in at one step, so that shares are looked at often enough.
MOST_HEARD = 2
#: Seconds, at most, that what a command leaves behind has to clear up.
LEFT_BEHIND_SECONDS = 3.0


@dataclass(slots=True)
class _Waiting:
    """A command that could not be started yet, and the share it is to have."""

    order: Launch
    cores: float | None = None


class Supervisor:
    """All commands of one node. Belongs in the main thread of a process of its own, which adopts orphans.

    What goes wrong with one command ends that command, and no other. Where the system is short of descriptors,
    processes or memory, a command that is to start waits.
    """

    def __init__(
        self,
        throttle: Throttle,
        table: ProcessTable,
        readers: Readers,
        grace: float,
        inherited: Inherited | None = None,
    ) -> None:
        """Take the way to let trees run and rest, the trees, and who reads what commands say.

        `grace` is the seconds between asking a tree to end and killing it, where a command says nothing else.
        """
        self._throttle = throttle
        self._turns = TurnKeeper(throttle)
        self._memory = MemoryGate(memory_here())
        self._table = table
        table.locate, table.reap = throttle.holder, self._reap_some
        self._readers = readers
        self._grace = grace
        self._inherited = inherited or Inherited()
        #: By the job's id.
        self._commands: dict[str, SupervisedCommand] = {}
        self._waiting: dict[str, _Waiting] = {}
        #: By the number that the readers know a command by.
        self._numbers = count(1)
        self._by_number: dict[int, SupervisedCommand] = {}
        #: By the process id of its first process, until that has ended.
        self._roots: dict[int, SupervisedCommand] = {}
        #: CPU seconds and cores kept busy as last told, by the job's id.
        self._told: dict[str, tuple[float, int]] = {}
        self._news: list[Record] = []
        #: Cores that commands occupy, as last told.
        self._taken = 0
        self._usage_at = self._tell_at = self._try_at = 0.0
        #: When the next step is due; at once, where something has changed.
        self._due = 0.0

    @property
    def idle(self) -> bool:
        """Whether no command is left."""
        return not self._commands and not self._waiting

    def start(self, order: Launch) -> None:
        """Start a command, now or when it can be; it has no share yet. One that cannot be started ends."""
        self._due = 0.0
        self._waiting[order.job_id] = _Waiting(order)
        if reason := self._try(order):
            self._news.append(JobDelayed(job_id=order.job_id, at=0.0, reason=reason))

    def grant(self, cores: Mapping[str, float], room: float) -> None:
        """Change the shares of all commands; one that is not named stands still.

        What some leave idle is lent to others, as long as all together use no more cores than the room.
        """
        self._turns.lend(room)
        for job_id in [*self._waiting, *self._commands]:
            self.share(job_id, cores.get(job_id))

    def share(self, job_id: str, cores: float | None) -> None:
        """Change the share of a command; None lets it stand still at once."""
        if job_id in self._waiting:
            self._waiting[job_id].cores = cores
        command = self._commands.get(job_id)
        if command is not None and command.kill_at is None:
            self._confine(command, lambda command: self._turns.grant(command.tree, cores))
            self._due = 0.0

    def stop(self, job_id: str) -> None:
        """End a command and its tree: asked first, then killed."""
        if self._waiting.pop(job_id, None) is not None:
            self._news.append(CommandExited(job_id=job_id, status=-signal.SIGTERM, stopped=True))
            self._due = 0.0
        command = self._commands.get(job_id)
        if command is not None and command.kill_at is None:
            command.stopped = True
            self._table.scan(thorough=True)
            self._confine(command, lambda command: self._ask_to_end(command, self._grace_of(command)))
        elif command is not None and command.read_until is not None:
            patience = min(self._grace_of(command), LEFT_BEHIND_SECONDS)
            command.read_at_most = min(command.read_at_most, time.monotonic() + patience)

    def kill(self, job_id: str) -> None:
        """End a command and its tree at once, whether or not it was told to end before."""
        self.stop(job_id)
        command = self._commands.get(job_id)
        if command is not None:
            command.kill_at = min(command.kill_at or math.inf, time.monotonic())
            self._due = 0.0

    def stop_all(self, grace: float) -> None:
        """End all commands, none with a longer grace than this."""
        for job_id in list(self._waiting):
            self.stop(job_id)
        self._table.scan(thorough=True)
        for command in self._commands.values():
            if command.kill_at is None:
                command.stopped = True
                self._confine(command, lambda command: self._ask_to_end(command, self._grace_of(command)))
            command.kill_at = min(command.kill_at or math.inf, time.monotonic() + grace)
            if command.read_until is not None:
                command.read_at_most = min(command.read_at_most, time.monotonic() + grace)

    def step(self, *, listen: bool = True) -> tuple[list[Record], float]:
        """Do what is due; return the news and the seconds until the next call. Losses wait unless listened to."""
        now = time.monotonic()
        self._reap()
        self._hear(now, items=listen)
        if now < self._due:
            # Woken by a process that was stopped or continued, most likely by us.
            return self._take_news(), self._due - now
        self._look_at_memory(now)
        wanted = min(self._turns.tick(), self._open_gates(now))
        if self._turns.taken != self._taken:
            self._taken = self._turns.taken
            self._news.append(SeatsTaken(seats=self._taken))
        if now >= self._usage_at:
            self._usage_at = now + USAGE_SECONDS
            for command in self._each():
                self._confine(command, self._measure)
        if now >= self._tell_at:
            self._tell_at = now + TELL_SECONDS
            self._tell_usage()
        if self._waiting and now >= self._try_at:
            self._try_at = now + TRY_SECONDS
            for waiting in list(self._waiting.values()):
                self._try(waiting.order)
                if waiting.order.job_id in self._commands:
                    self._news.append(JobDelayed(job_id=waiting.order.job_id, at=0.0, reason=""))
        ending = [command for command in self._each() if command.kill_at is not None]
        if ending:
            self._table.scan()
            wanted = min(wanted, END_SECONDS)
        for command in ending:
            self._confine(command, lambda command: self._end(command, now))
        self._table.kill_strays()
        if listen and self._readers.waiting:
            wanted = 0.0
        wanted = min(wanted, math.inf if self.idle else USAGE_SECONDS)
        self._due = now + wanted
        return self._take_news(), wanted

    def free(self) -> None:
        """Kill every command and undo all throttling, after whatever error."""
        for command in self._commands.values():
            # The keeper ends what is not reached here.
            self._table.send(self._table.members(command.tree), signal.SIGKILL)
            self._turns.remove(command.tree)
        self._commands.clear()
        self._readers.close()
        self._table.scan(thorough=True)
        self._table.kill_strays()

    def _each(self) -> list[SupervisedCommand]:
        return list(self._commands.values())

    def _confine(self, command: SupervisedCommand, act: Callable[[SupervisedCommand], object]) -> None:
        """Act on one command; an error ends this command only."""
        try:
            act(command)
        except Exception as error:
            if scarce(error) or command.launch.job_id not in self._commands:
                return  # tried again in the next step
            command.fault = command.fault or f"it could not be supervised any more ({error!r})"
            self._give_up(command)

    def _give_up(self, command: SupervisedCommand) -> None:
        """End a command whose supervision failed: ask, then kill, then drop it; errors are ignored."""
        with suppress(Exception):
            if command.kill_at is None:
                self._ask_to_end(command, self._grace_of(command))
            elif self._table.members(command.tree):
                if time.monotonic() >= command.kill_at:
                    self._kill(command)
            elif command.status is not None:
                self._discard(command)

    def _measure(self, command: SupervisedCommand) -> None:
        command.measure(self._turns.usage(command.tree))
        if command.began_at is not None:
            command.memory = self._table.memory(command.tree)
            command.peak = max(command.peak, command.memory)
        assert command.child is not None
        command.child.hear()

    def _tell_usage(self) -> None:
        for job_id, command in self._commands.items():
            used = command.samples[-1].cpu_seconds
            # Before it begins, the threads that it would get now.
            begun = command.release_at is None
            seats = self._turns.seats(command.tree)
            parallel = command.widest(seats) if begun else self._threads(command).count
            told = self._told.get(job_id, (0.0, 0))
            if used >= told[0] + TELL_GROWTH or parallel != told[1]:
                self._told[job_id] = used, parallel
                at, memory = command.samples[-1].at, command.memory
                self._news.append(
                    CpuUsed(job_id=job_id, at=at, cpu_seconds=used, parallel=parallel, memory=memory)
                )

    def _look_at_memory(self, now: float) -> None:
        """Keep commands from beginning for which there is no memory, and say why each waits."""
        waiting = [command for command in self._commands.values() if command.release_at is not None]
        if not waiting:
            return
        takers = [
            MemoryTaker(
                measured=command.memory,
                declared=command.launch.spec.memory or 0,
                seconds=now - command.began_at,
            )
            for command in self._commands.values()
            if command.began_at is not None
        ]
        available = memory_available()
        turn = f"waits for its first turn: {self._crowd.reason}"
        for command in waiting:
            reason = self._memory.reason(command.launch.spec.memory or 0, takers, available)
            self._turns.bar(command.tree, barred=bool(reason))
            if now >= command.seen.at + PATIENT_SECONDS:
                command.wait_for(reason or turn)

    @property
    def _crowd(self) -> Crowd:
        return Crowd(cores=self._turns.cores, commands=self._turns.jobs + len(self._waiting))

    def _discard(self, command: SupervisedCommand) -> None:
        """Drop an ended command whose last output cannot be read."""
        order = command.launch
        self._forget(command)
        status = -signal.SIGKILL if command.status is None else command.status
        end = CommandExited(job_id=order.job_id, status=status, stopped=command.stopped, fault=command.fault)
        self._news += [*command.news, end]

    def _take_news(self) -> list[Record]:
        for command in self._commands.values():
            self._news += command.news
            command.news = []
        news, self._news = self._news, []
        return news

    def _try(self, order: Launch) -> str:
        """Start a waiting command; return what the system is short of if it has to wait longer."""
        cores, number = self._waiting[order.job_id].cores, next(self._numbers)
        try:
            check_room(len(self._commands))
            command = begin(order, number)
            self._readers.open(number, order)
            command.child = self._launch(order)
        except Exception as error:
            self._readers.forget(number)
            if scarce(error):
                return str(error)
            del self._waiting[order.job_id]
            fault = f"it could not be started ({error})"
            self._news.append(CommandExited(job_id=order.job_id, status=NOT_EXECUTED, fault=fault))
            return ""
        del self._waiting[order.job_id]
        self._commands[order.job_id] = self._roots[command.child.pid] = self._by_number[number] = command
        command.release_at = time.monotonic() + READY_SECONDS
        self._tell_at = 0.0
        if cores is not None:
            self.share(order.job_id, cores)
        return ""

    def _launch(self, order: Launch) -> Child:
        spec = order.spec
        inherited = self._inherited
        if spec.open_files is not None:
            inherited = replace(inherited, open_files=spec.open_files)
        setting = LaunchSetting(
            cwd=order.cwd, env=order.env, log=spec.log, run_as=spec.run_as, inherited=inherited
        )
        child = launch(spec.argv, setting)
        try:
            user = None if spec.run_as is None else spec.run_as.uid
            self._table.plant(order.tree, child.pid, mark=order.mark, user=user)
            self._turns.add(order.tree, child.pid, spec.max_cores)
        except Exception:
            child.close()
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            self._turns.remove(order.tree)
            self._table.forget(order.tree)
            raise
        return child

    def _reap(self) -> None:
        if not self._reap_some():
            # Processes come and go faster than they can be waited for, and would soon take all numbers there are:
            # they stand still until that is made up for.
            caught = self._table.catch()
            while not self._reap_some():
                pass
            self._resume(caught)

    def _resume(self, caught: set[int]) -> None:
        """Continue processes that were stopped to be caught, unless their trees are to stand still."""
        still = {pid for pid in caught if self._throttle.rests(self._table.tree_of(pid) or "")}
        send(caught - still, signal.SIGCONT)

    def _reap_some(self) -> bool:
        """Wait for children that have exited; return whether for all of them."""
        for _ in range(MOST_REAPED):
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if exited is None:
                return True
            self._table.place_exited(exited.si_pid, exited.si_uid)
            _, status, usage = os.wait4(exited.si_pid, 0)
            self._table.waited(exited.si_pid, usage)
            self._due = 0.0
            if exited.si_pid in self._roots:
                self._exited(self._roots.pop(exited.si_pid), status)
        return False

    def _exited(self, command: SupervisedCommand, status: int) -> None:
        """Take note of how the first process of a command ended."""
        assert command.child is not None
        command.child.hear()
        command.status = os.waitstatus_to_exitcode(status)
        command.fault = command.fault or command.child.complaint
        if command.kill_at is None:
            # What it leaves behind may still have to clear up, and is given the time to.
            self._table.scan(thorough=True)
            self._ask_to_end(command, min(self._grace_of(command), LEFT_BEHIND_SECONDS))

    def _grace_of(self, command: SupervisedCommand) -> float:
        grace = command.launch.spec.grace
        return self._grace if grace is None else grace

    def _ask_to_end(self, command: SupervisedCommand, grace: float) -> None:
        command.kill_at = time.monotonic() + grace
        self._due = 0.0
        self._turns.grant(command.tree, math.inf)
        self._table.send(self._table.members(command.tree), signal.SIGTERM, signal.SIGCONT)

    def _end(self, command: SupervisedCommand, now: float) -> None:
        """See to a tree that was asked to end: kill it once its time is up, and conclude it once empty and read."""
        assert command.kill_at is not None
        members = self._table.members(command.tree)
        if command.read_until is not None:
            if command.all_read or now >= self._read_until(command):
                self._conclude(command)
        elif not members and command.status is not None and self._is_empty(command, now):
            self._finish_reading(command, now)
        elif now >= command.kill_at + ABANDON_SECONDS:
            named = ", ".join(map(str, sorted(members)[:MOST_NAMED]))
            command.fault = command.fault or f"{len(members)} processes could not be killed, such as {named}"
            self._finish_reading(command, now)
        elif now >= command.kill_at:
            self._kill(command)

    def _is_empty(self, command: SupervisedCommand, now: float) -> bool:
        """Return whether a tree that the last scan found empty is empty."""
        self._table.scan(thorough=True)
        # Where processes came and went between the scans, there may be others.
        return not self._table.take_hidden(command.tree) and not self._table.members(command.tree)

    def _kill(self, command: SupervisedCommand) -> None:
        # Stopped first, so that none forks while the others are being killed.
        send(self._table.members(command.tree), signal.SIGSTOP)
        caught = self._table.catch()
        members = self._table.members(command.tree)
        self._table.send(members, signal.SIGKILL)
        self._resume(caught - members)

    def _finish_reading(self, command: SupervisedCommand, now: float) -> None:
        """Have the reader finish what an ended command wrote."""
        command.read_until = now + LAST_WORDS_SECONDS
        command.read_at_most = now + (LAST_WORDS_SECONDS if command.stopped else LONGEST_LAST_WORDS)
        self._readers.finish(command.number)

    def _read_until(self, command: SupervisedCommand) -> float:
        """Return until when a command that has ended is read, as things are: longer, as long as that gets on."""
        assert command.read_until is not None
        getting_on = self._readers.got_on_at(command.number) + LAST_WORDS_SECONDS
        return min(max(command.read_until, getting_on), command.read_at_most)

    def _conclude(self, command: SupervisedCommand) -> None:
        if not command.all_read and not command.stopped:
            command.fail_source(UNREAD)
        order = command.launch
        end = CommandExited(
            job_id=order.job_id,
            status=-signal.SIGKILL if command.status is None else command.status,
            stopped=command.stopped,
            cpu_seconds=self._turns.usage(command.tree).cpu_seconds,
            tail=last_lines(order.spec.log, command.log_start),
            fault=command.fault,
        )
        self._memory.learn(command.peak)
        self._forget(command)
        self._news += [*command.news, end]

    def _forget(self, command: SupervisedCommand) -> None:
        if command.child is not None:
            command.child.close()
            self._roots.pop(command.child.pid, None)
        del self._commands[command.launch.job_id], self._by_number[command.number]
        self._told.pop(command.launch.job_id, None)
        self._readers.forget(command.number)
        self._turns.remove(command.tree)
        self._table.forget(command.tree)

    # What the commands say

    def _open_gates(self, now: float) -> float:
        """Release commands that have their first turn; return the seconds until the next reader is late."""
        wanted = math.inf
        for command in self._commands.values():
            if command.release_at is None:
                continue
            if not command.ready and now >= command.release_at:
                command.ready = True
                command.fail_source("the process that reads the losses does not answer; check the loss file")
            if not command.ready:
                wanted = min(wanted, command.release_at - now)
            elif self._turns.has_begun(command.tree):
                self._confine(command, self._release)
        return wanted

    def _release(self, command: SupervisedCommand) -> None:
        """Let a command begin, with as many threads as the cores it can expect to hold."""
        threads = self._threads(command)
        command.widths.extend([threads.count] * WIDTHS)
        self._turns.widen(command.tree, threads.count, squeezable=threads.passive or threads.count == 1)
        command.release(threads)

    def _threads(self, command: SupervisedCommand) -> Threads:
        """Return the threads that a command would get if it began now."""
        spec = command.launch.spec
        return choose_threads(
            self._crowd, asked=spec.threads, useful=spec.useful_threads, limit=spec.max_cores
        )

    def _hear(self, now: float, *, items: bool) -> None:
        """Take in what the readers have read; with `items` unset losses wait."""
        for _ in range(MOST_HEARD):
            heard = self._readers.heard(items=items)
            if heard is None:
                return
            self._due = 0.0
            command = self._by_number.get(heard.number)
            if command is not None:
                self._confine(command, partial(self._take_in, heard=heard, now=now))

    def _take_in(self, command: SupervisedCommand, heard: Heard, now: float) -> None:
        if heard.failure:
            command.fail_source(heard.failure)
        command.ready = command.ready or heard.ready
        if heard.items:
            command.take(heard.items, self._turns.usage(command.tree))
            if command.read_until is not None:
                command.read_until = now + LAST_WORDS_SECONDS
        command.all_read = command.all_read or heard.done
