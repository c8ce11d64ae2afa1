"""The files of a job: a folder named after it, with what it printed and what it last kept."""

import os
from pathlib import Path
from urllib.parse import quote

from slaq.engines.local import checkpoints

#: In a job's directory: what its driver and its tasks print.
LOG = "log.txt"


def job_directory(home: Path, job_id: str) -> Path:
    """Return where a job's files are, whatever its name."""
    name = quote(job_id, safe=" ")
    return home / (f"%2E{name[1:]}" if name.startswith(".") else name)


def open_log(directory: Path, checkpoint: bytes | None) -> int:
    """Make a job's directory ready; return its log, open for appending."""
    directory.mkdir(parents=True, exist_ok=True)
    if checkpoint is None:
        # An earlier job of the same name is no part of this one.
        for name in (checkpoints.FILE, LOG):
            (directory / name).unlink(missing_ok=True)
    else:
        (directory / checkpoints.FILE).write_bytes(checkpoint)
    return os.open(directory / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
