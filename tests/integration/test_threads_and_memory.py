"""Laws of what a command begins with: threads that helped before, and memory that is there."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.engines.node.commands.experience import (
    FEWEST_ITERATIONS,
    MOST_SCRIPTS,
    Experience,
    script_of,
)
from slaq.engines.node.commands.memory_gate import GROWS_SECONDS, MemoryGate, MemoryTaker
from slaq.engines.node.commands.records import CommandSpec, RunAs
from slaq.service.service import Service
from tests.integration.opening import ME, printed, python
from tests.integration.serving import until

GB = 10**9


def spec(*argv: str, uid: int | None = None, cwd: str = "/tmp") -> CommandSpec:
    run_as = None if uid is None else RunAs(uid=uid, gid=uid)
    return CommandSpec(argv=argv, directory=Path(), log=Path("log"), cwd=Path(cwd), run_as=run_as)


@given(st.floats(0.5, 5.0))
def test_threads_that_bring_little_are_not_given_again(gain: float) -> None:
    """A second thread is of use where it makes a script faster by three tenths at least."""
    experience = Experience()
    experience.note("script", 1, 100, 10.0)
    assert experience.useful("script") is None
    experience.note("script", 2, 100, 10.0 / gain)
    assert experience.useful("script") == (None if gain >= 1.3 else 1)


def test_the_fewest_threads_that_are_worth_it_are_named() -> None:
    """Of several numbers of threads, the largest counts that is worth it against the one before."""
    experience = Experience()
    for threads, speed in {1: 1.0, 2: 1.8, 4: 2.0, 8: 2.1}.items():
        experience.note("script", threads, 100, 100.0 / speed)
    assert experience.useful("script") == 2


def test_short_runs_say_nothing() -> None:
    """A run of a few iterations is not counted."""
    experience = Experience()
    experience.note("script", 1, 100, 10.0)
    experience.note("script", 2, FEWEST_ITERATIONS - 1, 1.0)
    assert experience.useful("script") is None


def test_experience_outlives_the_process_and_survives_rubbish(tmp_path: Path) -> None:
    """What was learned is there after a restart; a damaged file is forgotten; only so many scripts are kept."""
    path = tmp_path / "threads.json"
    first = Experience(path)
    first.note("script", 1, 100, 10.0)
    first.note("script", 2, 100, 10.0)
    assert Experience(path).useful("script") == 1
    for rubbish in (b"", b"[]", b'{"script": 3}', b'{"script": {"one": [1]}}', b"\xff"):
        path.write_bytes(rubbish)
        assert Experience(path).useful("script") is None
    for number in range(MOST_SCRIPTS + 5):
        first.note(str(number), 1, 100, 10.0)
    assert len(json.loads(path.read_bytes())) == MOST_SCRIPTS


def test_parameters_do_not_make_another_script_but_users_and_folders_do() -> None:
    """Runs of one script with other arguments count as its runs; another user's do not."""
    one = script_of(spec("python", "train.py", "--lr", "0.1"))
    assert one == script_of(spec("python", "train.py", "--lr", "0.2"))
    assert one != script_of(spec("python", "other.py"))
    assert one != script_of(spec("python", "train.py", uid=1000))
    assert one != script_of(spec("python", "train.py", cwd="/home"))


def taker(measured: int = 0, declared: int = 0, seconds: float = 2 * GROWS_SECONDS) -> MemoryTaker:
    return MemoryTaker(measured=measured, declared=declared, seconds=seconds)


def test_what_would_not_fit_waits_and_says_why() -> None:
    """A command begins only where what it declared, or what commands usually take, is free."""
    gate = MemoryGate(8 * GB)
    assert gate.reason(0, [taker(5 * GB)], None) == (
        "waits for memory: commands here usually take 5 GB, and 3 GB are free"
    )
    assert gate.reason(2 * GB, [taker(5 * GB)], None) == ""
    assert "it declared 4 GB" in gate.reason(4 * GB, [taker(5 * GB)], None)


def test_a_young_command_counts_with_what_it_will_take() -> None:
    """What a command has declared, or commands usually take, counts before the command has grown to it."""
    gate = MemoryGate(8 * GB)
    gate.learn(3 * GB)
    young = taker(GB, seconds=1.0)
    assert gate.reason(0, [young], None) == ""
    assert gate.reason(0, [young, young], None)
    assert gate.reason(0, [taker(GB), taker(GB)], None) == ""


def test_memory_that_others_took_counts() -> None:
    """Where other programs have taken the machine's memory, commands wait too."""
    gate = MemoryGate(64 * GB)
    assert gate.reason(2 * GB, [taker(GB)], available=GB)
    assert gate.reason(2 * GB, [taker(GB)], available=3 * GB) == ""


@given(st.integers(0, 10**13), st.integers(1, 10**12), st.integers(0, 10**12))
def test_a_command_alone_always_begins(declared: int, there_are: int, available: int) -> None:
    """Nobody waits for memory where nothing runs that could give some back."""
    assert MemoryGate(there_are).reason(declared, [], available) == ""


@pytest.mark.parametrize("declared", [0, GB])
def test_without_knowledge_nothing_is_held_back(declared: int) -> None:
    """Commands that have just begun and declared nothing hold nobody back."""
    assert MemoryGate(8 * GB).reason(declared, [taker(seconds=0.0)], 8 * GB) == ""


def test_a_service_shows_and_keeps_what_a_command_began_with(open_service: Callable[..., Service]) -> None:
    """Threads, why so many, and the most memory are shown of a job while it runs, and after its end."""
    service = open_service(cores=2)
    shows = "import os, time; print(os.environ['OMP_NUM_THREADS'], flush=True); x = bytearray(10**7)"
    seen = f"{shows}; time.sleep(600)"
    chosen = service.submit(ME, python(seen, threads=3)).id
    assert until(partial(printed, service, chosen, 1)) == ["3"]
    until(lambda: service.job(ME, chosen).memory_peak >= 10**7)
    view = service.job(ME, chosen)
    assert (view.threads, view.threads_reason) == (3, "its owner chose so")
    beside = service.submit(ME, python(seen)).id
    assert until(partial(printed, service, beside, 1)) == ["1"]
    until(lambda: service.job(ME, beside).threads == 1)
    assert service.job(ME, beside).threads_reason == "2 jobs share 2 cores"
    service.cancel(ME, chosen)
    until(lambda: service.job(ME, chosen).state.ended)
    ended = service.job(ME, chosen)
    assert (ended.threads, ended.threads_reason, ended.memory_peak) == (
        view.threads,
        view.threads_reason,
        ended.memory_peak,
    )
    assert ended.memory_peak >= 10**7
