"""Results on disk, each with the machine, versions, seeds and seconds it came from."""

import json
import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from replication.experiment import Experiment, Results, Settings
from slaq import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The results of one experiment with how they came about, as kept in results/<name>.json."""

    experiment: str
    results: Results
    #: Machine, versions, seeds and seconds.
    made: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Keep the record; a file is replaced whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {"experiment": self.experiment, "made": dict(self.made), "results": _plain(self.results)},
            indent=1,
        )
        fresh = folder / f"{self.experiment}.json.new"
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(folder / f"{self.experiment}.json")

    @classmethod
    def read(cls, folder: Path, name: str) -> "Record | None":
        """Return what is kept of an experiment, or None."""
        try:
            content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(experiment=content["experiment"], results=content["results"], made=content["made"])


def carry_out(experiment: Experiment, settings: Settings) -> Record:
    """Run one experiment and return its record."""
    began = time.monotonic()
    results = experiment.run(settings)
    made = {
        "machine": machine(),
        "python": platform.python_version(),
        "slaq": __version__,
        "quick": settings.quick,
        "seeds": list(settings.seeds),
        "seconds": round(time.monotonic() - began, 1),
    }
    # Through JSON and back, so that fresh results and those read from disk are the same thing.
    return Record(experiment=experiment.name, results=json.loads(json.dumps(_plain(results))), made=made)


def machine() -> str:
    """Return this machine in a few words: cores, processor, memory."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        name = names[0] if names else name
    return f"{cores} cores ({name}), {memory:.0f} GB of memory, {platform.system()}"


def _plain(value: Any) -> Any:
    """Return the value with arrays as lists, long floats shortened, and what JSON cannot hold as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, np.integer):
        return int(value)
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
