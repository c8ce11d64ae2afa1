"""The files of a job: who owns them, and how the service reads what a user may have put there."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slaq.core.errors import ConflictError
from slaq.engines.files import LOG
from slaq.engines.processes.commands import REPORTS
from slaq.engines.processes.records import RunAs
from slaq.service.records import LogChunk

#: What a program job is, for the process that runs it.
DEFINITION = "job.json"
#: Where the reports of each process that sends them from elsewhere begin.
SOURCES = "sources.json"
#: The job's own place: its usual working directory, where it keeps what it wants to go on from.
STATE = "state"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The directory of one job.

    It belongs to the service, so that nobody can put a link in the place of a file which the service reads or
    writes. The job owns its files and its `state` directory.
    """

    directory: Path

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.directory / LOG

    @property
    def reports(self) -> Path:
        """What it reported."""
        return self.directory / REPORTS

    @property
    def state(self) -> Path:
        """Its own place."""
        return self.directory / STATE

    @property
    def definition(self) -> Path:
        """What a program job is."""
        return self.directory / DEFINITION

    def make(self, owner: RunAs | None, definition: Mapping[str, Any] | None) -> None:
        """Create what is not there yet."""
        # Others may pass through, which an owner who is not the service must, and see nothing.
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.directory.parent.chmod(0o711)
        self.directory.chmod(0o711)
        self.state.mkdir(exist_ok=True, mode=0o700)
        for path in (self.log, self.reports):
            path.touch(mode=0o600)
        made = [self.state, self.log, self.reports]
        if definition is not None:
            draft = self.definition.with_suffix(".new")
            draft.write_text(json.dumps(definition), encoding="utf-8")
            draft.chmod(0o600)
            draft.replace(self.definition)
            made.append(self.definition)
        if owner is not None and owner.uid != os.getuid():
            for path in made:
                os.chown(path, owner.uid, owner.gid)

    def log_size(self) -> int:
        """Return how much it has printed so far."""
        return _size(self.log)

    def reports_size(self) -> int:
        """Return the bytes it has reported so far."""
        return _size(self.reports)

    def read_log(self, offset: int, limit: int, *, ended: bool) -> LogChunk:
        """Return a piece of the log; a negative offset counts from the end."""
        size = self.log_size()
        start = max(size + offset, 0) if offset < 0 else min(offset, size)
        data = b""
        if start < size:
            with self.log.open("rb") as file:
                file.seek(start)
                data = file.read(limit)
        return LogChunk(
            offset=start, data=data, next_offset=start + len(data), ended=ended and start + len(data) >= size
        )

    def base_of(self, source: str) -> int:
        """Return where the reports of one source begin; the last source that began is the one that counts."""
        path = self.directory / SOURCES
        known: dict[str, int] = {}
        with suppress(FileNotFoundError):
            known = json.loads(path.read_text(encoding="utf-8"))
        if source not in known:
            known[source] = self.reports_size()
            draft = path.with_suffix(".new")
            draft.write_text(json.dumps(known), encoding="utf-8")
            draft.replace(path)
        if source != list(known)[-1]:
            raise ConflictError(
                "another process has begun to report for this job", "report from one process only"
            )
        return known[source]

    def append_reports(self, lines: bytes, *, offset: int) -> int:
        """Add what was reported elsewhere, unless it is there already; return how far the reports now reach.

        On disk when this returns.
        """
        with self.reports.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if offset > size:
                return size  # something before it is still to come
            fresh = lines[size - offset :]
            if fresh:
                file.write(fresh)
                file.flush()
                os.fdatasync(file.fileno())
            return size + len(fresh)

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
