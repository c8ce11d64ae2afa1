"""Remembers by how much more threads made the runs of a script faster, for its next starts."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from statistics import median

from slaq.durable import write_durably
from slaq.engines.node.commands.records import CommandSpec

#: Scripts that are remembered, and runs of each with one number of threads.
MOST_SCRIPTS, MOST_RUNS = 500, 5
#: Iterations that a run has made at least when it is counted.
FEWEST_ITERATIONS = 5
#: More threads are of use where they make a script faster by this part of what they could at best.
WORTH_IT = 0.3

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Experience:
    """Iterations per second of running, by script and number of threads. Lives in one thread."""

    #: Where it is kept; None to forget it with this process.
    path: Path | None = None
    _speeds: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None:
            self._speeds = _read(self.path)

    def note(self, script: str, threads: int, iterations: int, run_seconds: float) -> None:
        """Remember a run that made so many iterations in so many seconds in which it was let run."""
        if iterations < FEWEST_ITERATIONS or run_seconds <= 0.0:
            return
        by_threads = self._speeds.pop(script, {})
        runs = by_threads.setdefault(threads, [])
        runs.append(iterations / run_seconds)
        del runs[:-MOST_RUNS]
        # The script of the last run is the last: the others are forgotten first.
        self._speeds[script] = by_threads
        while len(self._speeds) > MOST_SCRIPTS:
            del self._speeds[next(iter(self._speeds))]
        self._keep()

    def useful(self, script: str) -> int | None:
        """Return the number of threads beyond which more did not make the script faster; None if unknown."""
        speeds = {threads: median(runs) for threads, runs in self._speeds.get(script, {}).items()}
        if len(speeds) < 2:
            return None
        fewest = min(speeds)
        worth = fewest
        for threads in sorted(speeds):
            gained = speeds[threads] / speeds[worth] - 1.0
            if gained >= WORTH_IT * (threads / worth - 1.0):
                worth = threads
        return None if worth == max(speeds) else worth

    def _keep(self) -> None:
        if self.path is None:
            return
        try:
            write_durably(self.path, [json.dumps(self._speeds).encode()])
        except OSError as error:
            _log.warning("speeds of scripts not kept", extra={"reason": str(error)})


def script_of(spec: CommandSpec) -> str:
    """Return what tells one script from others: its owner, and its words up to the script, where it runs."""
    words = list(spec.argv)
    place = next((at for at, word in enumerate(words) if PurePath(word).suffix in (".py", ".sh", ".R")), 0)
    user = "" if spec.run_as is None else str(spec.run_as.uid)
    named = json.dumps([user, str(spec.cwd or ""), words[: place + 1]])
    return hashlib.sha256(named.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _read(path: Path) -> dict[str, dict[int, list[float]]]:
    try:
        kept = json.loads(path.read_bytes())
        return {str(script): _runs(by_threads) for script, by_threads in kept.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        _log.warning("speeds of scripts forgotten", extra={"path": str(path), "reason": str(error)})
        return {}


def _runs(by_threads: dict[str, Sequence[float]]) -> dict[int, list[float]]:
    return {int(threads): [float(speed) for speed in speeds] for threads, speeds in by_threads.items()}
