"""The folder of a job on this machine: who owns its files, and how the service reads and writes them."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.core.errors import ConflictError
from slaq.engines.files import LOG
from slaq.engines.node.commands.records import RunAs
from slaq.engines.node.commands.supervisor_client import REPORTS
from slaq.service.kinds import JobFiles
from slaq.service.records import LogChunk

#: What a program job is, for the process that runs it.
DEFINITION = "job.json"
#: Where the reports of each process that sends them from elsewhere begin.
SOURCES = "sources.json"
#: The job's own folder: its usual working directory, where it keeps its checkpoints.
STATE = "state"


@dataclass(frozen=True, slots=True)
class JobFolder(JobFiles):
    """The folder of one job.

    The folder belongs to the service, so that nobody can put a link in the place of a file that the service
    reads or writes. The job owns its files in it and its `state` folder.
    """

    path: Path

    @property
    @override
    def directory(self) -> str:
        return str(self.path)

    @property
    def log(self) -> Path:
        """What the job printed."""
        return self.path / LOG

    @property
    def reports(self) -> Path:
        """What the job reported."""
        return self.path / REPORTS

    @property
    def state(self) -> Path:
        """The job's own folder."""
        return self.path / STATE

    @property
    def definition(self) -> Path:
        """What a program job is."""
        return self.path / DEFINITION

    def make(self, owner: RunAs | None = None, definition: Mapping[str, Any] | None = None) -> None:
        """Create what does not exist yet; write the definition where there is one."""
        # An owner who is not the service has to pass through the folder, and may see nothing in it.
        self.path.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.path.parent.chmod(0o711)
        self.path.chmod(0o711)
        self.state.mkdir(exist_ok=True, mode=0o700)
        for path in (self.log, self.reports):
            path.touch(mode=0o600)
        made = [self.state, self.log, self.reports]
        if definition is not None:
            _replace(self.definition, json.dumps(definition))
            made.append(self.definition)
        if owner is not None and owner.uid != os.getuid():
            for path in made:
                os.chown(path, owner.uid, owner.gid)

    @override
    def reports_size(self) -> int:
        return _size(self.reports)

    @override
    def read_log(self, offset: int, limit: int, *, ended: bool) -> LogChunk:
        size = _size(self.log)
        start = max(size + offset, 0) if offset < 0 else min(offset, size)
        data = b""
        if start < size:
            with self.log.open("rb") as file:
                file.seek(start)
                data = file.read(limit)
        end = start + len(data)
        return LogChunk(offset=start, data=data, next_offset=end, ended=ended and end >= size)

    def base_of(self, source: str) -> int:
        """Return the byte at which the reports of a source begin; raises unless it is the last one that began."""
        path = self.path / SOURCES
        known: dict[str, int] = {}
        with suppress(FileNotFoundError):
            known = json.loads(path.read_text(encoding="utf-8"))
        if source not in known:
            known[source] = self.reports_size()
            _replace(path, json.dumps(known))
        if source != list(known)[-1]:
            raise ConflictError(
                "another process has begun to report for this job", "report from one process only"
            )
        return known[source]

    def append_reports(self, lines: bytes, *, offset: int) -> int:
        """Add reports that begin at that byte, but for what is there already; return the bytes there are now.

        Nothing is added where an earlier part is still missing. What is added is on disk when this returns.
        """
        with self.reports.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if offset > size:
                return size
            fresh = lines[size - offset :]
            if fresh:
                file.write(fresh)
                file.flush()
                os.fdatasync(file.fileno())
            return size + len(fresh)

    @override
    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole: a crash leaves the old one or the new one."""
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
