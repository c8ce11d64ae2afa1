"""Decides which program job gets the next free core, by what each was granted and has used."""

import math
from collections.abc import Callable, Mapping

from slaq.engines.buckets import Bucket, shift
from slaq.engines.node.programs.driver_handle import MOMENT, Turn
from slaq.engines.node.programs.program_run import ProgramRun

#: Seconds of lead over another job from which a core is kept for one that is away for a moment.
UNFAIR = 0.05
#: Seconds by which a program may run ahead of its grant where it may not borrow.
ALLOWANCE = 0.1
#: Cores that may be left over by rounding, or by jobs of another kind, while programs still borrow from each other.
LEFT_OVER = 0.05

#: Who gets a core; where nobody does, until when at most it is kept for one that is away.
Choice = tuple[ProgramRun | None, float]
NOBODY: Choice = (None, math.inf)


class CoreArbiter:
    """The token buckets of all program jobs; the job with the longest lead goes next."""

    def __init__(
        self, runs: Mapping[str, ProgramRun], capacity: Callable[[], float], epoch_seconds: float
    ) -> None:
        self._runs = runs
        self._capacity = capacity
        self._epoch_seconds = epoch_seconds
        self._filled_at = 0.0
        #: Whether all cores are for programs, so that what one leaves idle is for the others to use. Else the rest
        #: belongs to jobs of another kind, and no program runs beyond its grant.
        self._lends = False

    def grant(self, cores: Mapping[str, float], room: float, now: float) -> None:
        """Change what every job earns from now on; one that is not named earns nothing.

        `room` is the cores that programs may use together.
        """
        for run in self._runs.values():
            run.bucket.grant(cores.get(run.job_id, 0.0), now, self._epoch_seconds)
        self._lends = room > self._capacity() - LEFT_OVER

    def fill(self, now: float) -> None:
        """Credit what was earned since the last time."""
        self._filled_at = now
        for run in self._runs.values():
            run.bucket.fill(now, self._epoch_seconds)

    def choose(self, now: float, least: int = 0) -> Choice:
        """Choose the job with the longest lead among those that want a core; raise all leads if that is below 0.

        Choose nobody where that job has fewer tasks to run than `least`.
        """
        wanting = [run for run in self._runs.values() if run.wants_core and run.bucket.cores > 0]
        if not wanting:
            return NOBODY
        if now != self._filled_at:
            self.fill(now)
        run = max(wanting, key=_lead) if len(wanting) > 1 else wanting[0]
        lead = run.bucket.lead()
        if len(run.map.queue) < least or (lead < -ALLOWANCE and not self._lends):
            return NOBODY
        kept_until = self._expected(lead + run.bucket.step() + UNFAIR)
        if kept_until > now:
            return None, kept_until
        if lead < 0 and self._lends:
            shift(self._granted(), -lead)
        return run, math.inf

    def settle(self) -> None:
        """Subtract the shortest lead of the working jobs from all leads: nobody can make up for that."""
        busy = [
            bucket.lead() for run in self._runs.values() if (bucket := run.bucket).cores > 0 and run.works
        ]
        if busy and (least := min(busy)) > 0:
            shift(self._granted(), -least)

    def _expected(self, lead: float) -> float:
        """Return until when to keep a core for a job with a longer lead than this that will want it at once.

        A job is away for a moment between two of its maps. Lending its core each time would give one that
        has few tasks to a map no more than anyone else, whatever it was granted. 0 where there is none.
        """
        latest = 0.0
        for run in self._runs.values():
            driver = run.driver
            if driver.turn is Turn.RUNS and not driver.holds_core and driver.usual_seconds < MOMENT:
                bucket = run.bucket
                if bucket.cores > 0 and bucket.lead() - bucket.step() > lead:
                    latest = max(latest, driver.resumed_at + MOMENT)
        return latest

    def _granted(self) -> list[Bucket]:
        return [run.bucket for run in self._runs.values() if run.bucket.cores > 0]


def _lead(run: ProgramRun) -> float:
    return run.bucket.lead()
