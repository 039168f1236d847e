"""Output of the commands for a job that is not in the plan."""

import re
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
    "expected_start": None,
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


def test_a_moved_job_names_its_destination(capsys: pytest.CaptureFixture[str]) -> None:
    past = JsonObject(KNOWN, ended=2_000, how="moved", moved_to="workq@far")
    session = SimpleNamespace(
        client=SimpleNamespace(history=lambda _: JsonObject(job="1.srv", past=past)), now=3_000
    )
    show_ended_job(cast("Session", session), "1", UNKNOWN, as_json=False)
    assert ", moved to workq@far" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("ended", 0, ", exit status 0"),
        ("ended", None, ", exit status not known"),
        ("deleted", None, ", deleted"),
        ("gone", None, ", when the server listed it no more"),
    ],
)
def test_the_end_has_the_exit_status_that_is_known(
    how: str, status: int | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    past = JsonObject(KNOWN, started=1_000, runs=1, nodes=["n1"], ended=2_000, how=how, exit_status=status)
    history = JsonObject(job="1", past=past)
    session = SimpleNamespace(client=SimpleNamespace(history=lambda _: history), now=3_000)
    show_ended_job(cast("Session", session), "1", UNKNOWN, as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ended")]
    assert line.endswith(words)


def test_the_start_is_compared_with_the_forecast_and_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """The last published estimate of either kind was called *the* estimate."""
    moments = [
        JsonObject(time=1_000, kind=kind, words=words, start=start, decision="")
        for kind, words, start in (
            ("event", "queued in batch", None),
            ("published", "planned", 9_000),
            ("forecast", "90 % by 1970-01-01 01:00:00 UTC", 3_000),
            ("promise", "", 10_000),
        )
    ]
    known = {
        **KNOWN,
        "started": 2_400,
        "nodes": ["n1"],
        "runs": 1,
        "displayed_start": 9_000,
        "moments": moments,
    }
    history = JsonObject(job="1.srv", past=JsonObject(known, expected_start=3_000))
    session = SimpleNamespace(client=SimpleNamespace(history=lambda _: history), now=12_000)
    assert show_ended_job(cast("Session", session), "1", UNKNOWN, as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "forecast likely start .*; it started 00:10:00 earlier",
        "planned start .*; it started 01:50:00 earlier",
        "published: planned start ",
        "forecast: likely start .*, 90 % by ",
        "promise: at the latest ",
    ):
        assert re.search(words, shown), (words, shown)
