"""The routes about the cluster as a whole: its standing, decisions and users, and what admins do."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO

import anyio
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from slaq.core.errors import RateError
from slaq.service.access import USER
from slaq.service.records import ClusterView, UserView
from slaq.stores.sqlite.records import Pruned
from slaq.web import responses
from slaq.web.dependencies import Serving, Who
from slaq.web.models import ClusterChange, PruneBody, UserChange, WhatIfBody
from slaq.web.responses import refusals, reply

router = APIRouter()

#: Replays of the cluster at a time; they take a core each, and the jobs need the cores.
REPLAYS = 1
#: Replays of one user that run or wait, so that nobody's questions keep others from asking; and seconds to wait.
ASKED, ASK_AGAIN = 1, 5.0
SQLITE = "application/vnd.sqlite3"
#: What the folder of a copy that is being sent begins with.
DRAFT = "backup-"
#: Bytes of it sent at a time.
PIECE = 2**18
_BACKUP: dict[int | str, Any] = {
    200: {"description": "The database.", "content": {SQLITE: {"schema": {"type": "string"}}}}
}
UserName = Annotated[str, Path(pattern=f"^{USER.pattern}$", description="The user's name.")]


@router.get("/cluster", response_model=ClusterView, responses=refusals(), tags=["cluster"])
def show_cluster(service: Serving, who: Who) -> Response:
    """Show the cluster at a glance."""
    return reply(responses.CLUSTER, service.cluster(who))


@router.patch("/cluster", response_model=ClusterView, responses=refusals(507), tags=["cluster"])
def change_cluster(body: ClusterChange, service: Serving, who: Who) -> Response:
    """Change the policy; for admins."""
    service.set_policy(who, body.policy)
    return reply(responses.CLUSTER, service.cluster(who))


@router.get("/decisions", response_model=responses.DecisionList, responses=refusals(), tags=["cluster"])
def list_decisions(
    service: Serving,
    who: Who,
    since: Annotated[int, Query(ge=-1, lt=2**53, description="Only decisions after this epoch.")] = -1,
    limit: Annotated[int, Query(ge=1, le=100, description="The most items to return.")] = 10,
    every: Annotated[
        int, Query(ge=1, lt=2**31, description="Only decisions of epochs that this number divides.")
    ] = 1,
) -> Response:
    """List decisions, the earliest first, with the numbers of those jobs that you may see."""
    found = service.decisions(who, since=since, limit=limit, every=every)
    return reply(responses.ANYTHING, {"decisions": found})


@router.get(
    "/decisions/last", response_model=responses.DecisionReply, responses=refusals(404), tags=["cluster"]
)
def show_last_decision(service: Serving, who: Who) -> Response:
    """Show the last decision."""
    return reply(responses.ANYTHING, service.decision(who, None))


@router.get(
    "/decisions/{epoch}", response_model=responses.DecisionReply, responses=refusals(404), tags=["cluster"]
)
def show_decision(epoch: Annotated[int, Path(ge=0, lt=2**53)], service: Serving, who: Who) -> Response:
    """Show the decision of one epoch."""
    return reply(responses.ANYTHING, service.decision(who, epoch))


@router.post("/whatif", response_model=responses.WhatIfReply, responses=refusals(409), tags=["cluster"])
async def ask_whatif(request: Request, body: WhatIfBody, service: Serving, who: Who) -> Response:
    """Replay the present cluster forward under another policy or capacity, with the simulator."""
    replays: anyio.CapacityLimiter = request.app.state.replays
    asking: Counter[str] = request.app.state.asking
    if asking[who.user] >= ASKED:
        raise RateError(ASK_AGAIN)
    asked = partial(service.whatif, who, **body.model_dump())
    asking[who.user] += 1
    try:
        found = await anyio.to_thread.run_sync(asked, limiter=replays)
    finally:
        asking[who.user] -= 1
        if not asking[who.user]:
            del asking[who.user]
    return reply(responses.ANYTHING, found)


@router.get("/users", response_model=responses.UserList, responses=refusals(), tags=["users"])
def list_users(service: Serving, who: Who) -> Response:
    """List users and what they hold: everyone for admins, else yourself."""
    return reply(responses.USERS, {"users": service.users(who)})


@router.get("/users/{name}", response_model=UserView, responses=refusals(404), tags=["users"])
def show_user(name: UserName, service: Serving, who: Who) -> Response:
    """Show one user."""
    return reply(responses.USER, service.user(who, name))


@router.patch("/users/{name}", response_model=UserView, responses=refusals(404, 507), tags=["users"])
def change_user(name: UserName, body: UserChange, service: Serving, who: Who) -> Response:
    """Change a user's weight and limits; for admins."""
    return reply(responses.USER, service.set_user(who, name, **body.given()))


@router.post("/prune", response_model=Pruned, responses=refusals(507), tags=["admin"])
def prune(body: PruneBody, service: Serving, who: Who) -> Response:
    """Remove ended jobs and old decisions; for admins."""
    return reply(responses.ANYTHING, service.prune(who, **body.model_dump()))


@router.post("/backup", response_class=Response, responses={**_BACKUP, **refusals(507)}, tags=["admin"])
def back_up(request: Request, service: Serving, who: Who) -> Response:
    """Send a consistent copy of the database, made while the service runs; for admins.

    It is sent rather than written where the service runs: nobody can make the service write a file of their
    choice.
    """
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=request.app.state.home) as folder:
        copy = FilePath(folder) / "slaq.db"
        service.backup(who, copy)
        # Open, and gone from its folder: whatever becomes of the connection, no copy stays behind.
        file = copy.open("rb")
    size = os.fstat(file.fileno()).st_size
    return StreamingResponse(_pieces(file), media_type=SQLITE, headers={"Content-Length": str(size)})


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece


def clear_drafts(home: FilePath) -> None:
    """Remove copies of the database that a service was killed over."""
    for folder in home.glob(f"{DRAFT}*"):
        shutil.rmtree(folder, ignore_errors=True)
