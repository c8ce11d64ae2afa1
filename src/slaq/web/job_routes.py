"""The routes about jobs: submit, list, change, steer, end."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from slaq.core.job import JobState
from slaq.service.listing import Filters
from slaq.service.records import JobView
from slaq.web import responses
from slaq.web.dependencies import JobId, Serving, Who
from slaq.web.models import JobChange, JobEnd, SubmissionBody
from slaq.web.responses import refusals, reply, reply_jobs

router = APIRouter(tags=["jobs"])
Moment = Annotated[float, Query(ge=0, le=1e11, allow_inf_nan=False)] | None


@router.post("/jobs", status_code=201, response_model=JobView, responses=refusals(404, 409, 507))
def submit_job(body: SubmissionBody, service: Serving, who: Who) -> Response:
    """Submit a job. Once this answers, the job is on disk and survives a crash of the service."""
    view = service.submit(who, body.record())
    response = reply(responses.JOB, view, 201)
    response.headers["Location"] = f"/api/v1/jobs/{view.id}"
    return response


@router.get("/jobs", response_model=responses.JobPage, responses=refusals(404))
def list_jobs(  # noqa: PLR0913 (one parameter per filter)
    service: Serving,
    who: Who,
    *,
    state: Annotated[
        list[JobState] | None, Query(max_length=8, description="Only jobs in these states.")
    ] = None,
    owner: Annotated[
        str | None, Query(min_length=1, max_length=64, description="Only jobs of this user.")
    ] = None,
    tag: Annotated[
        str | None, Query(min_length=1, max_length=64, description="Only jobs with this tag.")
    ] = None,
    group: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=80,
            description="Only jobs of this group, which is yours, or the owner's.",
        ),
    ] = None,
    after: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Only jobs submitted after this one.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="The most items to return.")] = 100,
    submitted_since: Annotated[
        Moment, Query(description="Only jobs submitted at this Unix time or later.")
    ] = None,
    ended_since: Annotated[
        Moment, Query(description="Only jobs that have not ended, or ended at this Unix time or later.")
    ] = None,
    last: Annotated[
        int | None,
        Query(
            ge=1,
            le=10_000,
            description="The most jobs to return: those that have not ended, or ended last; not with pages.",
        ),
    ] = None,
) -> Response:
    """List the jobs that you may see, in the order of their submission."""
    filters: Filters = {
        "states": None if state is None else frozenset(state),
        "owner": owner,
        "tag": tag,
        "group": group,
        "submitted_since": submitted_since,
        "ended_since": ended_since,
    }
    if last is not None:
        views, total = service.last_jobs(who, last, **filters)
        return reply_jobs(views, None, total)
    views = service.jobs(who, after=after, limit=limit, **filters)
    return reply_jobs(views, views[-1].id if len(views) == limit else None, None)


@router.get("/jobs/{job_id}", response_model=JobView, responses=refusals(404))
def show_job(job_id: JobId, service: Serving, who: Who) -> Response:
    """Show one job."""
    return reply(responses.JOB, service.job(who, job_id))


@router.patch("/jobs/{job_id}", response_model=JobView, responses=refusals(404, 409, 507))
def change_job(job_id: JobId, body: JobChange, service: Serving, who: Who) -> Response:
    """Change a job's weight, tags or limit; what is not given stays as it is."""
    return reply(responses.JOB, service.change(who, job_id, **body.given()))


@router.get("/jobs/{job_id}/submission", response_model=SubmissionBody, responses=refusals(404))
def show_submission(job_id: JobId, service: Serving, who: Who) -> Response:
    """Show a job as its owner asked for it."""
    return reply(responses.ANYTHING, service.submission(who, job_id).as_json())


@router.post("/jobs/{job_id}/pause", response_model=JobView, responses=refusals(404, 409, 507))
def pause_job(job_id: JobId, service: Serving, who: Who) -> Response:
    """Pause a job: it keeps all it has, and gets nothing until it is resumed."""
    return reply(responses.JOB, service.pause(who, job_id))


@router.post("/jobs/{job_id}/resume", response_model=JobView, responses=refusals(404, 409, 507))
def resume_job(job_id: JobId, service: Serving, who: Who) -> Response:
    """Let a paused job go on."""
    return reply(responses.JOB, service.resume(who, job_id))


@router.post("/jobs/{job_id}/cancel", response_model=JobView, responses=refusals(404, 409, 507))
def cancel_job(
    job_id: JobId,
    service: Serving,
    who: Who,
    now: Annotated[bool, Query(description="Kill it at once, whatever time it has to end.")] = False,
) -> Response:
    """Ask for a job's end."""
    return reply(responses.JOB, service.cancel(who, job_id, now=now))


@router.post("/jobs/{job_id}/end", response_model=JobView, responses=refusals(404, 409, 507))
def end_job(job_id: JobId, body: JobEnd, service: Serving, who: Who) -> Response:
    """Say that an external job has ended, and how."""
    return reply(responses.JOB, service.end(who, job_id, state=JobState(body.state), reason=body.reason))
