"""The schema, brought up to date by numbered migrations."""

import sqlite3
from importlib.resources import files
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreVersionError
from slaq.stores.sqlite_copying import copy_database

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


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 for a new file; what this slaq cannot use is refused untouched."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version):
        raise StoreCorruptError(str(path), "it is a database of another program")
    if version > (known := len(migrations())):
        raise StoreVersionError(str(path), version, known)
    return int(version)


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Run the migrations that are missing, each in a transaction; a copy of what was there before is kept.

    The connection must not enforce foreign keys yet: a migration may have to replace a table.
    """
    version = check_version(connection, path)
    missing = migrations()[version:]
    if version and missing:
        # So that the slaq of before can be gone back to.
        kept = Path(f"{path}.version-{version}")
        kept.unlink(missing_ok=True)
        copy_database(connection, kept)
    for number, script in enumerate(missing, start=version + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {number}; COMMIT;"
            )
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
