"""Convert a job's options to its spec."""

from typing import cast

from slaq.core.demand import Demand, Sizes
from slaq.core.job import JobSpec
from slaq.jobs.options import BEST_FIRST, JobOptions


def spec_of(
    asked: JobOptions, job_id: str, *, now: float, ceiling: float | None = None, owner: str = ""
) -> JobSpec:
    """Return the spec of a job submitted at `now`; every option of its set is given.

    `ceiling` is the most cores that the job could use, independent of what its owner asks for; None for no limit.
    """
    limits = [cores for cores in (asked["max_cores"], ceiling) if cores is not None]
    most = min(limits) if limits else None
    least, deadline = asked["min_cores"], asked["deadline"]
    demand = Demand(
        least=least if most is None else min(least, most),
        most=most,
        sizes=cast(Sizes, asked["sizes"]),
        memory=cast("int | None", dict(asked).get("memory")),
    )
    return JobSpec(
        id=job_id,
        arrival=now + asked["arrival"],
        trains=asked["trains"],
        maximize=asked["maximize"],
        weight=asked["weight"],
        demand=demand,
        target_loss=asked["target_loss"],
        owner=owner,
        deadline=None if deadline is None else now + deadline,
        stop_at=asked["stop_at"],
        max_iterations=asked["max_iterations"],
        after=tuple(asked["after"]),
        after_any=tuple(asked["after_any"]),
        group=asked["group"] or "",
        best_first=asked["policy"] == BEST_FIRST,
        stop_losers=asked["stop_losers"],
    )
