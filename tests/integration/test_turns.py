"""Laws of turns: which process trees run on a crowded machine, when, and for how long; on a machine of numbers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.engines.node.commands.records import CommandSpec, Launch
from slaq.engines.node.commands.supervised_command import WIDTHS, begin
from slaq.engines.node.commands.threads import WAIT_PASSIVELY, Crowd, choose_threads
from slaq.engines.node.commands.turns import CALM_TICK, DEEPEST_DEBT, IDLE, TICK, TURN, Turns

#: The parts of the machine that jobs are granted, of which the first job has the first, and so on.
PARTS = st.lists(st.floats(0.02, 1.0), min_size=3, max_size=8)


@dataclass
class Machine:
    """A machine whose cores are shared by the runnable threads of the trees that run, equally."""

    turns: Turns
    cores: int
    threads: Mapping[str, int] = field(default_factory=dict)
    #: The part of a core that each thread of a tree uses at a moment.
    busy: Callable[[str, float], float] = lambda job, now: 1.0
    now: float = 0.0
    used: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    #: By tree: how long its runs were, without the last.
    runs: dict[str, list[float]] = field(default_factory=dict)
    firsts: list[tuple[float, str]] = field(default_factory=list)

    def add(self, job: str, cores: float | None) -> None:
        self.turns.add(job, self.now)
        self.turns.grant(job, cores)
        self.used[job], self.runs[job] = 0.0, []

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            for job, tree in self.turns.trees.items():
                if tree.runs:
                    self.turns.settle(job, self.used[job], self.now)
            chosen = self.turns.choose(self.now)
            self._note(chosen)
            wanted = {job: self.threads.get(job, 1) * self.busy(job, self.now) for job in chosen}
            part = min(1.0, self.cores / sum(wanted.values())) if sum(wanted.values()) else 0.0
            for job in chosen:
                self.used[job] += wanted[job] * part * TICK
            self.now += TICK

    def _note(self, chosen: list[str]) -> None:
        for job in self.runs:
            if job in chosen and job not in self.began:
                self.began[job] = self.now
                if job not in {first for _, first in self.firsts}:
                    self.firsts.append((self.now, job))
                    self.turns.widen(job, self.threads.get(job, 1), squeezable=True)
            elif job not in chosen and job in self.began:
                self.runs[job].append(self.now - self.began.pop(job))


def shared(parts: list[float], cores: float) -> dict[str, float]:
    """Return grants in proportion to the parts; none above a core, which is what a thread can use."""
    grants = [0.0] * len(parts)
    for _ in parts:
        left = cores - sum(grants)
        open_ = [number for number, grant in enumerate(grants) if grant < 1.0]
        whole = sum(parts[number] for number in open_)
        for number in open_:
            grants[number] = min(grants[number] + left * parts[number] / whole, 1.0)
    return {f"job{number}": grant for number, grant in enumerate(grants)}


@given(PARTS, st.sampled_from([1, 2]))
def test_each_tree_uses_what_it_is_granted(parts: list[float], cores: int) -> None:
    """Over a minute, each of more trees than cores is within 5 points of its grant."""
    machine = Machine(Turns(room=cores, cores=cores), cores)
    grants = shared(parts, cores)
    for job, grant in grants.items():
        machine.add(job, grant)
    machine.run(60.0)
    for job, grant in grants.items():
        assert machine.used[job] / 60.0 == pytest.approx(grant, abs=0.05)


@given(PARTS, st.sampled_from([1, 2]))
def test_turns_are_long_and_no_core_is_idle(parts: list[float], cores: int) -> None:
    """While trees outnumber cores, the median run is at least 0.4 s, and all cores are in use."""
    machine = Machine(Turns(room=cores, cores=cores), cores)
    for job, grant in shared(parts, cores).items():
        machine.add(job, grant)
    machine.run(60.0)
    runs = [run for of_job in machine.runs.values() for run in of_job]
    assert not runs or median(runs) >= 0.4
    assert sum(machine.used.values()) >= 0.98 * 60.0 * cores


@given(PARTS, st.integers(1, 4))
def test_no_more_threads_run_than_there_are_cores(parts: list[float], threads: int) -> None:
    """Trees of one thread never share a core, from the moment on that all are known to have one."""
    machine = Machine(Turns(room=threads, cores=threads), threads)
    for job, grant in shared(parts, threads).items():
        machine.add(job, grant)
    for _ in range(400):
        machine.run(TICK)
        assert len(machine.began) <= threads


@given(st.floats(0.05, 0.9), st.floats(0.05, 0.9))
def test_without_a_room_nothing_is_lent(first: float, second: float) -> None:
    """Where nothing is lent, each tree is held to its share, however idle the machine is."""
    machine = Machine(Turns(cores=4), 4)
    machine.add("first", first)
    machine.add("second", second)
    machine.run(60.0)
    assert machine.used["first"] / 60.0 == pytest.approx(first, abs=0.03)
    assert machine.used["second"] / 60.0 == pytest.approx(second, abs=0.03)


@given(st.floats(0.2, 3.0))
def test_all_together_keep_to_the_room(room: float) -> None:
    """Trees that borrow from each other use no more than the room together, though they have more threads."""
    machine = Machine(Turns(room=room, cores=4), 4, threads={"one": 4, "other": 2})
    machine.add("one", room / 2)
    machine.add("other", room / 2)
    machine.run(60.0)
    assert sum(machine.used.values()) <= 60.0 * room + DEEPEST_DEBT + 4 * TURN


def test_an_owner_s_limit_holds_on_an_idle_machine() -> None:
    """A tree with a limit does not borrow."""
    machine = Machine(Turns(room=2.0, cores=2), 2)
    machine.add("limited", 0.5)
    machine.turns.trees["limited"].limit = 0.5
    machine.run(60.0)
    assert machine.used["limited"] / 60.0 == pytest.approx(0.5, abs=0.03)


def test_an_idle_tree_lends_its_core_and_is_not_stopped() -> None:
    """A process that waits in its turn is not stopped, and the others use its core meanwhile."""
    machine = Machine(Turns(room=1.0, cores=1), 1, busy=lambda job, now: IDLE / 5 if job == "waits" else 1.0)
    machine.add("waits", 0.5)
    machine.add("works", 0.5)
    machine.run(20.0)
    assert machine.used["works"] > 0.9 * 20.0
    assert machine.runs["waits"] == []


def test_a_tree_that_wakes_up_in_debt_does_not_jump_the_queue() -> None:
    """Short pauses do not bring a tree more than its share."""
    machine = Machine(
        Turns(room=1.0, cores=1), 1, busy=lambda job, now: 0.0 if job == "naps" and now % 0.8 < 0.3 else 1.0
    )
    machine.add("naps", 0.2)
    machine.add("works", 0.8)
    machine.run(60.0)
    assert machine.used["naps"] / 60.0 < 0.3


def test_first_turns_follow_the_grants() -> None:
    """Trees that hold slivers do not begin while those that hold a core are at work."""
    machine = Machine(Turns(room=2.0, cores=2), 2)
    for number in range(8):
        machine.add(f"sliver{number}", 0.005)
    for number in range(2):
        machine.add(f"chosen{number}", 0.98)
    machine.run(30.0)
    assert [job for _, job in machine.firsts][:2] == ["chosen0", "chosen1"]
    assert len(machine.firsts) == 2


def test_a_tree_begins_beside_one_that_waits_for_long() -> None:
    """A core whose tree has been idle for some seconds is free for a tree that has not begun, whatever it holds."""
    machine = Machine(Turns(room=1.0, cores=1), 1, busy=lambda job, now: 0.0 if job == "waits" else 1.0)
    machine.add("waits", 0.99)
    machine.add("sliver", 0.01)
    machine.run(10.0)
    assert machine.used["sliver"] > 5.0


def test_a_tree_alone_begins_at_once_and_runs_on() -> None:
    """On an idle machine a tree runs from the first moment on without a pause, whatever it holds."""
    machine = Machine(Turns(room=2.0, cores=2), 2)
    machine.add("alone", 0.1)
    machine.run(10.0)
    assert machine.used["alone"] == pytest.approx(10.0)


def test_looks_are_rare_only_while_everybody_has_a_core() -> None:
    """Trees that all have their cores are looked at less often; one that waits or is held to a limit ends that."""
    machine = Machine(Turns(room=2.0, cores=2), 2)
    machine.add("first", 1.0)
    machine.add("second", 1.0)
    machine.run(1.0)
    assert machine.turns.due() == CALM_TICK
    machine.add("third", 0.5)
    machine.run(1.0)
    assert machine.turns.due() == TICK
    machine.turns.remove("third")
    machine.turns.trees["second"].limit = 0.5
    machine.run(1.0)
    assert machine.turns.due() == TICK


def test_a_tree_that_needs_all_cores_gets_them_at_once() -> None:
    """A tree of two threads is not kept waiting for ever by trees of one."""
    machine = Machine(Turns(room=2.0, cores=2), 2, threads={"wide": 2})
    for job, cores in {"wide": 1.0, "a": 0.4, "b": 0.3, "c": 0.3}.items():
        machine.add(job, cores)
    machine.run(60.0)
    assert machine.used["wide"] / 60.0 == pytest.approx(1.0, abs=0.15)
    assert sum(machine.used.values()) >= 0.95 * 120.0


def test_seats_follow_what_a_tree_really_uses() -> None:
    """A tree told to use two threads that only ever uses one occupies one core."""
    machine = Machine(Turns(room=2.0, cores=2), 2, threads={"serial": 2}, busy=lambda job, now: 0.5)
    machine.add("serial", 2.0)
    machine.run(5.0)
    assert machine.turns.trees["serial"].seats == 1


def test_pausing_is_immediate_and_debts_stay() -> None:
    """A tree that is to stand still does not run on, and comes back without credit."""
    machine = Machine(Turns(room=1.0, cores=1), 1)
    machine.add("paused", 0.5)
    machine.add("other", 0.5)
    machine.run(5.0)
    machine.turns.grant("paused", None)
    before = machine.used["paused"]
    machine.run(5.0)
    assert machine.used["paused"] == before
    machine.turns.grant("paused", 0.5)
    assert machine.turns.trees["paused"].credit <= 0.0


def test_one_that_is_to_end_runs_without_turns() -> None:
    """A tree at infinity runs all the time."""
    machine = Machine(Turns(room=1.0, cores=1), 1)
    machine.add("ends", math.inf)
    machine.add("other", 1.0)
    machine.run(10.0)
    assert machine.runs["ends"] == []
    assert machine.used["ends"] > 4.0


@given(st.integers(1, 64), st.integers(1, 200))
def test_threads_follow_the_crowd(cores: int, commands: int) -> None:
    """As many threads as cores for each command, one at least; threads wait passively where there are others."""
    threads = choose_threads(Crowd(cores=cores, commands=commands))
    assert threads.count == max(cores // commands, 1)
    assert threads.passive == (commands > 1)


def test_threads_keep_to_what_is_asked_useful_and_allowed() -> None:
    """The owner's choice counts; else neither more than the limit nor more than was useful before."""
    alone = Crowd(cores=8, commands=1)
    assert choose_threads(alone, asked=3, useful=1).count == 3
    assert choose_threads(alone, limit=2.5).count == 3
    assert choose_threads(alone, useful=2).count == 2
    assert "8 cores" in choose_threads(alone).reason


def test_what_a_user_has_set_stays() -> None:
    """Variables of the environment that the owner gave are not overwritten."""
    threads = choose_threads(Crowd(cores=2, commands=4))
    given = {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "ACTIVE"}
    added = threads.variables(given)
    assert not added.keys() & given.keys()
    assert added["MKL_NUM_THREADS"] == "1"
    assert added["KMP_BLOCKTIME"] == "0"
    alone = choose_threads(Crowd(cores=2, commands=1)).variables({})
    assert not alone.keys() & WAIT_PASSIVELY.keys()


@given(st.floats(0.05, 0.64))
def test_a_tree_alone_is_not_stopped_for_a_part_of_a_core(busy: float) -> None:
    """A tree that keeps a core and a bit busy, is granted one core, and is alone, runs all the time."""
    machine = Machine(Turns(room=1.0, cores=2), cores=2, threads={"a": 2}, busy=lambda job, now: busy)
    machine.add("a", 1.0)
    machine.run(20.0)
    assert machine.used["a"] >= 0.97 * 2 * busy * 20.0


def test_a_command_that_did_with_one_core_for_a_while_is_not_held_to_one(tmp_path: Path) -> None:
    """For some time the most cores count that it kept busy, its threads at first; after that, what it does now."""
    spec = CommandSpec(argv=("true",), directory=tmp_path, log=tmp_path / "log")
    launch = Launch(
        job_id="a", tree="t", mark="m", spec=spec, cwd=tmp_path, env={}, reports=tmp_path / "reports"
    )
    command = begin(launch, 1)
    command.widths.extend([2] * WIDTHS)
    told = [command.widest(cores) for cores in [1] * WIDTHS + [2] + [1] * WIDTHS]
    assert told == [2] * (WIDTHS - 1) + [1] + [2] * WIDTHS + [1]
