"""Runs ordinary scripts in the ways that people run them: a queue in the shell, all at once, and slaq."""

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slaq import SlaqError
from slaq.jobs.options import ServiceCommandOptions

#: Seconds after which a way is given up; scripts that have not ended by then never end.
PATIENCE = 900.0
#: Seconds between two looks at what the scripts have printed.
LOOK = 0.05
#: What the libraries of linear algebra and of boosted trees take the number of their threads from.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One ordinary script, and where this experiment finds its losses: slaq is not told."""

    path: Path
    #: The modules that it needs, besides those of Python.
    needs: tuple[str, ...]
    #: Finds the loss in its output; None where it prints none, so that its end counts.
    pattern: re.Pattern[str] | None
    #: What it is given on its command line.
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name, as the report has it."""
        return re.sub(r"[^\w.]+", "-", " ".join((self.path.stem, *self.arguments)))


@dataclass(slots=True)
class Run:
    """What one script did in one way: its losses, each with the seconds after which it was seen."""

    log: Path
    script: Script
    losses: list[tuple[float, float]] = field(default_factory=list)
    ended: float | None = None
    _read: int = 0
    _rest: str = ""

    def look(self, now: float) -> None:
        """Take in what it has printed since the last look."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._read)
                added = file.read()
        except FileNotFoundError:
            return
        self._read += len(added)
        *lines, self._rest = re.split(r"[\r\n]+", self._rest + added.decode(errors="replace"))
        for line in lines:
            found = None if self.script.pattern is None else self.script.pattern.search(line)
            if found is not None:
                self.losses.append((now, float(found[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What came of all scripts in one way."""

    runs: Mapping[str, Run]
    #: Seconds from the first submission to the last end.
    makespan: float
    #: CPU seconds of all scripts, and of what ran them.
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where scripts run and by which interpreter."""

    python: Path
    folder: Path
    cores: int

    def in_shell(self, scripts: Sequence[Script], *, at_once: int, threads: int | None = 1) -> Way:
        """Run the scripts as `xargs` does: in this order, so many at a time.

        Each is told to use so many threads; None tells it nothing.
        """
        with self._watched(scripts) as (runs, began, cpu):
            limits = {} if threads is None else dict.fromkeys(THREADS, str(threads))
            environment = self._environment() | limits
            words = [f"{self.folder / script.name}\n{shlex.join(self._words(script))}" for script in scripts]
            # The exit status of a script is kept beside its log; that file also says that the script has ended.
            step = 'cd "$0" && eval "$1" > log 2>&1; echo $? > status'
            command = ["xargs", "-d", "\n", "-n", "2", "-P", str(at_once), "sh", "-c", step]
            with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True) as xargs:
                assert xargs.stdin is not None
                xargs.stdin.write("\n".join(words) + "\n")
                xargs.stdin.close()
                self._follow(runs, began, lambda run: (run.log.parent / "status").exists())
                if xargs.poll() is None:
                    xargs.send_signal(signal.SIGTERM)
            return _way(runs, cpu)

    def under_slaq(
        self, scripts: Sequence[Script], *, policy: str, options: ServiceCommandOptions | None = None
    ) -> Way:
        """Submit the scripts to a service of their own, in this order and without any option but those given."""
        from slaq.client import connect

        with self._watched(scripts) as (runs, began, cpu):
            home = self.folder / "home"
            home.mkdir()
            socket = home / "slaq.sock"
            serve = [sys.executable, "-m", "slaq", "serve", "--home", str(home), "--policy", policy]
            serve += ["--cores", str(self.cores)]
            environment = self._environment() | {"SLAQ_HOME": str(home)}
            with (self.folder / "service.log").open("wb") as log:
                service = subprocess.Popen(serve, env=environment, stdout=log, stderr=log)
            try:
                with connect(f"unix://{socket}", patience=30.0) as client:
                    _wait_for(socket, service)
                    # The service is there already when people submit: it has started a process before.
                    client.submit_command(["true"], name="first").result()
                    began[0] = time.monotonic()
                    jobs = {}
                    for script in scripts:
                        own: ServiceCommandOptions = {
                            "name": script.name,
                            "cwd": str(self.folder / script.name),
                            "env": self._environment(),
                        }
                        own.update(options or {})
                        job = client.submit_command(self._words(script), **own)
                        runs[script.name].log = job.directory / "log.txt"
                        jobs[script.name] = job
                    ended = _Ends(jobs)
                    self._follow(runs, began, lambda run: run.script.name in ended.names)
                    for job in jobs.values():
                        job.cancel()
            finally:
                service.send_signal(signal.SIGTERM)
                service.wait()
            return _way(runs, cpu)

    def _words(self, script: Script) -> list[str]:
        return [str(self.python), str(script.path), *script.arguments]

    @contextmanager
    def _watched(self, scripts: Sequence[Script]) -> Iterator[tuple[dict[str, Run], list[float], float]]:
        """Give the runs of the scripts, each in a folder of its own, when they began, and the CPU time before."""
        runs = {}
        for script in scripts:
            place = self.folder / script.name
            place.mkdir(parents=True)
            runs[script.name] = Run(place / "log", script)
        yield runs, [time.monotonic()], _cpu_of_children()

    def _follow(self, runs: Mapping[str, Run], began: Sequence[float], over: Callable[[Run], bool]) -> None:
        """Look at the scripts until all have ended."""
        while any(run.ended is None for run in runs.values()):
            now = time.monotonic() - began[0]
            if now > PATIENCE:
                return
            for run in runs.values():
                if run.ended is None:
                    # Asked before the look, so that nothing printed before the end is missed.
                    gone = over(run)
                    run.look(now)
                    run.ended = now if gone else None
            time.sleep(LOOK)

    def _environment(self) -> dict[str, str]:
        """Return the environment of everything that runs: output arrives at once, and no thread is limited."""
        kept = {name: value for name, value in os.environ.items() if name not in THREADS}
        return kept | {"PYTHONUNBUFFERED": "1"}


class _Ends:
    """The names of the jobs that have ended, as the service tells it."""

    def __init__(self, jobs: Mapping[str, object]) -> None:
        self.names: set[str] = set()
        self._lock = threading.Lock()
        for name, job in jobs.items():
            job.add_done_callback(lambda _, name=name: self.names.add(name))  # type: ignore[attr-defined]


def _way(runs: Mapping[str, Run], cpu_before: float) -> Way:
    ends = [PATIENCE if run.ended is None else run.ended for run in runs.values()]
    return Way(runs=runs, makespan=max(ends), cpu_seconds=_cpu_of_children() - cpu_before)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for(socket: Path, service: "subprocess.Popen[bytes]") -> None:
    """Wait until the service listens."""
    until = time.monotonic() + 30.0
    while not socket.exists():
        if service.poll() is not None or time.monotonic() > until:
            raise SlaqError("the service of the experiment did not start; its log is beside its home")
        time.sleep(LOOK)
