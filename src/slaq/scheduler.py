"""The epoch loop: events in, a decision, an allocation out. Start reading here."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from slaq.core.allocation import Policy
from slaq.core.appraisal import Appraisal, Appraiser, explain
from slaq.core.decision import Decision
from slaq.core.roster import Roster
from slaq.ports import Clock, Engine, Store


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Moves capacity, once an epoch, to the jobs that will improve most.

    The same object runs live, replayed and simulated: only its clock, engine and store differ.
    """

    engine: Engine
    store: Store
    clock: Clock
    policy: Policy
    appraiser: Appraiser
    roster: Roster
    epoch: int = 0
    #: What the last decision was made from; None before the first.
    appraisal: Appraisal | None = None

    def epochs(self) -> Iterator[Decision | None]:
        """Run epochs until no job is active or queued; yield each decision once it is in force."""
        while (decision := self.run_epoch()) is not None or self.store.pending():
            yield decision
            self.wait()

    def run_epoch(self) -> Decision | None:
        """Decide and grant once; return the decision, or None where no job is active."""
        # 1. Drain: what has happened goes into the store first, then into the histories.
        now = self.clock.now()
        for spec in self.store.due(now):
            self.roster.admit(spec, now)
            self.engine.start(spec, self.store.checkpoint(spec.id))
        events = self.engine.poll()
        self.store.append(events)
        began = time.process_time()
        self.roster.absorb(events)
        if not self.roster.ids:
            return None

        # 2. and 3. Forecast every active job in one array pass, and turn forecasts into gains.
        capacity = self.engine.capacity()
        appraisal = self.appraisal = self.appraiser.appraise(self.roster, capacity, now)

        # 4. Allocate: pure, so the simulator and the live cluster decide alike.
        allocation = self.policy.allocate(appraisal.candidates, capacity)

        # 5. Grant, and record the decision with the numbers it was made from.
        self.engine.grant(allocation)
        self.roster.hold(appraisal.rows, allocation, now)
        spent = time.process_time() - began
        decision = explain(appraisal, allocation, self.epoch, now, spent)
        self.store.record(decision, allocation)
        return decision

    def wait(self) -> None:
        """6. Wait for the next epoch; a late one is skipped, never queued up."""
        length = self.appraiser.epoch_seconds
        self.epoch = max(self.epoch + 1, math.ceil(self.clock.now() / length))
        self.clock.sleep_until(self.epoch * length)
