"""What the API answers with: the service's own records, and the small values around them."""

from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response
from typing_extensions import TypedDict

from slaq.service.records import ClusterView, JobView, Notice, Submission, UserView
from slaq.web.problems import MEDIA_TYPE, Problem


class JobPage(TypedDict):
    """Jobs in the order of their submission; `next` is for `after`, to read on, and null at the end."""

    jobs: list[JobView]
    next: str | None


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


class AllocationReply(TypedDict):
    """What a job held from a moment on."""

    at: float
    units: int
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


class DecisionList(TypedDict):
    """Decisions, the earliest first."""

    decisions: list[dict[str, Any]]


class Standing(TypedDict):
    """Whether the service is alive, or ready."""

    status: str


JOB = TypeAdapter(JobView)
JOBS = TypeAdapter(JobPage)
SUBMISSION = TypeAdapter(Submission)
OBSERVATIONS = TypeAdapter(ObservationList)
ALLOCATIONS = TypeAdapter(AllocationList)
FORECAST = TypeAdapter(ForecastReply)
REPORTS = TypeAdapter(ReportsReply)
USER = TypeAdapter(UserView)
USERS = TypeAdapter(UserList)
CLUSTER = TypeAdapter(ClusterView)
DECISIONS = TypeAdapter(DecisionList)
ANYTHING: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def reply(shape: TypeAdapter[Any], value: Any, status: int = 200) -> Response:
    """Return the value as JSON, numbers that are not finite as null.

    FastAPI would check the value against its model first, which takes several times as long as writing it.
    """
    return Response(shape.dump_json(value, warnings="none"), status, media_type="application/json")


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
    400: "The request is cut short, or no HTTP that is understood.",
    401: "Nobody is known by the request's token, or it has none.",
    403: "The user may not do this.",
    404: "There is nothing of that name that the user may see.",
    409: "It does not fit the present state.",
    408: "The request was not sent in time.",
    413: "The request is too large.",
    415: "The body is of another kind than the API takes.",
    421: "The request names a host that this is not.",
    422: "The request makes no sense; `detail` says why.",
    429: "Too many requests, or a limit is reached.",
    500: "A defect of the service.",
    503: "The service is stopping, or cannot reach its store.",
    507: "The disk is full; nothing was kept of the request.",
}
