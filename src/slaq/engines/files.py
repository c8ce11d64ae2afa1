"""The files of a job: a folder named after it, with its log and its checkpoint."""

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from slaq.durable import write_durably
from slaq.engines import checkpoints
from slaq.engines.regular_file import open_regular

#: In a job's directory: what its driver and its tasks print.
LOG = "log.txt"
#: How much of a log a reason quotes, in bytes and in lines.
TAIL_BYTES, TAIL_LINES = 4096, 20


def job_directory(home: Path, job_id: str) -> Path:
    """Return the folder of a job's files; any name is a valid folder."""
    name = quote(job_id, safe=" ")
    return home / (f"%2E{name[1:]}" if name.startswith(".") else name)


def open_log(directory: Path, checkpoint: bytes | None) -> int:
    """Make a job's directory ready; return its log, open for appending."""
    directory.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        # Remove what an earlier job of the same name left.
        for name in (checkpoints.FILE, LOG):
            (directory / name).unlink(missing_ok=True)
    else:
        write_durably(directory / checkpoints.FILE, [checkpoint])
    return open_regular(directory / LOG, flags=os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=0o644)


def last_lines(log: Path, start: int = 0) -> str:
    """Return the last lines of a log after byte `start`; empty if the log is empty or unreadable."""
    with suppress(OSError), open(open_regular(log), "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - TAIL_BYTES, min(start, end)))
        lines = file.read(TAIL_BYTES).decode(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])
    return ""
