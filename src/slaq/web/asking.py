"""What routes are given besides their parameters: the service, and who asks."""

from typing import Annotated

from fastapi import Depends, Path, Request

from slaq.service.records import Identity
from slaq.service.service import Service


# Coroutines, because FastAPI runs plain functions in a thread each.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _who(request: Request) -> Identity:
    who: Identity = request.state.who
    return who


Serving = Annotated[Service, Depends(_service)]
Who = Annotated[Identity, Depends(_who)]
JobId = Annotated[str, Path(min_length=1, max_length=200, description="The job's id.")]
