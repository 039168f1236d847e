"""Licences counted by a program: its runs, and the use of its answers."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.engine import EngineSettings
from schedd.features.licences.background import LicencePoller, PollError, read_count
from schedd.policy.site import site_policy
from schedd.service.cluster.clock import SystemClock
from schedd.service.clusters import Clusters
from schedd.wire import NodeChanged, NodeFacts
from tests.waits import WAIT_S, wait_until


def write_script(path: Path, text: str) -> list[str]:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


@pytest.fixture
def count(tmp_path: Path) -> Path:
    """A file that the program prints."""
    path = tmp_path / "count"
    path.write_text("7\nmore\n")
    return path


@pytest.fixture
def clusters(count: Path) -> Iterator[Clusters]:
    site: dict[str, Any] = {"licences": {"matlab": {"command": ["cat", str(count)], "every": 5, "stale": 10}}}
    found = Clusters(
        {"main": EngineSettings(site=site_policy(site)), "plain": EngineSettings()}, SystemClock()
    )
    found.start(warm=False)
    yield found
    found.stop()


def licence_copies(clusters: Clusters) -> dict[str, int]:
    return clusters["main"].call_between_batches(lambda engine: engine.state.limits.copies).result(WAIT_S)


def wait_for(clusters: Clusters, amount: int) -> None:
    wait_until(lambda: licence_copies(clusters) == {"matlab": amount}, lambda: licence_copies(clusters))


def test_count_is_read_from_the_first_line(tmp_path: Path) -> None:
    assert read_count(write_script(tmp_path / "s", "echo ' 12 '; echo 13")) == 12
    assert read_count(["echo", "0"]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 3", "ended with 3"),
        ("echo no server >&2; exit 1", "ended with 1: no server"),
        ("echo many", "said 'many': a whole number is needed"),
        ("true", "said '': a whole number is needed"),
        ("echo -4", "said '-4'"),
        ("echo 99999999999999999999", "a whole number is needed"),
        ("sleep 60", "did not answer within"),
    ],
)
def test_invalid_count_is_an_error_with_a_reason(
    tmp_path: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in text:
        monkeypatch.setattr("schedd.features.licences.background._PATIENCE", 0.2)
    with pytest.raises(PollError, match=said):
        read_count(write_script(tmp_path / "s", text))


def test_missing_program_is_named_in_the_error() -> None:
    with pytest.raises(PollError, match=r"/no/program: No such file"):
        read_count(["/no/program"])


def test_program_does_not_get_the_daemons_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDD_SECRET", "1")
    assert read_count(["sh", "-c", "echo ${SCHEDD_SECRET:-0}"]) == 0


def test_polled_count_is_used_in_the_plan(clusters: Clusters) -> None:
    wait_for(clusters, 7)


def test_failed_poll_keeps_the_last_count_and_is_logged(
    clusters: Clusters, count: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_for(clusters, 7)
    poller = LicencePoller(clusters["main"])
    now = time.monotonic() + 1000
    count.write_text("9\n")
    poller.poll_licences(now)
    wait_for(clusters, 9)
    count.unlink()
    poller.poll_licences(now + 1)  # not due yet
    assert "was not counted" not in capsys.readouterr().out
    poller.poll_licences(now + 5)
    assert "a licence was not counted" in capsys.readouterr().out
    poller.poll_licences(now + 10)
    poller.poll_licences(now + 15)
    assert capsys.readouterr().out.count("the count of a licence is old") == 1
    assert licence_copies(clusters) == {"matlab": 9}


def test_a_count_that_arrives_after_its_program_was_removed_is_not_used(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(clusters, 7)
    loop = clusters["main"]

    def answer_late(command: object) -> int:
        loop.reconfigure(EngineSettings()).result(WAIT_S)
        return 9

    monkeypatch.setattr("schedd.features.licences.background.read_count", answer_late)
    LicencePoller(loop).poll_licences(time.monotonic() + 1000)
    loop.submit([NodeChanged(id="next", time=loop.now(), node=NodeFacts(name="n1", cpus=4))]).result(WAIT_S)
    assert licence_copies(clusters) == {}
