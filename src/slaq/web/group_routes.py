"""The routes about the jobs of a group together: change, pause, resume, cancel."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from slaq.jobs.options import NAME, USER
from slaq.service.records import JobView
from slaq.web import responses
from slaq.web.dependencies import Serving, Who
from slaq.web.models import JobChange
from slaq.web.responses import refusals, reply

router = APIRouter(tags=["jobs"])
GroupName = Annotated[str, Path(pattern=f"^{NAME.pattern}$", description="The group's name.")]
Owner = Annotated[
    str | None,
    Query(pattern=f"^{USER.pattern}$", description="Whose group, where an admin asks; by default your own."),
]


@router.patch("/groups/{group}", response_model=responses.JobPage, responses=refusals(404, 409, 507))
def change_group(
    group: GroupName, body: JobChange, service: Serving, who: Who, owner: Owner = None
) -> Response:
    """Change the weight, tags or limit of each job of a group that has not ended."""
    return _reply(service.change_group(who, group, owner, **body.given()))


@router.post("/groups/{group}/pause", response_model=responses.JobPage, responses=refusals(404, 409, 507))
def pause_group(group: GroupName, service: Serving, who: Who, owner: Owner = None) -> Response:
    """Pause each job of a group that has not ended."""
    return _reply(service.pause_group(who, group, owner))


@router.post("/groups/{group}/resume", response_model=responses.JobPage, responses=refusals(404, 409, 507))
def resume_group(group: GroupName, service: Serving, who: Who, owner: Owner = None) -> Response:
    """Let each paused job of a group go on."""
    return _reply(service.resume_group(who, group, owner))


@router.post("/groups/{group}/cancel", response_model=responses.JobPage, responses=refusals(404, 409, 507))
def cancel_group(group: GroupName, service: Serving, who: Who, owner: Owner = None) -> Response:
    """Ask for the end of each job of a group."""
    return _reply(service.cancel_group(who, group, owner))


def _reply(jobs: list[JobView]) -> Response:
    return reply(responses.JOBS, {"jobs": jobs, "next": None, "total": None})
