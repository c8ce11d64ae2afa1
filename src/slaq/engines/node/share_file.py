"""Tells a job what it holds, in a small file that the job can read and not write."""

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from slaq.jobs.share import FILE, Share

_log = logging.getLogger(__name__)


class ShareFile:
    """One job's share on disk: replaced whole, and only when it changes.

    The file belongs to whoever runs the node; the group of the job's user may read it. It need not survive a loss
    of power: the job that it speaks to would not either.
    """

    def __init__(self, directory: Path, group: int | None = None) -> None:
        self.path = directory / FILE
        #: The group of a user other than the node's own.
        self._group = group
        self._written: Share | None = None
        self._failed = False

    def write(self, share: Share) -> None:
        """Replace the share; if that fails, the old one stays and a warning is logged once."""
        if share == self._written:
            return
        try:
            self._replace(json.dumps(asdict(share)).encode())
        except OSError as error:
            if not self._failed:
                _log.warning("share not written", extra={"path": str(self.path), "reason": str(error)})
            self._failed = True
        else:
            self._written, self._failed = share, False

    def _replace(self, content: bytes) -> None:
        draft = self.path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        # Created, never opened: nothing that lies under this name is written to or followed.
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            os.write(file, content)
            if self._group is not None:
                os.fchown(file, -1, self._group)
                os.fchmod(file, 0o440)
        finally:
            os.close(file)
        os.replace(draft, self.path)
