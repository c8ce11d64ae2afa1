"""The durable store: one SQLite database, read and written by one process."""

from slaq.stores.sqlite.store import SqliteStore as SqliteStore
