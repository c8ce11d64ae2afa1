"""The schema, brought up to date by numbered migrations."""

import contextlib
import sqlite3
from importlib.resources import files
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreVersionError

#: Tells a database of slaq's from others: "SLAQ".
APPLICATION_ID = 0x534C4151


def migrations() -> list[str]:
    """Return the scripts in order; the schema's version is how many have been run."""
    found = sorted(
        (one for one in (files("slaq.stores") / "migrations").iterdir() if one.name.endswith(".sql")),
        key=lambda one: one.name,
    )
    assert [int(one.name[:4]) for one in found] == list(range(1, len(found) + 1))
    return [one.read_text(encoding="utf-8") for one in found]


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Run the migrations that are missing, each in a transaction; a copy of what was there before is kept."""
    scripts = migrations()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version):
        raise StoreCorruptError(str(path), "it is a database of another program")
    if version > len(scripts):
        raise StoreVersionError(str(path), version, len(scripts))
    if 0 < version < len(scripts):
        _keep_copy(connection, Path(f"{path}.version-{version}"))
    for number, script in enumerate(scripts[version:], start=version + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {number}; COMMIT;"
            )
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _keep_copy(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the database as it is, so that the slaq of before can be gone back to."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(partial)) as copy:
        connection.backup(copy)
    partial.chmod(0o600)
    partial.replace(target)
