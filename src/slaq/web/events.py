"""The event stream: notices as server-sent events, which a client can take up again where it broke off."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from slaq.core.errors import LimitError
from slaq.service.event_broker import Subscription
from slaq.service.records import Notice, NoticeKind
from slaq.web.dependencies import Serving, Who
from slaq.web.responses import refusals

router = APIRouter(tags=["events"])

#: Streams that one user may follow at a time: each holds a connection open, and others have to be left.
STREAMS = 64
_STREAM: dict[int | str, Any] = {
    200: {
        "description": "Events: `id` is the notice's number, `event` its kind, `data` the notice as JSON.",
        "content": {
            "text/event-stream": {
                "itemSchema": {
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


async def _subscribed(  # noqa: PLR0913 (one parameter per filter)
    request: Request,
    service: Serving,
    who: Who,
    *,
    after: Annotated[
        int | None, Query(ge=0, lt=2**53, description="Only notices after the one with this number.")
    ] = None,
    kind: Annotated[
        list[NoticeKind] | None, Query(max_length=32, description="Only notices of these kinds.")
    ] = None,
    job: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Only notices about this job.")
    ] = None,
    last_event_id: Annotated[
        str,
        Header(
            pattern=r"^[0-9]{0,15}$", description="The number of the last notice received; wins over `after`."
        ),
    ] = "",
) -> AsyncIterator[Subscription]:
    """Subscribe before the response begins, while the request can still be refused."""
    if job is not None:
        await run_in_threadpool(service.job, who, job)
    streams: Counter[str] = request.app.state.streams
    if streams[who.user] >= STREAMS:
        raise LimitError(f"{who.user} follows {STREAMS} streams of events already", "end one of them first")
    start = int(last_event_id) if last_event_id else after
    streams[who.user] += 1
    try:
        async with service.notices(who, after=start, kinds=kind, job_id=job) as notices:
            yield notices
    finally:
        streams[who.user] -= 1
        if not streams[who.user]:
            del streams[who.user]


@router.get("/events", response_class=EventSourceResponse, responses={**_STREAM, **refusals(404)})
async def follow_events(
    notices: Annotated[Subscription, Depends(_subscribed)],
    idle: Annotated[
        float | None,
        Query(
            gt=0,
            le=3600,
            allow_inf_nan=False,
            description="End the stream after so many seconds without a notice.",
        ),
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow what happens to the jobs that you may see, from now on or from an event on.

    A client that is too slow, or comes back too late, gets one event of kind `missed`: read everything anew.
    """
    # A client that has read this line misses nothing from here on.
    yield ServerSentEvent(comment="listening")
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(idle):
                told = await notices.next()
            if not told:
                return
            for notice in told:
                yield _event(notice)


def _event(notice: Notice) -> ServerSentEvent:
    body = to_json(notice, inf_nan_mode="null").decode()
    return ServerSentEvent(id=str(notice.number), event=notice.kind, raw_data=body)
