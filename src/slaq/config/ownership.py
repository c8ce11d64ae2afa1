"""Checks that nobody but root can change or replace what a service of root reads, writes and executes."""

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from slaq.config.service import ServiceSettings
from slaq.core.errors import SettingsError

#: Links that are followed from one path, as the kernel does.
MOST_LINKS = 40
#: What lies beside the database under its name.
_DATABASE = ("", "-wal", "-shm", ".lock", ".in-use")


def check_ownership(settings: ServiceSettings) -> None:
    """Raise SettingsError where somebody else could; a service that is not root has only its own rights to lose."""
    if os.geteuid() == 0:
        check_paths(_paths(settings))


def check_paths(paths: Iterable[Path]) -> None:
    """Raise SettingsError for paths that, or whose folders, somebody other than root owns or can write."""
    mistakes = {}
    for path in paths:
        for place in _places(path):
            found = _found(place)
            if found is not None:
                mistakes[place] = (
                    str(place),
                    f"the service runs as root and would trust what is here, but {found[0]}",
                    found[1],
                )
    if mistakes:
        raise SettingsError(list(mistakes.values()))


def _paths(settings: ServiceSettings) -> Iterator[Path]:
    yield from (settings.home, settings.jobs, settings.tokens)
    yield from (Path(f"{settings.database}{end}") for end in _DATABASE)
    yield from filter(None, (settings.config, settings.tls_cert, settings.tls_key, settings.listen.parent))


def _places(path: Path) -> Iterator[Path]:
    """Yield everything that decides what a path leads to: folders from the root on, links, where those lead."""
    left, place, links = list(reversed(path.absolute().parts[1:])), Path("/"), 0
    yield place
    while left:
        part = left.pop()
        if part == "..":
            place = place.parent
            continue
        here = place / part
        try:
            target = os.readlink(here)
        except OSError:
            place = here
            yield place
            continue
        yield here
        links += 1
        if links > MOST_LINKS:
            return
        if target.startswith("/"):
            place = Path("/")
        left += [one for one in reversed(Path(target).parts) if one != "/"]


def _found(place: Path) -> tuple[str, str] | None:
    """Return why somebody else can change what lies there, and what to do; None where nobody can."""
    try:
        about = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if about.st_uid != 0:
        return f"{_name(about.st_uid)} owns it", f"run chown root {place}, or name another place"
    if stat.S_ISLNK(about.st_mode):
        return None
    # In a folder such as /tmp others can add names, and neither remove nor rename what root owns.
    sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    # Root's own group is root.
    others = stat.S_IWOTH | (stat.S_IWGRP if about.st_gid else 0)
    if about.st_mode & others and not sticky:
        return "other users can write it", f"run chmod go-w {place}, or name another place"
    return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"
