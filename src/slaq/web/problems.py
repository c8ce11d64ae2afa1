"""Errors as problem+json (RFC 9457): the sentence, its status, and the data from which a client raises it again."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from slaq.core import errors
from slaq.core.errors import RequestError, SlaqError

#: Before the name of the error in a problem's type.
TYPE_PREFIX = "urn:slaq:error:"
MEDIA_TYPE = "application/problem+json"
#: HTTP statuses by the name of the error or of its nearest ancestor here.
STATUS: Mapping[str, int] = {
    "IdentityError": 401,
    "ForbiddenError": 403,
    "UnknownDecisionError": 404,
    "UnknownGroupError": 404,
    "UnknownJobError": 404,
    "ConflictError": 409,
    "DuplicateJobError": 409,
    # The job has not reported enough losses yet.
    "ForecastError": 409,
    "SlaqError": 422,
    "LimitError": 429,
    "RateError": 429,
    "ServiceFaultError": 500,
    "BusyError": 503,
    "ClosingError": 503,
    "ClusterClosedError": 503,
    "StoreError": 503,
    "StoreFullError": 507,
}
#: Sentences for requests that reach no route.
_PLAIN = {
    404: "there is nothing at this address; /api/v1/openapi.json lists what there is",
    405: "this address does not take that method; /api/v1/openapi.json lists what it takes",
}


class Problem(TypedDict):
    """Why a request was refused."""

    type: str
    title: str
    status: int
    detail: str
    data: dict[str, Any]


def status_of(error: SlaqError) -> int:
    """Return the HTTP status that an error has."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next(STATUS[name] for name in names if name in STATUS)


def problem_response(
    error: SlaqError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the error as a response."""
    name, code = type(error).__name__, status_of(error) if status is None else status
    problem = Problem(
        type=TYPE_PREFIX + name,
        title=" ".join(_words(name.removesuffix("Error"))).lower(),
        status=code,
        detail=str(error),
        data=vars(error),
    )
    more = dict(headers or {})
    if isinstance(error, errors.RateError):
        more["Retry-After"] = str(max(round(error.seconds + 0.5), 1))
    if code == 401:
        more["WWW-Authenticate"] = 'Bearer realm="slaq"'
    if code == 503:
        more["Retry-After"] = "1"
    body = to_json(problem, inf_nan_mode="null", serialize_unknown=True)
    return Response(body, code, more, MEDIA_TYPE)


async def on_slaq_error(request: Request, error: Exception) -> Response:
    """Answer with an error that slaq raised."""
    assert isinstance(error, SlaqError)
    return problem_response(error)


async def on_defect(request: Request, error: Exception) -> Response:
    """Answer an unexpected error; the gate logs it under the same reference."""
    request.state.reference = reference = uuid.uuid4().hex[:12]
    return problem_response(errors.ServiceFaultError(reference))


def http_problem(error: HTTPException, headers: Mapping[str, str]) -> Response:
    """Return an error of the framework as a problem."""
    text = _PLAIN.get(error.status_code, str(error.detail))
    return problem_response(RequestError(text), error.status_code, headers)


async def on_validation_error(request: Request, error: Exception) -> Response:
    """Answer a request with invalid parameters or an invalid body, naming every mistake."""
    assert isinstance(error, RequestValidationError)
    return problem_response(RequestError(_told(error.errors())))


def _told(mistakes: Sequence[Mapping[str, Any]]) -> str:
    told = []
    for mistake in mistakes[:20]:
        place = ".".join(str(part) for part in mistake["loc"] if part not in ("body", "query", "path"))
        text = str(mistake["msg"]).removeprefix("Value error, ")
        told.append(f"{place}: {text[:1].lower() + text[1:]}" if place else text[:1].lower() + text[1:])
    return "; ".join(told).encode("utf-8", "replace").decode()


def _words(name: str) -> list[str]:
    starts = [index for index, letter in enumerate(name) if letter.isupper()]
    return [name[start:stop] for start, stop in zip(starts, [*starts[1:], len(name)], strict=True)]
