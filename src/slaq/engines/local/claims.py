"""Who has the best claim to the next free core, by what each job was granted and has used."""

import math
from collections.abc import Mapping

from slaq.engines.buckets import Bucket, shift
from slaq.engines.local.runs import Run, Turn
from slaq.engines.local.turns import MOMENT

#: Seconds of lead over another job from which a core is kept for one that is away for a moment.
UNFAIR = 0.05
#: Seconds by which a program may run ahead of its grant where it may not borrow.
ALLOWANCE = 0.1

#: Who gets a core; where nobody does, until when at most it is kept for one that is away.
Choice = tuple[Run | None, float]
NOBODY: Choice = (None, math.inf)


class Claims:
    """The token buckets of all jobs; their leads are the claims."""

    def __init__(
        self, runs: Mapping[str, Run], cores: int, units_per_core: int, epoch_seconds: float
    ) -> None:
        self._runs = runs
        self._cores = cores
        self._units_per_core = units_per_core
        self._epoch_seconds = epoch_seconds
        self._filled_at = 0.0
        #: Whether every core is granted to programs, so that what one leaves idle is for the others to use.
        #: Else the rest belongs to jobs of another kind, and no program runs beyond its grant.
        self._lends = False

    def grant(self, units: Mapping[str, int], now: float) -> None:
        """Change what every job earns from now on; one that is not named earns nothing."""
        for run in self._runs.values():
            cores = units.get(run.job_id, 0) / self._units_per_core
            run.bucket.grant(cores, now, self._epoch_seconds)
        held = sum(bucket.cores for bucket in self._granted())
        self._lends = held > self._cores - 1 / self._units_per_core - 1e-9

    def fill(self, now: float) -> None:
        """Credit what was earned since the last time."""
        self._filled_at = now
        for run in self._runs.values():
            run.bucket.fill(now, self._epoch_seconds)

    def choose(self, now: float, least: int = 0) -> Choice:
        """Choose the job with the longest lead among those that want a core, and lend it what it lacks.

        Nothing is given to one that has fewer tasks to run than `least`.
        """
        wanting = [run for run in self._runs.values() if run.wants_core and run.bucket.cores > 0]
        if not wanting:
            return NOBODY
        if now != self._filled_at:
            self.fill(now)
        run = max(wanting, key=_lead) if len(wanting) > 1 else wanting[0]
        lead = run.bucket.lead()
        if len(run.queue) < least or (lead < -ALLOWANCE and not self._lends):
            return NOBODY
        kept_until = self._expected(lead + run.bucket.step() + UNFAIR)
        if kept_until > now:
            return None, kept_until
        if lead < 0 and self._lends:
            shift(self._granted(), -lead)
        return run, math.inf

    def settle(self) -> None:
        """Take out of all leads what all that work have in common: nobody can make it good."""
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
            if run.turn is Turn.RUNS and not run.seated and run.turn_wall < MOMENT:
                bucket = run.bucket
                if bucket.cores > 0 and bucket.lead() - bucket.step() > lead:
                    latest = max(latest, run.let_go_at + MOMENT)
        return latest

    def _granted(self) -> list[Bucket]:
        return [run.bucket for run in self._runs.values() if run.bucket.cores > 0]


def _lead(run: Run) -> float:
    return run.bucket.lead()
