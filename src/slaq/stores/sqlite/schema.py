"""The schema of the database, and its numbered migrations."""

import sqlite3
from importlib.resources import files
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreVersionError
from slaq.stores.sqlite import cores_migration
from slaq.stores.sqlite.copying import copy_database

#: The application id of slaq's databases: "SLAQ".
APPLICATION_ID = 0x534C4151


def migrations() -> list[str]:
    """Return the scripts in order; the schema's version is the number of scripts that have been run."""
    found = sorted(
        (one for one in (files("slaq.stores.sqlite") / "migrations").iterdir() if one.name.endswith(".sql")),
        key=lambda one: one.name,
    )
    assert [int(one.name[:4]) for one in found] == list(range(1, len(found) + 1))
    return [one.read_text(encoding="utf-8") for one in found]


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 for a new file; raise StoreError for other databases."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (tables or version):
        raise StoreCorruptError(str(path), "the file is a database of another program")
    if version > (known := len(migrations())):
        raise StoreVersionError(str(path), version, known)
    return int(version)


def upgrade(connection: sqlite3.Connection, path: Path, cores_per_unit: float) -> None:
    """Run the missing migrations, each in a transaction, after a copy of the database is made.

    Version 1 stores amounts in units of `cores_per_unit` cores. The connection must not enforce foreign keys yet,
    because a migration may replace a table.
    """
    version = check_version(connection, path)
    missing = migrations()[version:]
    if version and missing:
        # The copy lets the user return to the earlier version of slaq.
        kept = Path(f"{path}.version-{version}")
        kept.unlink(missing_ok=True)
        copy_database(connection, kept)
    cores_migration.register(connection, cores_per_unit)
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
