"""Removes old decisions and ended jobs with their folders, when asked and as the settings say."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from slaq.config.service import ServiceSettings
from slaq.service.parts import Parts
from slaq.service.rounds import Rounds
from slaq.stores.sqlite.records import Pruned

#: Seconds between two rounds, and in a day.
INTERVAL, DAY = 600.0, 86_400.0

_log = logging.getLogger(__name__)


class Retention:
    """Prunes old decisions, and ended jobs where the settings say how long to keep them.

    What goes wrong with one step or one folder keeps the others from nothing; it is told, and tried again in
    the next round.
    """

    def __init__(self, settings: Callable[[], ServiceSettings], parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        #: The thread, and what is wrong.
        self.rounds = Rounds("upkeep", self.once, INTERVAL)

    def prune(self, *, dry_run: bool = False, **which: Any) -> Pruned:
        """Remove jobs with their folders, and decisions; return what was removed, and what is left of folders."""
        pruned = self._parts.store.prune(dry_run=dry_run, **which)
        if dry_run or not pruned.jobs:
            return pruned
        return replace(pruned, left=self._remove_folders(set(pruned.jobs)))

    def once(self) -> Sequence[str]:
        """Do one round; return what went wrong, in one sentence each."""
        troubles: list[str] = []
        settings = self._settings()
        with _noted(troubles, "old decisions are not removed"):
            self._parts.store.prune(keep_decisions=settings.keep_decisions)
        if settings.retention_days is not None:
            with _noted(troubles, "ended jobs are not removed"):
                before = self._parts.clock.now() - DAY * settings.retention_days
                self._parts.store.prune(before=before, keep_decisions=settings.keep_decisions)
        with _noted(troubles, "folders of removed jobs are not deleted"):
            left = {**self._remove_folders(), **self._parts.delete_removed(self.rounds.closing)}
            for job, why in left.items():
                _log.warning("folder of a removed job is left", extra={"job": job, "reason": why})
            if left:
                # Everyone reads troubles, and names of jobs and files are not for everyone.
                count = f"{len(left)} folder{'s' if len(left) > 1 else ''} of removed jobs"
                troubles.append(f"{count} could not be deleted yet; the log says why")
        return troubles

    def _remove_folders(self, jobs: Collection[str] | None = None) -> Mapping[str, str]:
        """Remove the folders of these removed jobs, or of all; return by job why something is left."""
        left: dict[str, str] = {}
        gone = []
        for job in self._parts.store.folders_to_remove():
            if self.rounds.closing():
                break
            if jobs is not None and job.id not in jobs:
                continue
            try:
                reasons = [reason for files in self._parts.kinds.files(job) if (reason := files.remove())]
                # What was moved out of the way is deleted sooner or later, and needs no note any more.
                gone.append(job)
            except OSError as error:
                reasons = [f"it cannot be moved out of the way ({error.strerror or error})"]
            if reasons:
                left[job.id] = reasons[0]
        self._parts.store.folders_removed(gone)
        return left


@contextmanager
def _noted(troubles: list[str], what: str) -> Iterator[None]:
    """Add what goes wrong inside to the troubles, and go on."""
    try:
        yield
    except Exception as error:
        _log.exception("upkeep failed", extra={"reason": str(error)})
        troubles.append(f"{what}; the log says why")
