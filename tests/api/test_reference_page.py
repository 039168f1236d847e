"""docs/reference/api.md names everything in the API, and nothing else."""

import re

from fastapi import FastAPI

from schedd.api.problems import PROBLEM_KINDS
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")


def test_page_lists_every_path_and_query_parameter(the_app: FastAPI) -> None:
    summary = PAGE.partition("## In short")[2].partition("\n## ")[0]
    found = {
        (method, path.replace("{c}", "{cluster}").replace("{id}", "{job}")): set(re.findall(r"(\w+)=", query))
        for method, path, query in re.findall(r"`(GET|POST|PUT|DELETE) (/[^`?]*)(\?[^`]*)?`", summary)
    }
    expected = {
        (method.upper(), path): {p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"}
        - {"iso"}
        for path, item in the_app.openapi()["paths"].items()
        for method, operation in item.items()
    }
    assert found == expected
    assert "With `iso=true` each object with times" in PAGE


def test_page_lists_every_event_and_decision(the_app: FastAPI) -> None:
    schemas = the_app.openapi()["components"]["schemas"]
    kinds = {
        schema["properties"]["type"]["const"]
        for schema in schemas.values()
        if "const" in schema.get("properties", {}).get("type", {})
    }
    assert len(kinds) == 29
    assert {kind for kind in kinds if f"`{kind}`" in PAGE} == kinds


def test_the_error_page_documents_every_kind() -> None:
    rows = [f"| `{kind}` | {status} | {title} |" for kind, (status, title) in PROBLEM_KINDS.items()]
    assert "\n".join(rows) in PAGE
