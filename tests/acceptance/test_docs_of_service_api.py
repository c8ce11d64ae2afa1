"""Laws of the page on the HTTP API: its document is in force, and every route, field and call is described."""

import inspect
import json
import re
from pathlib import Path

import pytest

from slaq.client import Client, ServiceJob
from slaq.web.document import written

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
#: Where the fields of jobs and the JSON of verbs are described.
SERVICE = (DOCS / "service.md").read_text(encoding="utf-8")
OPTIONS = (DOCS / "options.md").read_text(encoding="utf-8")
DOCUMENT = json.loads((DOCS / "openapi.json").read_text(encoding="utf-8"))


def test_the_document_in_the_docs_is_the_one_in_force() -> None:
    """docs/openapi.json is what the service gives; `python -m slaq.web.document` writes it anew."""
    assert json.loads(written()) == DOCUMENT


OPERATIONS = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
FIELDS = [
    (name, field)
    for name, schema in DOCUMENT["components"]["schemas"].items()
    for field in schema.get("properties", {})
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_route_has_a_row(method: str, path: str) -> None:
    """Each route of the document is in a table of the page."""
    assert f"| {method} | `{path}` |" in PAGE


def test_every_row_is_a_route() -> None:
    """The page names no route that is not there."""
    rows = set(re.findall(r"^\| ([A-Z]+) \| `(/[^`]*)` \|", PAGE, re.MULTILINE))
    assert rows - set(OPERATIONS) == {("GET", "/healthz"), ("GET", "/readyz")}


@pytest.mark.parametrize(("schema", "field"), FIELDS)
def test_every_field_is_named(schema: str, field: str) -> None:
    """Each field that a request or a reply may have is named on the page, or where verbs print it."""
    assert re.search(rf"[`\"]{field}[`\"]", PAGE) or f"`{field}`" in SERVICE + OPTIONS


@pytest.mark.parametrize(
    ("path", "method", "parameter"),
    [
        (path, method, parameter["name"])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] != "path"
    ],
)
def test_every_parameter_is_named(path: str, method: str, parameter: str) -> None:
    """Each parameter of a query, and each header that is read, is named on the page."""
    assert re.search(rf"`{parameter}`", PAGE, re.IGNORECASE)


@pytest.mark.parametrize("status", sorted(DOCUMENT["components"]["responses"]))
def test_every_refusal_is_explained(status: str) -> None:
    """The table of statuses has every one that a route may answer with."""
    assert re.search(rf"^\| [\d, ]*\b{status}\b", PAGE, re.MULTILINE)


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


@pytest.mark.parametrize("name", public(Client))
def test_every_method_of_the_client_has_its_call_on_the_page(name: str) -> None:
    """Each is shown with what it takes and the defaults; options of a job have a page of their own."""
    member = inspect.getattr_static(Client, name)
    if not callable(member) or name == "close":
        assert f"`{name}`" in PAGE or f"`{name}()`" in PAGE
        return
    taken = list(inspect.signature(member).parameters.values())[1:]
    takes_options = hasattr(member, "__signature__")
    if takes_options:
        taken = [one for one in taken if one.kind is not one.KEYWORD_ONLY]
    shown = str(inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in taken]))
    assert (f"`{name}{shown[:-1]}, **options)`" if takes_options else f"`{name}{shown}`") in PAGE


@pytest.mark.parametrize("name", ["id", *public(ServiceJob)])
def test_every_member_of_the_handle_is_named(name: str) -> None:
    """What a handle has is on the page."""
    assert re.search(rf"`{name}\b", PAGE)
