"""The routes about the course of one job: what it reported, held, printed, and is expected to do."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slaq.web import responses
from slaq.web.dependencies import JobId, Serving, Who
from slaq.web.responses import refusals, reply

router = APIRouter(tags=["jobs"])

#: What reports may be sent as; JSON lines under whatever name a tool gives them.
REPORT_TYPES = ("application/x-ndjson", "application/octet-stream", "text/plain")
LOG_HEADERS = {
    "X-Slaq-Offset": "Where in the log this piece begins.",
    "X-Slaq-Next-Offset": "Where the next piece begins.",
    "X-Slaq-Ended": "Whether nothing will come after this piece: `true` or `false`.",
}
_REPORTS = {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
_LOG: dict[int | str, Any] = {
    200: {
        "description": "A piece of the log, as the job printed it.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
        "headers": {
            name: {"description": text, "schema": {"type": "string"}} for name, text in LOG_HEADERS.items()
        },
    }
}
Limit = Annotated[int, Query(ge=1, le=10_000, description="The most items to return.")]


@router.get("/jobs/{job_id}/observations", response_model=responses.ObservationList, responses=refusals(404))
def list_observations(
    job_id: JobId,
    service: Serving,
    who: Who,
    after: Annotated[int, Query(ge=-1, lt=2**53, description="Only losses after this iteration.")] = -1,
    limit: Limit = 1000,
) -> Response:
    """List what a job reported, in the order of its iterations."""
    found = service.observations(who, job_id, after=after, limit=limit)
    following = found[-1]["iteration"] if found else after
    return reply(responses.ANYTHING, {"observations": found, "next": following})


@router.get("/curves", response_model=responses.CurveList, responses=refusals(404))
def list_curves(
    service: Serving,
    who: Who,
    job: Annotated[
        list[Annotated[str, Query(min_length=1, max_length=200)]],
        Query(min_length=1, max_length=200, description="The jobs' ids; may be repeated."),
    ],
    most: Annotated[
        int,
        Query(
            ge=1, le=10_000, description="The most losses of each job; of a longer curve, evenly spaced ones."
        ),
    ] = 1000,
) -> Response:
    """List the losses of several jobs in columns."""
    return reply(responses.ANYTHING, {"curves": service.curves(who, list(dict.fromkeys(job)), most=most)})


@router.get("/jobs/{job_id}/allocations", response_model=responses.AllocationList, responses=refusals(404))
def list_allocations(
    job_id: JobId,
    service: Serving,
    who: Who,
    since: Annotated[
        float,
        Query(ge=0, le=1e11, allow_inf_nan=False, description="Only changes at this Unix time or later."),
    ] = 0.0,
    limit: Limit = 1000,
) -> Response:
    """List what a job held, each from its moment on until the next."""
    return reply(
        responses.ANYTHING, {"allocations": service.allocations(who, job_id, since=since, limit=limit)}
    )


@router.get("/jobs/{job_id}/forecast", response_model=responses.ForecastReply, responses=refusals(404, 409))
def forecast_job(
    job_id: JobId,
    service: Serving,
    who: Who,
    horizon: Annotated[
        list[Annotated[int, Query(ge=1, le=100_000)]],
        Query(min_length=1, max_length=100, description="Iterations ahead."),
    ],
) -> Response:
    """Predict a job's losses that many iterations ahead."""
    return reply(responses.ANYTHING, service.forecast(who, job_id, horizon))


@router.get(
    "/jobs/{job_id}/why",
    response_model=responses.ExplanationReply | responses.NoExplanation,
    responses=refusals(404, 409),
)
def explain_job(job_id: JobId, service: Serving, who: Who) -> Response:
    """Explain the last decision about a job: its cores, their predicted gain, and what more would bring."""
    return reply(responses.ANYTHING, service.why(who, job_id))


@router.get("/jobs/{job_id}/log", response_class=Response, responses={**_LOG, **refusals(404)})
def read_log(
    job_id: JobId,
    service: Serving,
    who: Who,
    offset: Annotated[
        int,
        Query(
            gt=-(2**53),
            lt=2**53,
            description="The first byte to return; a negative number counts from the end.",
        ),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=4 * 2**20, description="The most bytes to return.")] = 65536,
) -> Response:
    """Read a piece of what a job printed."""
    chunk = service.log(who, job_id, offset=offset, limit=limit)
    values = (str(chunk.offset), str(chunk.next_offset), "true" if chunk.ended else "false")
    return Response(chunk.data, media_type="text/plain", headers=dict(zip(LOG_HEADERS, values, strict=True)))


@router.post(
    "/jobs/{job_id}/reports",
    response_model=responses.ReportsReply,
    responses=refusals(404, 409, 415, 507),
    openapi_extra={"requestBody": _REPORTS},
)
async def send_reports(
    request: Request,
    job_id: JobId,
    service: Serving,
    who: Who,
    offset: Annotated[
        int,
        Query(ge=0, lt=2**53, description="How many bytes of its reports the source has sent before these."),
    ],
    source: Annotated[
        str,
        Query(
            max_length=64,
            description="Names the process that reports; once another one has begun, this one is refused.",
        ),
    ] = "",
) -> Response:
    """Report the losses of a job that runs elsewhere: JSON lines, as `slaq.report` writes them.

    What was sent before is left out by its offset, so that sending again after a lost reply does no harm.
    The reply says how far the reports now reach; they are kept once it is sent.
    """
    kind = request.headers.get("content-type", REPORT_TYPES[0]).partition(";")[0].strip().lower()
    if kind not in REPORT_TYPES:
        raise HTTPException(415, f"reports are {REPORT_TYPES[0]}, not {kind}")
    lines = await request.body()
    reached = await run_in_threadpool(service.report, who, job_id, lines, offset=offset, source=source)
    return reply(responses.ANYTHING, {"offset": reached})
