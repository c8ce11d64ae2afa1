"""What the service measures of itself, in the text form that Prometheus reads."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from slaq.core.job import JobState
from slaq.service.scheduling import Scheduling


class _Standing(Collector):
    """Reads everything at the moment it is asked for: nothing has to be kept up to date."""

    def __init__(self, work: Scheduling) -> None:
        self._work = work

    @override
    def collect(self) -> Iterable[Metric]:
        work = self._work
        jobs = list(work.board.jobs.values())
        yield from self._jobs()
        units = GaugeMetricFamily("slaq_user_units", "Units that a user's jobs hold.", labels=["user"])
        held: Tally[str] = Tally()
        for job in jobs:
            held[job.row.owner] += job.units
        for user, count in sorted(held.items()):
            units.add_metric([user], count)
        yield units
        decision = work.decision
        gauges = {
            "slaq_capacity_units": ("Units that can be handed out.", work.capacity),
            "slaq_granted_units": ("Units handed out.", 0 if decision is None else int(decision.units.sum())),
            "slaq_diverged_jobs": ("Jobs whose last loss is no number.", sum(job.diverged for job in jobs)),
            "slaq_epoch_seconds": ("Seconds that the last epoch took.", work.decide_seconds),
            "slaq_decision_age_seconds": (
                "Seconds since the last epoch.",
                max(work.clock.now() - work.decided_at, 0.0),
            ),
            "slaq_store_trouble": ("1 while the store cannot be written.", float(bool(work.ledger.trouble))),
            "slaq_scheduler_up": ("1 while the scheduler decides.", float(work.alive)),
        }
        for name, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(name, meaning, value=value)
        counters = {
            "slaq_epochs": ("Decisions made, over all restarts.", work.scheduler.epoch),
            "slaq_observations": ("Losses taken in since the start.", work.counts.observations),
            "slaq_late_epochs": ("Epochs that took longer than an epoch.", work.counts.late_epochs),
        }
        for name, (meaning, value) in counters.items():
            yield CounterMetricFamily(name, meaning, value=value)
        ended = CounterMetricFamily("slaq_jobs_ended", "Jobs that ended since the start.", labels=["state"])
        for state in JobState:
            if state.ended:
                ended.add_metric([str(state)], work.counts.ended[state])
        yield ended

    def _jobs(self) -> Iterator[Metric]:
        states = Tally(job.state for job in list(self._work.board.jobs.values()))
        jobs = GaugeMetricFamily("slaq_jobs", "Jobs that have not ended.", labels=["state"])
        for state in JobState:
            if not state.ended:
                jobs.add_metric([str(state)], states[state])
        yield jobs


def exposition(work: Scheduling) -> str:
    """Return all measures as text."""
    registry = CollectorRegistry()
    registry.register(_Standing(work))
    return generate_latest(registry).decode()
