"""What the API answers with: the service's own records, and the small values around them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response
from typing_extensions import TypedDict

from slaq.core.explanation import Explanation
from slaq.core.job import JobState
from slaq.service.records import ClusterView, JobView, Notice, UserView
from slaq.simulation.whatif import Replay
from slaq.web.problems import MEDIA_TYPE, Problem


class JobPage(TypedDict):
    """Jobs in the order of their submission; `next` is for `after`, to read on, and null at the end.

    `total` says how many jobs there would be without `last`; null where that is not given.
    """

    jobs: list[JobView]
    next: str | None
    total: int | None


class ObservationReply(TypedDict):
    """One loss as reported, with what it cost; `loss` is null where it was not a finite number."""

    iteration: int
    at: float
    loss: float | None
    cpu_seconds: float
    wall_seconds: float
    metrics: dict[str, float | None]


class ObservationList(TypedDict):
    """What a job reported; `next` is for `after`, to read on."""

    observations: list[ObservationReply]
    next: int


class CurveReply(TypedDict):
    """The losses of one job in columns; `loss` is null where it was not a finite number."""

    job: str
    iteration: list[int]
    at: list[float]
    loss: list[float | None]
    cpu_seconds: list[float | None]
    wall_seconds: list[float | None]


class CurveList(TypedDict):
    """The losses of several jobs, in the order in which they were asked for."""

    curves: list[CurveReply]


class AllocationReply(TypedDict):
    """What a job held from a moment on."""

    at: float
    cores: float


class AllocationList(TypedDict):
    """What a job has held."""

    allocations: list[AllocationReply]


class ForecastReply(TypedDict):
    """Predicted losses, one for each horizon, with the ends of their 80% interval."""

    iteration: int
    horizons: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    ignored: list[int]
    restarts: list[int]


class ReportsReply(TypedDict):
    """How far the reports of a job now reach, in bytes: the next are to be sent from there."""

    offset: int


class UserList(TypedDict):
    """Every user who has jobs or limits of their own."""

    users: list[UserView]


class DecisionRow(TypedDict):
    """What one job was granted, and the numbers behind it."""

    id: str
    cores: float
    loss: float | None
    gain: float | None
    next_step: float | None
    expected: float | None
    expected_low: float | None
    expected_high: float | None
    diverged: bool
    level: float | None
    last_step: float | None
    weight: float | None
    fair_share: float | None
    guarantee: float | None
    most: float | None
    reduction: float | None
    competes: bool
    maximize: bool
    #: Losses to the end of the job, where it is known, and the part of the gain that coming nearer to it is worth.
    to_end: float | None
    finish: float | None


class DecisionReply(TypedDict):
    """One epoch's decision: totals of all jobs, and a row for each job that you may see."""

    epoch: int
    time: float
    #: Cores: to hand out, handed out, and of one step, the smallest amount decided on.
    capacity: float
    granted: float
    step: float
    active: int
    seconds: float
    jobs: list[DecisionRow]


class DecisionList(TypedDict):
    """Decisions, the earliest first."""

    decisions: list[DecisionReply]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationReply(Explanation):
    """Why a job holds what it holds, in numbers and in sentences."""

    state: JobState
    text: str


class NoExplanation(TypedDict):
    """What is told of a job that the last decision was not about: why it holds nothing."""

    job_id: str
    state: JobState
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReply(Replay):
    """How all jobs fare under one policy and capacity."""

    policy: str
    cores: float


class WhatIfReply(TypedDict):
    """The present cluster played forward: first as things are, then the alternative, if there is one."""

    horizon: float
    replays: list[ReplayReply]


class Health(TypedDict):
    """How the service is: `status` is ok or troubled, and `reason` says why it is not ready."""

    status: str
    troubles: list[str]
    ready: bool
    reason: str


JOB = TypeAdapter(JobView)
JOBS = TypeAdapter(JobPage)
USER = TypeAdapter(UserView)
USERS = TypeAdapter(UserList)
CLUSTER = TypeAdapter(ClusterView)
#: The last views that were listed, as JSON, by the job's id, and how many of them are kept.
_WRITTEN: dict[str, tuple[JobView, bytes]] = {}
MOST_WRITTEN = 10_000
#: What the service gives as plain JSON already.
ANYTHING: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def reply(shape: TypeAdapter[Any], value: Any, status: int = 200) -> Response:
    """Return the value as JSON, numbers that are not finite as null.

    FastAPI would check the value against its model first, which takes several times as long as writing it.
    """
    return Response(shape.dump_json(value, warnings="none"), status, media_type="application/json")


def reply_jobs(views: Sequence[JobView], following: str | None, total: int | None) -> Response:
    """Return a `JobPage` as JSON; a view that is the same object as the last time is not written anew."""
    rest = f'],"next":{json.dumps(following)},"total":{json.dumps(total)}}}'.encode()
    page = b'{"jobs":[' + b",".join(map(_written, views)) + rest
    return Response(page, media_type="application/json")


def _written(view: JobView) -> bytes:
    """Return the view as JSON."""
    last = _WRITTEN.get(view.id)
    if last is None or last[0] is not view:
        if len(_WRITTEN) >= MOST_WRITTEN:
            _WRITTEN.clear()
        last = _WRITTEN[view.id] = view, JOB.dump_json(view, warnings="none")
    return last[1]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how OpenAPI describes refusals: those that every route has, and these."""
    every = {400, 401, 403, 408, 413, 421, 422, 429, 500, 503, *statuses}
    return {status: {"$ref": f"#/components/responses/{status}"} for status in sorted(every)}


def components() -> dict[str, dict[str, Any]]:
    """Return what the document refers to that no route's signature names."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "responses": {
            str(status): {"description": text, "content": content} for status, text in _WHY.items()
        },
        "schemas": {
            "Problem": TypeAdapter(Problem).json_schema(),
            "Notice": TypeAdapter(Notice).json_schema(),
        },
    }


_WHY = {
    400: "The request is cut short, or not valid HTTP.",
    401: "The request has no token, or one that is not valid.",
    403: "The user may not do this.",
    404: "There is nothing of that name that the user may see.",
    409: "It does not fit the present state.",
    408: "The request was not sent in time.",
    413: "The request is too large.",
    415: "The body has a content type that the API does not take.",
    421: "The request is addressed to another host.",
    422: "The request makes no sense; `detail` says why.",
    429: "Too many requests, or a limit is reached.",
    500: "A defect of the service.",
    503: "The service is stopping, or cannot reach its store.",
    507: "The disk is full; nothing was kept of the request.",
}
