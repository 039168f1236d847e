"""Idle connections of both daemons."""

import ast
from pathlib import Path

import httpx2

import schedd
from schedd.api.connections import KEEP_ALIVE_S


def test_idle_connections_stay_open_longer_than_clients_use_them() -> None:
    kept = httpx2.Limits().keepalive_expiry
    assert kept is not None
    assert kept * 2 <= KEEP_ALIVE_S
    sources = [path.read_text() for path in Path(schedd.__path__[0]).rglob("*.py")]
    calls = [
        one
        for source in sources
        if "uvicorn.Config(" in source
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "uvicorn.Config"
    ]
    values = [{key.arg: ast.unparse(key.value) for key in call.keywords} for call in calls]
    assert [one["timeout_keep_alive"] for one in values] == ["KEEP_ALIVE_S"] * 2
