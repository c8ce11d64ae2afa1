"""Kills a service and the processes it runs at random moments, and looks for anything that was lost.

    python -m benchmarks.service_kills [--kills 100] [--jobs 12] [--only KIND ...] [--seed 0] [--json]

Jobs of two users are under way, users made for the run where root runs it: commands that go on by themselves
(`--if-lost resume`), commands that begin again (`restart`), and programs with checkpoints. Each kill -9 takes one
process of a kind drawn at random: the service, alone or with all it runs; the supervisor, which holds the
commands; the fork server of a program, one of its workers, its driver. A service is started again.

Every command reports losses, each with a token of its own, and notes the token once `slaq.report` has returned.
In the end every job that was acknowledged must be known and under way, none may have ended, every noted token must
be stored once, no loss of a program may be stored twice, every run must have begun where the one before had kept
itself, and the database be sound.
"""

import argparse
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slaq.client import Client, connect
from slaq.core.errors import SlaqError
from slaq.service.records import Submission
from slaq.stores.sqlite import SqliteStore

COMMAND = """
import os, pathlib, random, slaq, sys, time
place = pathlib.Path(os.environ["SLAQ_JOB_DIR"])
kept = place / "kept"
start = int(kept.read_text()) if "resume" in sys.argv and kept.exists() else 0
story = (place / "story").open("a", buffering=1)
story.write(f"begun {start}\\n")
noted = (place / "noted").open("a", buffering=1)
for i in range(start, 10**9):
    token = random.getrandbits(52)
    slaq.report(1 / (1 + i), token=token)
    noted.write(f"{token}\\n")
    if "resume" in sys.argv:
        draft = kept.with_suffix(".new")
        draft.write_text(str(i + 1))
        draft.replace(kept)
        story.write(f"kept {i + 1}\\n")
    time.sleep(0.02)
"""
PROGRAM = """
import os, pathlib, time

def train(ctx):
    start = ctx.restored or 0
    story = (pathlib.Path(os.environ["SLAQ_JOB_DIR"]) / "story").open("a", buffering=1)
    story.write(f"begun {start}\\n")
    for i in range(start, 10**9):
        ctx.map(lambda partition: time.sleep(0.005))
        ctx.report(1 / (1 + i), token=i)
        ctx.checkpoint(i + 1)
        story.write(f"kept {i + 1}\\n")
        time.sleep(0.02)
"""
#: What is killed; `everything` is the service with all it runs.
KINDS = ("service", "everything", "keeper", "supervisor", "reader", "fork server", "worker", "driver")
#: The kinds of jobs, in turn.
WAYS = ("resume", "restart", "program")
#: Seconds that the service has to answer after a start, and every job to go on after the last kill.
PATIENCE = 120.0
#: What of the counts must be 0.
FAULTS = (
    *("jobs_lost", "jobs_ended", "jobs_stuck"),
    *("reports_lost", "reports_doubled", "false_starts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """As whom jobs run, and with which Python."""

    #: Names of users; empty for the one who runs this.
    users: tuple[str, ...] = ()
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    def submission(self, number: int, home: Path) -> Submission:
        """Return the job of that number."""
        way = WAYS[number % len(WAYS)]
        user = {"user": self.users[number // len(WAYS) % len(self.users)]} if self.users else {}
        options: dict[str, Any] = {"name": way, "env": dict(self.env), **user}
        if way == "program":
            options |= {"python": self.python, "max_cores": 1.0, "retry": 10**6}
            options |= {"cwd": str(home / "work")}
            return Submission(program={"program": "work.py:train"}, options=options)  # type: ignore[typeddict-item]
        return Submission(
            command=(self.python, "-c", COMMAND, way),
            options={**options, "if_lost": way},  # type: ignore[typeddict-item]
        )


@dataclass(slots=True)
class Killed:
    """What was done so far."""

    acknowledged: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Kill, look, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with runner_of_two_users() as runner:
        chance = random.Random(options.seed)
        # Every kind has its turn.
        turns = [chance.sample(options.only, len(options.only)) for _ in range(options.kills)]
        order = [kind for turn in turns for kind in turn][: options.kills]
        found = kill_often(runner, order, options.jobs, chance)
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name}: {value}" for name, value in found.items()))
    sys.exit(any(found[name] for name in FAULTS))


def kill_often(runner: Runner, order: list[str], jobs: int, chance: random.Random) -> dict[str, Any]:
    """Kill a process of each kind in turn; return what was counted."""
    with tempfile.TemporaryDirectory(prefix="slaq-kills-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        (home / "work").mkdir(mode=0o755)
        (home / "work" / "work.py").write_text(PROGRAM)
        done = Killed()
        while done.kills.total() < len(order):
            _serve(home, runner, jobs, order, done, chance)
        stuck = _go_on(home)
        return {"kills": dict(done.kills), "users": len(runner.users) or 1, **_counted(home, done), **stuck}


def _serve(
    home: Path, runner: Runner, jobs: int, order: list[str], done: Killed, chance: random.Random
) -> None:
    """Start a service, submit jobs, and kill what comes next in the order, until the service itself is killed."""
    service = _start(home)
    try:
        with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
            _until_up(client)
            while done.kills.total() < len(order):
                kind = order[done.kills.total()]

                def found(kind: str = kind) -> list[int]:
                    _submit_missing(client, runner, jobs, home, done)
                    return _victims(service.pid, kind)

                _submit_missing(client, runner, jobs, home, done)
                time.sleep(chance.uniform(0.2, 2.0))
                victims = _await(found)
                # Not a stop: nothing gets to write a last word.
                for pid in victims if kind == "everything" else [chance.choice(victims)]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                done.kills[kind] += 1
                if service.pid in victims:
                    return
    finally:
        service.kill()
        service.wait()


def _submit_missing(client: Client, runner: Runner, jobs: int, home: Path, done: Killed) -> None:
    """Keep so many jobs under way."""
    under_way = sum(not job.state.ended for job in client.jobs())
    for _ in range(jobs - under_way):
        done.acknowledged.append(client.send(runner.submission(len(done.acknowledged), home)).id)


def _go_on(home: Path) -> dict[str, Any]:
    """Start the service a last time; return how many jobs that have not ended tell no further loss."""
    # Under fair sharing, because a job that gains little else gets too little to begin again within the time.
    service = _start(home, "--policy", "fair")
    with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
        _until_up(client)
        last = {job.id: job.view.iteration for job in client.jobs() if not job.state.ended}
        deadline = time.monotonic() + PATIENCE
        while last and time.monotonic() < deadline:
            for job in client.jobs():
                # One that begins again counts from 0.
                if job.id in last and (job.state.ended or job.view.iteration not in (last[job.id], -1)):
                    del last[job.id]
            time.sleep(0.1)
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE)
    return {"jobs_stuck": len(last)}


def _start(home: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "slaq", "serve", "--home", str(home), "--epoch-seconds", "0.2", *options]
    with (home / "service.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=home)


def _until_up(client: Client) -> None:
    def answers() -> bool:
        with suppress(SlaqError):
            client.cluster()
            return True
        return False

    _await(answers)


def _await(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened for {PATIENCE:g} seconds")
        time.sleep(0.05)
    return found


# Who is who.


def _victims(service: int, kind: str) -> list[int]:
    """Return the processes of a kind; for `everything` all of them."""
    if kind == "service":
        return [service]
    parents = _descendants(service)
    said = {pid: _read(pid, "cmdline") for pid in parents}
    if kind == "everything":
        return [service, *parents]
    # Each is forked from the one before, and so looks like it: keeper, supervisor, and a reader for each user.
    # A command that is about to be executed looks like them too; only readers are at the root of all folders.
    kept = {pid for pid in parents if "commands.keeper" in said[pid]}
    keepers = [pid for pid in kept if parents[pid] == service]
    supervisors = [pid for pid in kept if parents[pid] in keepers]
    of_commands = {
        "keeper": keepers,
        "supervisor": supervisors,
        "reader": [pid for pid in kept if parents[pid] in supervisors and _link(pid, "cwd") == "/"],
    }
    if kind in of_commands:
        return of_commands[kind]
    servers = [
        pid
        for pid in parents
        if "fork_server" in said[pid] and "fork_server" not in said.get(parents[pid], "")
    ]
    if kind == "fork server":
        return servers
    # Workers and drivers look like the fork server they come from; only workers map the jobs' data.
    forked = [pid for pid in parents if parents[pid] in servers]
    workers = [pid for pid in forked if "memfd:slaq-data" in _read(pid, "maps")]
    if kind == "worker":
        return workers
    return [pid for pid in forked if pid not in workers and _link(pid, "fd/1").endswith("log.txt")]


def _descendants(root: int) -> dict[int, int]:
    """Return the parent of each process that descends from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat := _read(int(name), "stat")):
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return {pid: parents[pid] for pid in found[1:]}


def _read(pid: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    return ""


def _link(pid: int, name: str) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/{name}").readlink())
    return ""


@contextmanager
def runner_of_two_users() -> Iterator[Runner]:
    """Make two users for the time of the body, where this is root and they can run Python; else have one."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        yield Runner()
        return
    names = tuple(f"slaq-kills-{os.getpid()}-{number}" for number in (1, 2))
    try:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                _run("useradd", "--system", "--no-create-home", "--shell", "/bin/sh", name)
        yield _usable(names) or Runner()
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                _run("userdel", name)


def _usable(names: tuple[str, ...]) -> Runner | None:
    """Return a Python that these users can run: this one, or the system's of the same version with our packages."""
    import slaq

    source = str(Path(slaq.__file__).parents[1])
    packages = {"PYTHONPATH": os.pathsep.join([source, sysconfig.get_path("purelib")])}
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    tries: tuple[tuple[str, Mapping[str, str]], ...] = ((sys.executable, {}), (system, packages))
    for python, env in tries:
        with suppress(OSError, subprocess.CalledProcessError, KeyError):
            for name in names:
                pwd.getpwnam(name)
                _run(python, "-c", "import slaq.run_program, numpy", user=name, env=dict(env), cwd="/")
            return Runner(users=names, python=python, env=env)
    return None


def _run(*command: str, **options: Any) -> None:
    subprocess.run(command, check=True, capture_output=True, **options)


# What is left.


def _counted(home: Path, done: Killed) -> dict[str, Any]:
    """Return what is found once the service has stored all that it was told."""
    _tell_all(home)
    lost = doubled = false_starts = noted_in_all = skipped = 0
    ends: Counter[str] = Counter()
    with SqliteStore(home / "slaq.db") as store:
        known = {row.id: row for row in store.rows()}
        for row in known.values():
            place = home / "jobs" / row.id / "state"
            stored: Counter[int] = Counter()
            for curve in range(row.curve + 1):
                stored.update(int(one["token"]) for one in store.observations(row.id, curve=curve).metrics)
            noted = [int(line) for line in _lines(place / "noted")]
            noted_in_all += len(noted)
            lost += sum(token not in stored for token in noted)
            doubled += sum(count > 1 for count in stored.values())
            if row.id.startswith("program") and stored:
                skipped += max(stored) + 1 - len(stored)
            false_starts += _false_starts(_lines(place / "story"))
            if row.state.ended:
                ends[f"{row.state}: {row.reason[:120]}"] += 1
    return {
        "jobs": len(done.acknowledged),
        "jobs_lost": len(set(done.acknowledged) - set(known)),
        "jobs_ended": ends.total(),
        "reasons": dict(ends),
        "reports_noted": noted_in_all,
        "reports_lost": lost,
        "reports_doubled": doubled,
        "program_losses_skipped": skipped,
        "false_starts": false_starts,
    }


def _tell_all(home: Path) -> None:
    """Start the service once more: what the last runs reported is read when the next ones start."""
    service = _start(home)
    with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
        _until_up(client)
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE)


def _false_starts(story: list[str]) -> int:
    """Return how many runs began before where the one before had kept itself."""
    kept = wrong = 0
    for line in story:
        what, _, number = line.partition(" ")
        if what == "kept":
            kept = int(number)
        elif int(number) < kept:
            wrong += 1
    return wrong


def _lines(path: Path) -> list[str]:
    """Return the whole lines of a file; the last may be cut short by a kill."""
    return [line for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []


if __name__ == "__main__":
    main()
