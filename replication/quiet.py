"""How quiet the machine is: what other programs use of it while we do nothing."""

import time
from pathlib import Path

from replication.intervals import estimate, percent

_STAT = Path("/proc/stat")
#: A machine that others use less of than this is quiet.
QUIET = 0.05


def busy_share(seconds: float = 1.0) -> float | None:
    """Return the share of all CPU time that is used while we wait; None where the system does not tell."""
    if not _STAT.exists():
        return None
    before = _times()
    time.sleep(seconds)
    passed = [after - start for start, after in zip(before, _times(), strict=True)]
    # Idle and waiting for disks, of: user, nice, system, idle, iowait, ...
    return 1.0 - sum(passed[3:5]) / max(sum(passed), 1)


def _times() -> list[int]:
    """Return clock ticks of all cores since the start, by what they were spent on (man proc_stat)."""
    fields = _STAT.read_text(encoding="ascii").split("\n", maxsplit=1)[0].split()[1:9]
    return [int(field) for field in fields]


def noise(shares: list[float | None]) -> str:
    """Return the sentence to write where other programs were busy meanwhile, else ""."""
    found = estimate(share for share in shares if share is not None)
    if not found["n"] or found["mean"] < QUIET:
        return ""
    return (
        f"The machine was not quiet: other programs used {percent(found)} of its CPU time in the second before "
        "each run, so seconds are too long and differences are noisy."
    )
