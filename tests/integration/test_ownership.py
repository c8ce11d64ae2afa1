"""A service of root trusts no place that anybody else can change."""

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slaq.bootstrap import open_service
from slaq.config.ownership import check_paths
from slaq.config.service import ServiceSettings
from slaq.core.errors import SettingsError

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run a service of root")
#: What a service keeps in its home.
FILES = ("slaq.db", "slaq.db-wal", "slaq.db.lock", "slaq.db.in-use", "tokens.toml", "slaq.toml")
NOBODY = pwd.getpwnam("nobody")


def give(path: Path) -> None:
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)


def written_by_others(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def written_by_a_group(path: Path) -> None:
    os.chown(path, 0, NOBODY.pw_gid)
    path.chmod(path.stat().st_mode | 0o020)


@pytest.mark.parametrize("spoil", [give, written_by_others, written_by_a_group])
@pytest.mark.parametrize(
    "place",
    [
        "..",
        ".",
        "jobs",
        "slaq.db",
        "slaq.db-wal",
        "slaq.db.lock",
        "slaq.db.in-use",
        "tokens.toml",
        "slaq.toml",
    ],
)
def test_a_place_that_others_can_change_is_refused(
    tmp_path: Path, place: str, spoil: Callable[[Path], None]
) -> None:
    """Home, its parents, jobs, database, tokens and settings: the place is named, and nothing is started."""
    home = tmp_path / "parent" / "home"
    (home / "jobs").mkdir(parents=True)
    for name in FILES:
        (home / name).touch(mode=0o600)
    bad = (home / place).resolve()
    spoil(bad)
    settings = ServiceSettings(home=home, listen=home / "slaq.sock", config=home / "slaq.toml")
    with pytest.raises(SettingsError, match=rf"{bad}: the service runs as root .* run ch"):
        open_service(settings)
    assert (home / "slaq.db").stat().st_size == 0


@pytest.mark.parametrize("which", ["link", "its folder", "target", "parent of the target", "link on the way"])
def test_links_are_followed_to_where_they_lead(tmp_path: Path, which: str) -> None:
    """A link that somebody else can replace, at whatever step, is no safer than a folder."""
    target, between, links = tmp_path / "a" / "home", tmp_path / "b", tmp_path / "c"
    for folder in (target, between, links):
        folder.mkdir(parents=True)
    (between / "on").symlink_to(Path("..") / "a")
    (links / "home").symlink_to(between / "on" / "home")
    check_paths([links / "home"])
    give(
        {
            "link": links / "home",
            "its folder": links,
            "target": target,
            "parent of the target": tmp_path / "a",
            "link on the way": between / "on",
        }[which]
    )
    with pytest.raises(SettingsError, match="nobody owns it"):
        check_paths([links / "home"])


def test_what_only_root_can_change_is_taken(tmp_path: Path) -> None:
    """Folders such as /tmp, in which others cannot rename what root owns, and places that are not there yet."""
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "home").mkdir()
    check_paths([sticky / "home", sticky / "home" / "new" / "one", Path("/tmp")])
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    check_paths([loop])


def test_the_service_says_so_in_one_sentence(tmp_path: Path) -> None:
    """`slaq serve` ends with status 1, and names the place."""
    give(tmp_path)
    found = subprocess.run(
        [sys.executable, "-m", "slaq", "serve", "--home", tmp_path / "home"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert (
        f"{tmp_path}: the service runs as root and would trust what is here, but nobody owns it"
        in found.stderr
    )
    assert not (tmp_path / "home").exists()
