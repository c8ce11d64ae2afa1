"""Three ways to train with a number of workers that changes: slaq.elastic, torchrun, and checkpoints by hand."""

import json
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq import SlaqError
from slaq.engines.node.share_file import ShareFile
from slaq.jobs import variables
from slaq.jobs.share import Share

HERE = Path(__file__).parent
PROGRAMS = HERE / "elastic_programs"
#: Seconds after which what has not happened never will.
PATIENCE = 120.0
#: Seconds between two looks at what was written.
LOOK = 0.02
#: More updates than any run here makes.
ENDLESS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One update, as the training told of it."""

    at: float
    number: int
    workers: int
    #: Of all weights after the update.
    checksum: int
    #: Samples that the weights have not learned from, or learned from too often, in whole passes.
    lost: float
    twice: float
    #: Of the workers besides the process that writes.
    pids: tuple[int, ...]


@dataclass(slots=True)
class DiaryReader:
    """What a training has told so far."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    _read: int = 0
    _rest: bytes = b""

    def look(self) -> list[Line]:
        """Return all lines, with those added since the last look."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            added = file.read()
            self._read += len(added)
            *whole, self._rest = (self._rest + added).split(b"\n")
            self.lines += [line_of(json.loads(one)) for one in whole]
        return self.lines

    @property
    def reached(self) -> int:
        """The highest number of an update so far."""
        return max((line.number for line in self.look()), default=0)


def line_of(told: Mapping[str, Any]) -> Line:
    """Return a line as it was written."""
    return Line(**{**told, "pids": tuple(told["pids"])})


class ElasticWay(ABC):
    """One training in a folder of its own, whose workers come, go and are killed."""

    script: str
    #: The role of the process whose end `kill_leader` brings about.
    leader = "process of rank 0"

    def __init__(self, python: Path, folder: Path, every: float, updates: int = ENDLESS) -> None:
        self.python, self.folder, self.every, self.updates = python, folder, every, updates
        folder.mkdir()
        self.diary = DiaryReader(folder / "diary")
        self._processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def resize(self, workers: int) -> None:
        """Go on with so many workers; the first time, start."""

    @abstractmethod
    def kill_worker(self) -> None:
        """Kill the worker that came last, and do what a user then has to do."""

    @abstractmethod
    def kill_leader(self) -> None:
        """Kill the process that leads, and do what a user then has to do."""

    def end(self) -> None:
        """Kill all that is left."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def follow(self, until: Callable[[list[Line]], bool]) -> None:
        """Wait until that has been told."""
        limit = time.monotonic() + PATIENCE
        while not until(self.diary.look()):
            if time.monotonic() > limit:
                said = (self.folder / "output").read_text(errors="replace")[-2000:]
                raise SlaqError(
                    f"{type(self).__name__} told nothing for {PATIENCE:g} s; its output ends:\n{said}"
                )
            time.sleep(LOOK)

    def _launch(self, words: list[str], **more: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)} | more
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [str(self.python), *words], env=environment, stdout=output, stderr=output
            )
        self._processes.append(process)
        return process

    @property
    def _script(self) -> list[str]:
        words = [str(PROGRAMS / self.script), str(self.folder), "--updates", str(self.updates)]
        return [*words, "--every", str(self.every)]


class SlaqElastic(ElasticWay):
    """`slaq.elastic`, which is told its share as every job on a node of slaq is."""

    script = "elastic_loop.py"
    leader = "driver"

    def __init__(self, python: Path, folder: Path, every: float, updates: int = ENDLESS) -> None:
        super().__init__(python, folder, every, updates)
        self._share = ShareFile(folder)

    @override
    def resize(self, workers: int) -> None:
        self._share.write(Share(cores=float(workers), workers=float(workers)))
        if not self._processes:
            self._start()

    @override
    def kill_worker(self) -> None:
        os.kill(self.diary.look()[-1].pids[-1], signal.SIGKILL)

    @override
    def kill_leader(self) -> None:
        self.end()
        self._start()

    def _start(self) -> None:
        self._launch(self._script, **{variables.SHARE: str(self._share.path)})


class ByHand(ElasticWay):
    """The script with DistributedDataParallel, stopped and started again by its user, who is at it at once."""

    script = "replicated_loop.py"

    @override
    def resize(self, workers: int) -> None:
        if self._processes:
            # The process of rank 0 saves and ends; the others are of no use without it.
            self._processes[0].terminate()
            self._processes[0].wait()
            self.end()
        self._start(workers)

    @override
    def kill_worker(self) -> None:
        self._kill(-1)

    @override
    def kill_leader(self) -> None:
        self._kill(0)

    def _kill(self, place: int) -> None:
        workers = len(self._processes)
        self._processes[place].kill()
        self.end()
        self._start(workers)

    def _start(self, workers: int) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(workers)}
        for rank in range(workers):
            self._launch(self._script, RANK=str(rank), **place)


class Torchrun(ElasticWay):
    """The same script under torchrun, one agent for each worker; any change starts all workers again."""

    script = "replicated_loop.py"

    def __init__(self, python: Path, folder: Path, every: float, updates: int = ENDLESS) -> None:
        super().__init__(python, folder, every, updates)
        self._port = free_port()

    @override
    def resize(self, workers: int) -> None:
        while len(self._processes) > workers:
            self._processes.pop().terminate()
        while len(self._processes) < workers:
            self._start()

    @override
    def kill_worker(self) -> None:
        os.kill(self._pid(1), signal.SIGKILL)

    @override
    def kill_leader(self) -> None:
        os.kill(self._pid(0), signal.SIGKILL)

    @override
    def end(self) -> None:
        super().end()
        # Agents start their workers in sessions of their own.
        for path in self.folder.glob("rank-*"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)

    def _pid(self, rank: int) -> int:
        return int((self.folder / f"rank-{rank}").read_text())

    def _start(self) -> None:
        agent = ["-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=100"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=price"]
        # By default 30 s for latecomers, and 15 s until an agent that left is missed.
        meeting.append("--rdzv-conf=last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3")
        # Else workers that are started again may wait for a store that has gone with another agent's worker.
        self._launch([*agent, *meeting, *self._script], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
