"""What every route depends on: the service, and who asks."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.dependencies.models import Dependant

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
    """Refuse parameters that the route does not have, so that a misspelt one is not ignored."""
    known = list(_query_names(request.scope["route"].dependant))
    for name in request.query_params:
        if name not in known:
            raise UnknownNameError("parameter", name, known or ["none here"])


def _query_names(route: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in route.query_params)
    for dependency in route.dependencies:
        yield from _query_names(dependency)


Serving = Annotated[Service, Depends(_service)]
Who = Annotated[Identity, Depends(_who)]
JobId = Annotated[str, Path(min_length=1, max_length=200, description="The job's id.")]
