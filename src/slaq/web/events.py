"""The event stream: what happens, as server-sent events that can be taken up again where they broke off."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from slaq.core.errors import LimitError
from slaq.service.records import Notice
from slaq.web.asking import Serving, Who
from slaq.web.replies import refusals

router = APIRouter(tags=["events"])

#: Seconds of silence after which a comment is sent, so that everyone between sees the stream alive.
HEARTBEAT = 15.0
#: Streams that one user may follow at a time: each holds a connection open.
STREAMS = 200
_STREAM: dict[int | str, Any] = {
    200: {
        "description": "Events: `id` is the notice's number, `event` its kind, `data` the notice as JSON.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "required": ["id", "event", "data"],
                    "properties": {
                        "id": {"type": "string"},
                        "event": {"type": "string"},
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": "#/components/schemas/Notice"},
                        },
                    },
                }
            }
        },
    }
}
Number = Annotated[int, Query(ge=0, lt=2**53)]


@router.get("/events", response_class=StreamingResponse, responses={**_STREAM, **refusals(404)})
async def follow_events(  # noqa: PLR0913 (one parameter per filter)
    request: Request,
    service: Serving,
    who: Who,
    *,
    after: Annotated[
        int | None, Query(ge=0, lt=2**53, description="After the notice of this number.")
    ] = None,
    kind: Annotated[
        list[Annotated[str, Query(min_length=1, max_length=64)]] | None,
        Query(max_length=32, description="Of these kinds only."),
    ] = None,
    job: Annotated[str | None, Query(min_length=1, max_length=200, description="About this job.")] = None,
    idle: Annotated[
        float | None,
        Query(
            gt=0, le=3600, allow_inf_nan=False, description="Ends the stream after so many silent seconds."
        ),
    ] = None,
    last_event_id: Annotated[str, Header(pattern=r"^[0-9]{0,15}$", description="Wins over `after`.")] = "",
) -> Response:
    """Follow what happens to the jobs that you may see, from now on or from an event on.

    A reader who is too slow, or comes back too late, gets one event of kind `missed`: look at everything anew.
    """
    if job is not None:
        await run_in_threadpool(service.job, who, job)
    streams: Counter[str] = request.app.state.streams
    if streams[who.user] >= STREAMS:
        raise LimitError(f"{who.user} follows {STREAMS} streams of events already", "end one of them first")
    start = int(last_event_id) if last_event_id else after
    notices = service.notices(who, after=start, kinds=kind, job_id=job)
    stream = _counted(_told(notices, request.app.state.closing, idle), streams, who.user)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _counted(stream: AsyncIterator[bytes], streams: Counter[str], user: str) -> AsyncIterator[bytes]:
    """Keep count of the streams of a user."""
    streams[user] += 1
    try:
        async with aclosing(stream) as source:  # type: ignore[type-var]
            async for piece in source:
                yield piece
    finally:
        streams[user] -= 1
        if not streams[user]:
            del streams[user]


async def _told(
    notices: AsyncIterator[Notice], closing: asyncio.Event, idle: float | None
) -> AsyncIterator[bytes]:
    """Write notices as they come, and comments in between, until the service stops."""
    silent = 0.0
    async with aclosing(notices) as source:  # type: ignore[type-var]
        stopping = asyncio.ensure_future(closing.wait())
        coming: asyncio.Future[Notice] = asyncio.ensure_future(anext(source))
        # Once it has run up to its first wait it listens; a reader of this line has missed nothing since.
        await asyncio.sleep(0)
        yield b": listening\n\n"
        try:
            while not stopping.done():
                patience = HEARTBEAT if idle is None else min(HEARTBEAT, idle - silent)
                signs: set[asyncio.Future[Any]] = {stopping, coming}
                await asyncio.wait(signs, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    try:
                        notice = coming.result()
                    except StopAsyncIteration:
                        return
                    silent = 0.0
                    yield _event(notice)
                    coming = asyncio.ensure_future(anext(source))
                elif not stopping.done():
                    silent += patience
                    if idle is not None and silent >= idle:
                        return
                    yield b": \n\n"
        finally:
            stopping.cancel()
            coming.cancel()
            # The generator cannot be closed while it is still being asked for its next notice.
            await asyncio.gather(coming, return_exceptions=True)


def _event(notice: Notice) -> bytes:
    body = to_json(notice, inf_nan_mode="null")
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (notice.number, notice.kind.encode(), body)
