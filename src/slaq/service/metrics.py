"""The metrics of the scheduler and the store, in the text format of Prometheus."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from slaq.core.job import JobState
from slaq.service.live_jobs import LiveJobs
from slaq.service.loop import EpochLoop
from slaq.service.parts import Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What metrics tell beside the loop and the jobs."""

    capacity: float
    #: The threads beside the scheduler's, by name.
    threads: Mapping[str, Watched]
    #: The only user of whom they tell; None for all.
    user: str | None


class _Metrics(Collector):
    """Reads every value when it is asked for."""

    def __init__(self, loop: EpochLoop, live_jobs: LiveJobs, shown: Shown) -> None:
        self._loop = loop
        self._live_jobs = live_jobs
        self._shown = shown

    @override
    def collect(self) -> Iterable[Metric]:
        yield from self._jobs()
        yield from self._users()
        yield from self._background()
        for name, (meaning, value) in self._gauges().items():
            yield GaugeMetricFamily(name, meaning, value=value)
        for name, (meaning, value) in self._counters().items():
            yield CounterMetricFamily(name, meaning, value=value)
        ended = CounterMetricFamily("slaq_jobs_ended", "Jobs that ended since the start.", labels=["state"])
        for state in JobState:
            if state.ended:
                ended.add_metric([str(state)], self._live_jobs.counts.ended[state])
        yield ended

    def _jobs(self) -> Iterator[Metric]:
        states = Tally(job.state for job in list(self._live_jobs.jobs.values()))
        jobs = GaugeMetricFamily("slaq_jobs", "Jobs that have not ended.", labels=["state"])
        for state in JobState:
            if not state.ended:
                jobs.add_metric([str(state)], states[state])
        yield jobs

    def _users(self) -> Iterator[Metric]:
        cores = GaugeMetricFamily("slaq_user_cores", "Cores that a user's jobs hold.", labels=["user"])
        held: dict[str, float] = {}
        for job in list(self._live_jobs.jobs.values()):
            held[job.row.owner] = held.get(job.row.owner, 0.0) + job.cores
        for user, count in sorted(held.items()):
            if self._shown.user in (None, user):
                cores.add_metric([user], count)
        yield cores

    def _background(self) -> Iterator[Metric]:
        status = self._loop.status
        up = GaugeMetricFamily("slaq_thread_up", "1 while a thread of the service runs.", labels=["thread"])
        troubles = GaugeMetricFamily(
            "slaq_thread_troubles", "What went wrong in a thread's last round.", labels=["thread"]
        )
        standing = {"scheduler": (status.alive, int(bool(status.trouble)))}
        standing |= {name: (one.alive, len(one.troubles)) for name, one in self._shown.threads.items()}
        for name, (alive, count) in standing.items():
            up.add_metric([name], float(alive))
            troubles.add_metric([name], count)
        yield from (up, troubles)

    def _gauges(self) -> dict[str, tuple[str, float]]:
        status, jobs = self._loop.status, list(self._live_jobs.jobs.values())
        age = max(self._live_jobs.clock.now() - status.decided_at, 0.0)
        return {
            "slaq_capacity_cores": ("Cores that can be handed out.", self._shown.capacity),
            "slaq_granted_cores": ("Cores handed out.", self._loop.decided.granted),
            "slaq_diverged_jobs": (
                "Jobs whose last loss is not a finite number.",
                sum(job.losses.diverged for job in jobs),
            ),
            "slaq_epoch_seconds": ("Seconds that the last epoch took.", status.seconds),
            "slaq_decision_age_seconds": ("Seconds since the last epoch.", age),
            "slaq_store_trouble": ("1 while the store cannot be written.", float(bool(status.store_trouble))),
            "slaq_scheduler_up": ("1 while the scheduler decides.", float(status.alive)),
        }

    def _counters(self) -> dict[str, tuple[str, float]]:
        status = self._loop.status
        return {
            "slaq_epochs": ("Decisions made, over all restarts.", status.epoch),
            "slaq_observations": ("Losses read since the start.", self._live_jobs.counts.observations),
            "slaq_late_epochs": ("Epochs that took longer than an epoch.", status.late_epochs),
        }


def exposition(loop: EpochLoop, live_jobs: LiveJobs, shown: Shown) -> str:
    """Return the metrics as text."""
    registry = CollectorRegistry()
    registry.register(_Metrics(loop, live_jobs, shown))
    return generate_latest(registry).decode()
