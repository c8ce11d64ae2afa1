"""The application: every route under /api/v1, the probes, and the OpenAPI document."""

from collections import Counter
from typing import Any

import anyio
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import compile_path

from slaq import __version__
from slaq.config.service import ServiceSettings
from slaq.core.errors import SlaqError
from slaq.service.service import Service
from slaq.web import (
    PREFIX,
    cluster_routes,
    events,
    group_routes,
    history_routes,
    job_routes,
    problems,
    responses,
)
from slaq.web.connections import Places
from slaq.web.counts import RequestCounts
from slaq.web.dependencies import Serving, Who, no_strange_query
from slaq.web.document import openapi_of
from slaq.web.gate import Gate
from slaq.web.responses import refusals, reply

DOCUMENT = f"{PREFIX}/openapi.json"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics as Prometheus reads them.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


def make_app(service: Service, settings: ServiceSettings, places: Places) -> Gate:
    """Return the whole application, with the gate that every request passes first."""
    counts = RequestCounts()
    app = FastAPI(
        title="slaq",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(no_strange_query)],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.state.home = settings.home
    app.state.counts = counts
    app.state.streams = Counter()
    app.state.asking = Counter()
    app.state.replays = anyio.CapacityLimiter(cluster_routes.REPLAYS)
    app.add_exception_handler(SlaqError, problems.on_slaq_error)
    app.add_exception_handler(Exception, problems.on_defect)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, problems.on_validation_error)
    for router in (
        job_routes.router,
        group_routes.router,
        history_routes.router,
        cluster_routes.router,
        events.router,
    ):
        app.include_router(router, prefix=PREFIX)
    _add_probes(app)
    return Gate(app, settings, counts, places)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answer a request that matches no route, or the address of one with another method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # Starlette names the methods of only one of the routes at this address.
        headers["Allow"] = ", ".join(_methods_at(request.app, request.url.path))
    return problems.http_problem(error, headers)


def _methods_at(app: FastAPI, path: str) -> list[str]:
    return [
        method.upper()
        for route, methods in openapi_of(app)["paths"].items()
        if compile_path(route)[0].match(path)
        for method in methods
    ]


def _add_probes(app: FastAPI) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def health(service: Serving) -> Response:
        """Say in one word how the service is; anyone may ask."""
        return reply(responses.ANYTHING, {"status": (await run_in_threadpool(service.health))["status"]})

    @app.get("/readyz", include_in_schema=False)
    async def readiness(service: Serving) -> Response:
        """Say whether the service takes jobs now, and in one word how it is; anyone may ask."""
        ready, _ = await run_in_threadpool(service.ready)
        told = (await run_in_threadpool(service.health))["status"]
        answer = {"status": "ready" if ready else "not ready", "health": told}
        return reply(responses.ANYTHING, answer, 200 if ready else 503)

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={**_METRICS, **refusals()},
        tags=["service"],
    )
    def show_metrics(request: Request, service: Serving, who: Who) -> Response:
        """Show the metrics of the scheduler, the store and the API."""
        text = service.metrics(who) + request.app.state.counts.text()
        return Response(text, media_type=_METRICS_TYPE)

    @app.get(f"{PREFIX}/health", response_model=responses.Health, responses=refusals(), tags=["service"])
    def show_health(service: Serving, who: Who) -> Response:
        """Show how the service is, in detail."""
        ready, reason = service.ready()
        return reply(responses.ANYTHING, {**service.health(who), "ready": ready, "reason": reason})

    @app.get(DOCUMENT, response_model=dict, responses=refusals(), tags=["service"])
    async def show_openapi(request: Request, who: Who) -> Response:
        """Show this document."""
        return reply(responses.ANYTHING, openapi_of(request.app))
