"""Laws of the OpenAPI document: it is the one the service gives, and schemathesis cannot refute it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from requests import Request
from schemathesis.checks import positive_data_acceptance

from slaq.client import connect
from slaq.config.service import UserLimits
from slaq.web.responses import DecisionReply, DecisionRow
from tests.integration.serving import Served, external, serving, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
HOUR = 3600.0
document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
# Every request here has a token; what becomes of those without is tried elsewhere, route by route.
del document["security"]
schema = schemathesis.openapi.from_dict(document)

#: Operations whose bodies mean something that no schema can say: a pattern that is a regular expression, a
#: table that is a training program, a policy there is. What the schema admits may be refused there.
MEANINGFUL = {"submit_job", "change_cluster", "ask_whatif", "send_reports"}


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send generated reports as they are."""
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # With few jobs at a time: most submissions are then refused for that, which any may be.
    limits = UserLimits(max_jobs=4)
    with serving(tmp_path_factory.mktemp("home"), defaults=limits) as service:
        yield service


@pytest.fixture(scope="module")
def headers(served: Served) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.token('root', admin=True)}"}


def _would_stay_open(case: schemathesis.Case[Any]) -> bool:
    """Return whether the request, as it goes over the wire, asks for a stream that stays open for long.

    The wire decides: numbers go as text, of a list the last counts, and an empty list leaves no `idle`.
    What is not a number in bounds is refused, and stays as it is.
    """
    sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
    url = Request(sent["method"], sent["url"], params=sent["params"]).prepare().url or ""
    idle = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get("idle")
    try:
        return idle is None or 0 < float(idle) <= HOUR
    except ValueError:
        return False


def made_harmless(case: schemathesis.Case[Any]) -> None:
    """Let a case start nothing but `true`, and wait for nothing."""
    name = case.operation.definition.raw["operationId"]
    words = case.body.get("command") if isinstance(case.body, dict) else None
    if isinstance(words, list) and words:
        words[0] = "true"
    restarts = case.body.get("retry") if isinstance(case.body, dict) else None
    if isinstance(case.body, dict) and isinstance(restarts, int):
        case.body["retry"] = min(restarts, 1)
    if isinstance(case.body, dict) and isinstance(case.body.get("notify"), str):
        # What a shell would make of a text that is made up nobody knows.
        case.body["notify"] = "true"
    if name == "follow_events" and _would_stay_open(case):
        case.query = {**(case.query or {}), "idle": 0.05}


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_document_is_true(case: schemathesis.Case[Any], served: Served, headers: dict[str, str]) -> None:
    """Whatever the document admits is taken, whatever it does not is refused, and every reply is as it says."""
    made_harmless(case)
    name = case.operation.definition.raw["operationId"]
    excluded = [positive_data_acceptance] if name in MEANINGFUL else []
    case.call_and_validate(base_url=served.tcp, headers=headers, excluded_checks=excluded, timeout=60)


@pytest.mark.parametrize("idle", [[], {"3600": 0}, None, "3600", 3600.0, ["0", "1e3"]])
def test_no_case_follows_events_for_long(idle: Any) -> None:
    """However a generated case spells `idle`, its stream ends at once."""
    case = schema["/api/v1/events"]["GET"].Case(query={"idle": idle})
    made_harmless(case)
    assert case.query == {"idle": 0.05}


def test_a_decision_has_the_documented_columns(served: Served) -> None:
    """The fields of a decision and of its rows are those that the document lists, no more and no fewer."""
    with connect(served.unix) as client:
        for job in client.jobs():
            if not job.state.ended:
                job.cancel()
        until(lambda: all(job.state.ended for job in client.jobs()))
        external(client)
        found = until(lambda: next((one for one in client.decisions() if one["jobs"]), None))
    assert found.keys() == DecisionReply.__annotations__.keys()
    assert found["jobs"][0].keys() == DecisionRow.__annotations__.keys()
