"""What of a job others may see where everyone may read all jobs: each answer about a job passes one of these."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from slaq.service.records import JobView, Notice

#: What a job's owner and admins alone see, with what others see in its place: all that a user wrote, or a job did.
WITHHELD: Mapping[str, Any] = {
    "reason": "",
    "summary": "",
    "directory": "",
    "tags": (),
    "loss_source": "",
    "loss_trouble": "",
    "threads_reason": "",
    "group": None,
    "parameters": {},
}
#: What everyone sees who may see the job.
# fmt: off
DISCLOSED = frozenset({
    "id", "owner", "state", "work", "trains", "maximize", "weight", "min_cores", "max_cores", "sizes", "memory",
    "arrival", "after", "after_any", "target_loss", "stop_at", "deadline", "submitted_at", "started_at", "ended_at",
    "cores", "can_use", "iteration", "total", "first_loss", "loss", "best_loss", "reduction", "diverged",
    "cpu_seconds", "attempts", "prospect", "policy", "stop_losers", "standing", "threads", "memory_peak",
})
# fmt: on
#: What everyone sees of a notice about a job that they may see, beside its kind, its moment, the job and its owner.
NOTICED = frozenset({"state", "iteration", "loss", "reduction", "cores", "diverged", "weight", "max_cores"})

# A field that is added must be given to one of the two sets.
assert {one.name for one in fields(JobView)} == DISCLOSED | WITHHELD.keys()
#: What others than admins are told of what troubles the service, because troubles may name jobs and paths.
TROUBLED = "something is wrong with the service; an admin sees what it is with `slaq cluster`"


def job_for_others(view: JobView) -> JobView:
    """Return a job without what it runs, where, its tags, and why it ended or waits."""
    return replace(view, **WITHHELD)


def notice_for_others(notice: Notice) -> Notice:
    """Return a notice about a job without what only the job's owner may see."""
    body = {name: value for name, value in notice.body.items() if name in NOTICED}
    hidden = {"reason": ""} if "reason" in notice.body else {}
    return replace(notice, body=body | hidden)


def observations_for_others(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return observations without metrics, whose names and numbers the job chose."""
    return [{**one, "metrics": {}} for one in found]


def troubles_for_others(troubles: Sequence[str]) -> tuple[str, ...]:
    """Return whether something is wrong, but not what."""
    return (TROUBLED,) if troubles else ()
