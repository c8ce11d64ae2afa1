"""A process that writes epochs into a store and tells of each once it is kept: for tests that end it at any moment.

Each line of its input lets it fork a writer; with the input it ends. A writer tells its process number, then
every epoch that has been committed. An epoch is one observation of every job, and a decision.
"""

import os
import sys

from slaq.core.job import JobSpec
from slaq.stores.sqlite import SqliteStore
from slaq.testing.store_contract import decision, grant, observed

#: How many jobs report in every epoch.
JOBS = 3


def write_epoch(store: SqliteStore, epoch: int) -> None:
    """Write one epoch."""
    with store.epoch():
        store.append([observed(f"job-{number}", epoch) for number in range(JOBS)])
        store.record(decision(epoch), grant())
        if epoch % 5 == 0:
            store.save_snapshot(b"state" * 1000, at=float(epoch))


def open_with_jobs(path: str) -> SqliteStore:
    """Open the store and submit the jobs that are missing."""
    store = SqliteStore(path)
    for number in range(len(store.rows()), JOBS):
        store.submit(JobSpec(id=f"job-{number}"))
    return store


def tell(line: str) -> None:
    """Say one thing, at once."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _write_until_ended(path: str) -> None:
    tell(f"pid {os.getpid()}")
    store = open_with_jobs(path)
    epoch = store.job("job-0").iteration + 1
    while True:
        write_epoch(store, epoch)
        tell(f"kept {epoch}")
        epoch += 1


def main() -> None:
    path = sys.argv[1]
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            _write_until_ended(path)
        os.waitpid(child, 0)
        tell("gone")


if __name__ == "__main__":
    main()
