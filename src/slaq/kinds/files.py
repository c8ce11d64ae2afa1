"""The folder of a job on this machine: who owns its files, and how the service reads and writes them."""

import json
import logging
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.core.errors import BusyError, ConflictError
from slaq.durable import Ownership, flush_folder, write_durably
from slaq.engines.files import LOG
from slaq.engines.node.commands.records import RunAs
from slaq.engines.node.commands.supervisor_client import REPORTS
from slaq.engines.node.commands.unread import Allowance, unread
from slaq.engines.node.reports import Reading
from slaq.engines.regular_file import NotRegularError, open_regular
from slaq.kinds.removal import RemovedFolders
from slaq.service.kinds import JobFiles
from slaq.service.records import LogChunk
from slaq.stores.sqlite.records import JobIdentity

#: Which submission the folder was made for.
STAMP = "stamp.json"
#: What a program job is, for the process that runs it.
DEFINITION = "job.json"
#: Where the reports of each process that sends them from elsewhere begin.
SOURCES = "sources.json"
#: The job's own folder: its usual working directory, where it keeps its checkpoints.
STATE = "state"
#: Bytes of a stamp, and of a file of sources; both are small unless damaged.
LONGEST_STAMP, LONGEST_SOURCES = 4096, 2**20
#: Processes that have reported for a job and are remembered: the last ones.
MOST_SOURCES = 256

#: Held while a name in the folder of all jobs changes hands.
_NAMES = threading.Lock()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFolder(JobFiles):
    """The folder of one job.

    The folder belongs to the service, so that nobody can put a link in the place of a file that the service
    reads or writes. The job owns its files in it and its `state` folder. A stamp, which only the service can
    read and write, says for which submission the folder was made: one with another stamp, or with none, is not
    this job's, and nothing in it is read or kept.
    """

    #: The folder with a folder for each job.
    jobs: Path
    job: JobIdentity

    @property
    def path(self) -> Path:
        """The folder."""
        return self.jobs / self.job.id

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

    @property
    def ours(self) -> bool:
        """Whether the folder at this place was made for this job."""
        return self._stamp() == self._own_stamp

    @contextmanager
    def made(self, owner: RunAs | None = None, definition: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Make the folder, unless it is there, for what is done inside; where that raises, a new one is removed."""
        whose = None
        if owner is not None and owner.uid != os.getuid():
            whose = Ownership(uid=owner.uid, gid=owner.gid)
        fresh = True
        try:
            fresh = self._claim(whose)
            if definition is not None:
                write_durably(self.definition, [json.dumps(definition).encode()], owner=whose)
            yield
        except BaseException:
            if fresh:
                with suppress(OSError):
                    self.remove()
            raise

    def make(self) -> None:
        """Make the folder of a job that runs elsewhere, unless it is there."""
        with self.made():
            pass

    def _claim(self, owner: Ownership | None) -> bool:
        """Make the folder unless it is there; return whether it was made.

        Whatever else lies at its place is moved out of the way, and never taken over. What is there already is
        not looked at: the job may have put something in its place that never answers.
        """
        self.jobs.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.jobs.chmod(0o711)
        with _NAMES:
            if self.ours:
                return False
            if os.path.lexists(self.path):
                _log.warning("folder of another job moved aside", extra={"job": self.job.id})
                self._removed.take(self.path, self.job.id)
            self.path.mkdir(mode=0o700)
            self._fill(owner)
            # Last, so that what was cut off is nobody's.
            write_durably(self.path / STAMP, [self._own_stamp])
            # An owner who is not the service has to pass through the folder, and may see nothing in it.
            self.path.chmod(0o711)
            flush_folder(self.jobs)
        return True

    def _fill(self, owner: Ownership | None) -> None:
        self.state.mkdir(mode=0o700)
        for path in (self.log, self.reports):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if owner is not None:
            for path in (self.state, self.log, self.reports):
                os.chown(path, owner.uid, owner.gid, follow_symlinks=False)

    @override
    def reports_size(self) -> int:
        if not self.ours:
            return 0
        try:
            file = open_regular(self.reports)
        except (FileNotFoundError, NotRegularError):
            return 0
        except BlockingIOError:
            # A lease, which only a regular file has, and which does not hide the size.
            return self.reports.lstat().st_size
        try:
            return os.fstat(file).st_size
        finally:
            os.close(file)

    def unread_reports(
        self, *, start: int, known: int, last: int = -1, allowance: Allowance
    ) -> Sequence[Reading]:
        """Return the losses that a run reported, from that byte on, after the first `known` or iteration `last`."""
        if not self.ours:
            return ()
        return unread(self.reports, start=start, known=known, last=last, allowance=allowance)

    @override
    def read_log(self, offset: int, limit: int, *, ended: bool) -> LogChunk:
        try:
            if not self.ours:
                raise FileNotFoundError
            with open(open_regular(self.log), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = max(size + offset, 0) if offset < 0 else min(offset, size)
                file.seek(start)
                data = file.read(min(limit, size - start))
        except (FileNotFoundError, NotRegularError):
            return LogChunk(offset=0, data=b"", next_offset=0, ended=ended)
        except BlockingIOError:
            raise BusyError(f"the log of {self.job.id}", "another process has leased it") from None
        except OSError as error:
            raise BusyError(f"the log of {self.job.id}", error.strerror or str(error)) from None
        end = start + len(data)
        return LogChunk(offset=start, data=data, next_offset=end, ended=ended and end >= size)

    def base_of(self, source: str, offset: int) -> int:
        """Return the byte at which the reports of a source begin; raises unless it is the last one that began.

        `offset` is how many bytes the source says were taken of it.
        """
        known = self._sources()
        if known is None:
            # Where the file is damaged the source is believed, and whoever reports next is the last one.
            known = {source: max(self.reports_size() - offset, 0)}
            self._keep_sources(known)
        elif source not in known:
            known[source] = self.reports_size()
            self._keep_sources(known)
        if source != list(known)[-1]:
            raise ConflictError(
                "another process has begun to report for this job", "report from one process only"
            )
        return known[source]

    def _sources(self) -> dict[str, int] | None:
        """Return where the reports of each source begin, in the order in which they began; None if damaged."""
        try:
            known = json.loads(_content(self.path / SOURCES, LONGEST_SOURCES))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            known = None
        if isinstance(known, dict) and known and all(type(at) is int and at >= 0 for at in known.values()):
            return known
        _log.warning("sources of reports are damaged", extra={"job": self.job.id})
        return None

    def _keep_sources(self, known: Mapping[str, int]) -> None:
        last = dict(list(known.items())[-MOST_SOURCES:])
        write_durably(self.path / SOURCES, [json.dumps(last).encode()])

    def append_reports(self, lines: bytes, *, offset: int) -> int:
        """Add reports that begin at that byte, but for what is there already; return the bytes there are now.

        Nothing is added where an earlier part is still missing. What is added is on disk when this returns.
        """
        with open(open_regular(self.reports, flags=os.O_RDWR | os.O_CREAT), "r+b") as file:
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
    def remove(self) -> str:
        with _NAMES:
            # A folder without a stamp was never finished, so it belongs to no job.
            if self._stamp() in (self._own_stamp, b""):
                with suppress(FileNotFoundError):
                    self._removed.take(self.path, self.job.id)
        return self._removed.delete({self.job.id}).get(self.job.id, "")

    @property
    def _removed(self) -> RemovedFolders:
        return RemovedFolders(self.jobs)

    @property
    def _own_stamp(self) -> bytes:
        return json.dumps(asdict(self.job)).encode()

    def _stamp(self) -> bytes | None:
        """Return the stamp of the folder at this place; nothing where the folder has none, None for no folder."""
        try:
            folder = self.path.lstat()
            if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid():
                return b""
            return _content(self.path / STAMP, LONGEST_STAMP)
        except FileNotFoundError:
            return b"" if os.path.lexists(self.path) else None
        except (NotRegularError, PermissionError):
            return b""


def _content(path: Path, most: int) -> bytes:
    """Return the beginning of a file of the service's own; one that another user owns is as good as empty."""
    with open(open_regular(path), "rb") as file:
        return file.read(most) if os.fstat(file.fileno()).st_uid == os.geteuid() else b""
