"""What routes are given besides their parameters: the service, and who asks."""

from typing import Annotated

from fastapi import Depends, Path, Request

from slaq.core.errors import UnknownNameError
from slaq.service.records import Identity
from slaq.service.service import Service


# Coroutines, because FastAPI runs plain functions in a thread each.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _who(request: Request) -> Identity:
    who: Identity = request.state.who
    return who


async def no_strange_query(request: Request) -> None:
    """Refuse parameters that the route does not have: one that is misspelt would else be passed over in silence."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            raise UnknownNameError("parameter", name, known or ["none here"])


Serving = Annotated[Service, Depends(_service)]
Who = Annotated[Identity, Depends(_who)]
JobId = Annotated[str, Path(min_length=1, max_length=200, description="The job's id.")]
