"""Output of the commands for a job that is not in the plan."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from schedd.cli.user.command_session import Session
from schedd.cli.user.ended_job import show_ended_job
from schedd.client import Refused
from schedd.client.json_object import JsonObject

UNKNOWN = Refused("unknown-job", 404, "no such job")
KNOWN: dict[str, Any] = {
    "name": "STDIN",
    "owner": "alice",
    "queue": "batch",
    "resources": {"nodes": "1"},
    "submitted": 1_000,
    "started": None,
    "displayed_start": None,
    "promised_start": None,
    "ended": None,
    "how": "",
    "exit_status": None,
    "moments": [],
}


@pytest.mark.parametrize(
    ("changes", "stands"), [({}, "is not in the plan now"), ({"ended": 2_000, "how": "deleted"}, "is over")]
)
def test_only_ended_jobs_are_reported_as_ended(
    changes: dict[str, Any], stands: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job queued a moment ago may be in the log and not yet in the plan."""
    history = JsonObject(job="1.srv", past=JsonObject(KNOWN, **changes))
    session = SimpleNamespace(client=SimpleNamespace(history=lambda _: history), now=3_000)
    assert not show_ended_job(cast("Session", session), "1", UNKNOWN, as_json=False)
    assert capsys.readouterr().out.splitlines()[0] == f"job 1.srv STDIN: alice, batch, {stands}"
