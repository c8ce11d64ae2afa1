"""Laws of how jobs are shown: quickly where nothing has changed, and never as they were before a change."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from slaq.core.job import JobState
from slaq.service.live_job import UNKNOWN, LiveJob
from slaq.service.records import Identity, JobView, Prospect, Submission
from slaq.service.service import Service
from slaq.web import responses
from tests.integration.opening import ANN, BOB
from tests.integration.serving import until

OpenService = Callable[..., Service]
#: What may happen to a job, by the attributes of `LiveJob` that it changes.
CHANGES: list[dict[str, Any]] = [
    {"waiting": "waits for a friend"},
    {"delayed": "has no memory"},
    {"iteration": 7},
    {"total": 70},
    {"loss_source": "the log"},
    {"loss_trouble": "too many"},
    {"threads": 2},
    {"threads_reason": "as it asked"},
    {"memory_peak": 2**20},
    {"cpu_seconds": 3.5},
    {"cores": 0.25},
    {"reduction": 0.5},
    {"prospect": Prospect(at_90=5.0)},
    {"prospect": UNKNOWN},
]


def shown(service: Service, who: Identity) -> list[dict[str, Any]]:
    """Return what the API lists."""
    body = responses.reply_jobs(service.jobs(who, limit=1000), None, None).body
    return list(json.loads(bytes(body))["jobs"])


def fresh(job: LiveJob) -> JobView:
    """Return the view of the same job, made from nothing."""
    given = {
        one.name: getattr(job, one.name) for one in fields(LiveJob) if one.name not in ("_shown", "_asked")
    }
    return LiveJob(**given).view()


def test_a_view_is_the_same_object_until_something_changes(open_service: OpenService) -> None:
    """Whatever of a job changes, its next view shows it; where nothing does, no view is made."""
    service = open_service()
    view = service.submit(ANN, Submission(external=True))
    # One that no epoch changes meanwhile.
    job = LiveJob.of(service.store.job(view.id), service._live_jobs.kinds)

    @given(st.lists(st.sampled_from(CHANGES), max_size=8))
    def hold(changes: list[dict[str, Any]]) -> None:
        for change in changes:
            for name, value in change.items():
                setattr(job, name, value)
            assert job.view() == fresh(job)
            assert job.view() is job.view()

    hold()
    job.losses.add(0.5)
    assert job.view() == fresh(job)
    job.row = replace(job.row, tags=("new",), spec=replace(job.row.spec, weight=3.0))
    assert (job.view(), job.view().weight) == (fresh(job), 3.0)
    job.submission = replace(
        job.submission, options=cast(Any, dict(job.submission.options) | {"group": "mine"})
    )
    assert (job.view(), job.view().group) == (fresh(job), "mine")


def test_a_listing_tells_the_present(open_service: OpenService) -> None:
    """What was listed before is never told again of a job that has changed since, nor to who may not see it."""
    service = open_service(visibility="all")
    secret = service.submit(ANN, Submission(external=True, options={"name": "hers", "tags": ("secret",)}))
    for _ in range(2):
        assert [job["tags"] for job in shown(service, ANN)] == [["secret"]]
        assert [job["tags"] for job in shown(service, BOB)] == [[]]
    service.change(ANN, secret.id, weight=2.0)
    assert [job["weight"] for job in shown(service, ANN)] == [2.0]
    service.end(ANN, secret.id, state=JobState.COMPLETED)
    assert until(lambda: [job["state"] for job in shown(service, ANN)] == [str(JobState.COMPLETED)])
