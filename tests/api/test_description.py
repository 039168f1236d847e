"""The API's description: complete, served offline, and true."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from schedd.api.result_views import WhatIfResult
from schedd.api.views import DecisionBatch
from schedd.engine import EngineSettings
from schedd.engine.show.job_view import JobView
from schedd.service.clusters import Clusters
from tests.api.conftest import EVENTS, token
from tests.property_examples import examples
from tests.service.planner_harness import StillClock
from tests.waits import WAIT_S

_EXAMPLES: Final = max(2, examples(20))
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def api(the_app: FastAPI) -> Any:
    clusters = Clusters({"main": EngineSettings(search_seconds=0.01)}, StillClock())
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        assert client.post("/v1/clusters/main/events", json={"events": EVENTS}).status_code == 200
    # The token is always sent: requests without one are in test_errors.
    described = json.loads(json.dumps(the_app.openapi()))
    for path in described["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    found = schemathesis.openapi.from_dict(described)
    found.app = the_app
    yield found
    clusters.stop()


_ONE = "/v1/clusters/{cluster}"
SIMPLE = [
    ("/healthz", "get"),
    ("/readyz", "get"),
    ("/leadz", "get"),
    ("/metrics", "get"),
    ("/v1/clusters", "get"),
    ("/v1/report", "get"),
    ("/v1/me", "get"),
    ("/v1/me/walltimes", "get"),
    ("/v1/me/calendar.ics", "get"),
    (_ONE, "get"),
    (f"{_ONE}/jobs/{{job}}", "get"),
    (f"{_ONE}/jobs/{{job}}/explain", "get"),
    *(
        (f"{_ONE}/{path}", "get")
        for path in (
            "users",
            "plan/evaluation",
            "accuracy",
            "reservations",
            "bookings",
            "holds",
            "power",
            "accounts",
            "alerts",
            "notices",
        )
    ),
    (f"{_ONE}/jobs/{{job}}/priority", "get"),
    (f"{_ONE}/jobs/{{job}}/cost", "get"),
    (f"{_ONE}/jobs/{{job}}/run-time", "get"),
    (f"{_ONE}/jobs/{{job}}/tighter-walltime", "get"),
    (f"{_ONE}/arrays/{{array}}", "get"),
    (f"{_ONE}/plan/objectives", "get"),
    (f"{_ONE}/alternatives", "get"),
    (f"{_ONE}/alternatives", "delete"),
    (f"{_ONE}/fair-share", "get"),
    (f"{_ONE}/partitions", "get"),
    (f"{_ONE}/policy", "get"),
    (f"{_ONE}/policy", "delete"),
    (f"{_ONE}/licences", "get"),
    (f"{_ONE}/resume", "post"),
    (f"{_ONE}/searches", "post"),
]
"""They have neither query nor body: nothing can be wrong with them."""
NAMED = [
    (f"{_ONE}/reservations/{{name}}", "put"),
    (f"{_ONE}/reservations/{{name}}", "delete"),
    (f"{_ONE}/reservations/{{name}}/preview", "post"),
    (f"{_ONE}/bookings/{{name}}", "put"),
    (f"{_ONE}/bookings/{{name}}", "get"),
    (f"{_ONE}/bookings/{{name}}", "delete"),
    (f"{_ONE}/bookings/{{name}}/accept", "post"),
    (f"{_ONE}/bookings/{{name}}/{{act}}", "post"),
    (f"{_ONE}/notices", "post"),
    (f"{_ONE}/notices/{{number}}", "delete"),
    (f"{_ONE}/holds/{{kind}}/{{name}}", "put"),
    (f"{_ONE}/holds/{{kind}}/{{name}}", "delete"),
    (f"{_ONE}/holds/{{kind}}/{{name}}/preview", "post"),
    (f"{_ONE}/power/{{node}}", "put"),
    (f"{_ONE}/power/readings", "post"),
    (f"{_ONE}/licences/{{name}}", "put"),
    (f"{_ONE}/accounts/{{account}}", "put"),
    (f"{_ONE}/transfers/{{name}}", "put"),
    (f"{_ONE}/transfers/{{name}}/release", "post"),
    (f"{_ONE}/transfers/{{name}}/bag-end", "post"),
    (f"{_ONE}/transfers/{{name}}", "get"),
    (f"{_ONE}/transfers/{{name}}", "delete"),
]
ENDLESS = [(f"{_ONE}/stream", "get")]
"""Their answers have no end: see test_stream."""
OPERATIONS = [
    *((f"{_ONE}/{path}", "get") for path in ("jobs", "nodes", "plan", "gaps", "decisions", "transfers")),
    (f"{_ONE}/jobs/{{job}}/history", "get"),
    *((f"{_ONE}/{path}", "get") for path in ("plan/evaluation/history", "fair-share/history", "searches")),
    ("/v1/jobs", "get"),
    (f"{_ONE}/policy/preview", "post"),
    (f"{_ONE}/policy", "put"),
    *((f"{_ONE}/{path}", "post") for path in ("events", "what-if", "pause", "alternatives")),
    *((f"{_ONE}/accounts/{path}", "get") for path in ("ledger", "report")),
    (f"{_ONE}/accounts/transfers", "post"),
    (f"{_ONE}/alternatives/{{number}}/plans/{{plan}}/apply", "post"),
]


def test_every_operation_is_tested(schema: dict[str, Any]) -> None:
    described = [(path, method) for path, item in schema["paths"].items() for method in item]
    assert sorted(described) == sorted(OPERATIONS + SIMPLE + NAMED + ENDLESS)


@pytest.mark.parametrize(("path", "method"), OPERATIONS + SIMPLE + NAMED)
def test_valid_requests_get_documented_responses(api: Any, path: str, method: str) -> None:
    # Not being ready is a documented response: the test's adapter may have caused it.
    checks = tuple(check for check in CHECKS if path != "/readyz" or check is not not_a_server_error)
    _try(api[path][method], GenerationMode.POSITIVE, checks)


@pytest.mark.parametrize(("path", "method"), OPERATIONS + NAMED)
def test_invalid_requests_get_documented_errors(api: Any, path: str, method: str) -> None:
    _try(api[path][method], GenerationMode.NEGATIVE, (*CHECKS, negative_data_rejection))


@pytest.mark.soak
def test_many_random_requests_cause_no_server_error(api: Any, capsys: pytest.CaptureFixture[str]) -> None:
    many = int(os.environ.get("SCHEDD_EXAMPLES", "1000"))
    right = sum(
        _try(api[p][m], GenerationMode.POSITIVE, CHECKS, many) for p, m in OPERATIONS + SIMPLE + NAMED
    )
    refusing = (*CHECKS, negative_data_rejection)
    wrong = sum(_try(api[p][m], GenerationMode.NEGATIVE, refusing, many) for p, m in OPERATIONS + NAMED)
    with capsys.disabled():
        print(f"\n{right} requests as described, {wrong} not as described")  # noqa: T201  (counts for the page)


def _try(operation: Any, mode: GenerationMode, checks: Sequence[Any], most: int = _EXAMPLES) -> int:
    """Send up to this number of requests; returns the number sent."""
    count = 0

    @settings(max_examples=most, suppress_health_check=list(HealthCheck), database=None, deadline=None)
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def tried(case: Any, here: bool) -> None:
        nonlocal count
        count += 1
        wrong = mode is GenerationMode.NEGATIVE
        if here and "cluster" in (case.path_parameters or {}):
            case.path_parameters["cluster"] = "main"
        if isinstance(case.query, dict) and not wrong:
            case.query.pop("wait", None)  # no decision is made meanwhile
        if isinstance(case.body, dict) and not wrong and operation.path.endswith("/alternatives"):
            case.body["seconds"] = 0.1  # else each request takes the seconds that it names, or ten
        # The invalid part may have been the cluster's name, which is valid now.
        chosen = CHECKS if here and wrong else checks
        answer = case.call(headers={"Authorization": f"Bearer {token('admin')}"}, timeout=WAIT_S)
        if answer.status_code == 413:  # refused for its size, before it is parsed
            chosen = CHECKS
        if answer.status_code == 503 and "is running already" in answer.text:
            # A policy that was put before has alternatives sought by the daemon itself, one search at a time.
            chosen = tuple(check for check in chosen if check is not not_a_server_error)
        case.validate_response(answer, checks=chosen)

    tried()
    return count


@pytest.fixture(scope="module")
def schema(the_app: FastAPI) -> dict[str, Any]:
    return the_app.openapi()


def _operations(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, item in schema["paths"].items()
        for method, operation in item.items()
    ]


def test_each_operation_has_the_first_sentence_of_its_description_as_summary(schema: dict[str, Any]) -> None:
    wrong = {
        name: operation["summary"]
        for name, operation in _operations(schema)
        if not " ".join(operation["description"].split()).startswith(operation["summary"])
        or not operation["summary"][:1].isupper()
    }
    assert not wrong


def test_every_operation_and_parameter_has_a_description(schema: dict[str, Any]) -> None:
    for name, operation in _operations(schema):
        assert len(operation.get("description", "")) > 20, name
        assert operation["tags"], name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description") or parameter["schema"].get("description"), (name, parameter)


def test_every_error_is_described_as_a_problem(schema: dict[str, Any]) -> None:
    for name, operation in _operations(schema):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (name, status)
    assert "HTTPValidationError" not in schema["components"]["schemas"]


def test_body_examples_are_accepted(client: TestClient, schema: dict[str, Any]) -> None:
    for name in ("DeliveryBody", "WhatIfRequest", "PauseRequest"):
        described = schema["components"]["schemas"][name]
        examples = described.get("examples")
        if examples is None:
            examples = [{key: field["examples"][0] for key, field in described["properties"].items()}]
        path = {"DeliveryBody": "events", "WhatIfRequest": "what-if", "PauseRequest": "pause"}[name]
        for example in examples:
            answer = client.post(f"/v1/clusters/main/{path}", json=example)
            assert answer.status_code == 200, (name, answer.text)


def test_response_examples_match_their_schema(schema: dict[str, Any]) -> None:
    for path, method, kind in (
        (f"{_ONE}/jobs/{{job}}", "get", JobView),
        (f"{_ONE}/what-if", "post", WhatIfResult),
        (f"{_ONE}/decisions", "get", DecisionBatch),
    ):
        answer = schema["paths"][path][method]["responses"]["200"]["content"]["application/json"]
        assert answer["schema"]["$ref"].endswith(f"/{kind.__name__}")
        value = TypeAdapter(kind).validate_python(answer["example"])
        assert json.loads(TypeAdapter(kind).dump_json(value)) == answer["example"]


def test_unclear_field_names_have_descriptions(schema: dict[str, Any]) -> None:
    job = schema["components"]["schemas"]["JobView"]["properties"]
    for name in ("state", "planned_start", "promised_start", "weak", "why", "generation", "as_of"):
        assert len(job[name].get("description", "")) > 10, name


def test_the_documentation_pages_load_nothing_from_other_hosts(client: TestClient) -> None:
    for path in ("/docs", "/redoc"):
        page = client.get(path).text
        links = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
        assert links
        for link in links:
            assert link.startswith("/"), link
            assert client.get(link).status_code == 200, link
