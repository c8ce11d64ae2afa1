"""A driver's turns: it is let go on, runs to its next map or report, and may hold a core meanwhile."""

import time

from slaq.engines.local import ancestry
from slaq.engines.local.runs import Run, Turn
from slaq.engines.local.wire import Head, Kind

#: Drivers whose turns between maps take less CPU than this need no core of their own for them.
SHORT = 0.002
#: Seconds for which a job is away between two maps at most, for its core to be kept.
MOMENT = 0.005
#: A driver that uses less than this share of the core it holds is waiting for something else.
BUSY = 0.2
#: Seconds between two looks at a driver from which they can tell what it uses.
APART = 0.025


def let_go(run: Run, *, seated: bool) -> None:
    """Let the driver go on, on a core of its own or on whatever there is."""
    assert run.driver is not None
    begin(run)
    run.seated = seated
    run.let_go_at = time.monotonic()
    if run.began_at is None:
        run.began_at = run.let_go_at
    run.driver.peer.send(Head(Kind.GO, x=run.bucket.cores))


def begin(run: Run) -> None:
    """Take note that the driver goes on."""
    run.turn = Turn.RUNS
    run.turn_began = run.driver_cpu
    run.looked = (0.0, 0.0)


def rest(run: Run) -> None:
    """Take note that the driver's turn is over."""
    run.seated = False
    used = run.driver_cpu - run.turn_began
    run.turn_cpu += 0.2 * (used - run.turn_cpu)
    run.turn_wall += 0.2 * (min(time.monotonic() - run.let_go_at, 2 * MOMENT) - run.turn_wall)


def goes_on_at_once(run: Run) -> bool:
    """Return whether the driver needs no core of its own for its next turn, as that will be short."""
    return run.turn_cpu < SHORT and run.bucket.cores > 0


def look(run: Run, now: float) -> None:
    """Account for a long turn while it lasts; a driver that waits for something else keeps no core."""
    assert run.driver is not None
    cpu = ancestry.cpu_seconds(run.driver.pid) if run.driver.pid else None
    before, at = run.looked
    if cpu is None:
        # Where nobody can tell, a turn of a second no longer keeps others from the core.
        run.seated = run.seated and now - run.let_go_at < 1.0
        return
    run.looked = (cpu, now)
    run.pay_driver(cpu)
    if at and now - at > APART:
        run.seated = run.seated and cpu - before > BUSY * (now - at)
