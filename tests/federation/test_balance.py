"""Balance report over a federation's clusters, from their own daemons."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.client import Client
from schedd.client.json_object import JsonObject
from schedd.engine import EngineSettings
from schedd.federation.api import balance
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.settings import FederationSettings
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.start_sentence import NO_HISTORY
from tests.api.served_app import serving
from tests.federation.federation_harness import HERE, JOB, FederationHarness, released
from tests.service.planner_harness import StillClock, T

PERIOD = {"since": T - 3_600, "until": T}


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    made = Clusters({"main": EngineSettings(), "other": EngineSettings()}, StillClock())
    made.start(warm=False)
    yield made
    made.stop()


@pytest.fixture
def harness(clusters: Clusters, tmp_path: Path) -> Iterator[FederationHarness]:
    """Harness over a real daemon with two clusters (one does not disclose its load) and an unreachable
    cluster.
    """
    ours = Tokens([(Bearer("ours", "federation"), hashlib.sha256(b"x").digest())])
    with serving(create_app(clusters, ours), clusters) as url:
        made = FederationHarness(tmp_path)
        made.log.close()
        balance.router.add_to(made.app)
        common = {"token_file": str(tmp_path), "realms": ["org"], "timeout": 5.0}
        chosen = {
            "north": {**common, "url": url, "cluster": "main", "disclosure": "load"},
            "south": {**common, "url": url, "cluster": "other", "disclosure": "offers"},
            "west": {**common, "url": "http://127.0.0.1:9", "cluster": "main", "disclosure": "plan"},
        }
        made.begin(FederationSettings.model_validate({"clusters": chosen}))
        made.federation.cluster_tokens = dict.fromkeys(chosen, "x")
        yield made
        made.log.close()


def rows(harness: FederationHarness, **query: int) -> dict[str, dict[str, Any]]:
    answer = harness.client("eyes").get("/v1/federation/balance", params=query or PERIOD)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["since"], found["until"]) == (PERIOD["since"], PERIOD["until"])
    return {one["cluster"]: one for one in found["clusters"]}


def test_balance_shows_only_disclosed_data(harness: FederationHarness) -> None:
    found = rows(harness)
    assert found["north"]["why"] == ""
    assert (found["north"]["kept"], found["north"]["queues"]) == (False, [])
    assert found["south"]["why"] == "it does not disclose its load"
    assert found["west"]["why"]
    assert "127.0.0.1" not in found["west"]["why"]  # every user may ask
    assert found["south"]["share"] is found["west"]["share"] is None


@pytest.mark.parametrize(
    ("said", "why"),
    [([{"cluster": "main", "work": 3.0, "news": 1}], ""), ([], "it has no report of this period")],
)
def test_report_of_another_version_does_not_fail_that_of_all_clusters(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch, said: list[dict[str, Any]], why: str
) -> None:
    monkeypatch.setattr(Client, "quality_report", lambda *_, **__: JsonObject(clusters=said))
    found = rows(harness)["north"]
    assert (found["why"], found["work"], found["cpus"]) == (why, said[0]["work"] if said else None, None)


def test_own_jobs_count_at_their_cluster_within_the_period(harness: FederationHarness) -> None:
    harness.client("ann@org").post(HERE, json={**JOB, "deadline": harness.now + 10})
    harness.report("north", 100)
    harness.report("south", 900)
    harness.report("west", 900)
    harness.federation.pending_actions("north")
    released(harness, "north", "1")
    harness.report("north", fed_1_1=TransferStatus("released", job="1.north", end="ended", exit_status=0))
    ended = harness.federation.jobs["1"].over_at
    assert ended == harness.now
    harness.now += 10
    period = {"since": ended, "until": ended + 1}
    answer = harness.client("eyes").get("/v1/federation/balance", params=period).json()
    ours = {one["cluster"]: one["ours"]["ended"] for one in answer["clusters"]}
    assert ours == {"north": 1, "south": 0, "west": 0}
    before = harness.client("eyes").get("/v1/federation/balance", params=PERIOD).json()
    assert [one["ours"]["ended"] for one in before["clusters"]] == [0, 0, 0]


def test_empty_period_is_refused(harness: FederationHarness) -> None:
    answer = harness.client("eyes").get("/v1/federation/balance", params={"since": 10, "until": 10})
    assert answer.status_code == 422
    assert "is empty" in answer.json()["detail"]


def test_report_command_queries_the_federation(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-eyes")
    with serving(harness.app, ()) as url:
        asked = ("report", "--federation", "--url", url, "--since", "2023-11-14T00:00")
        assert main((*asked, "--until", "2023-11-14T20:00")) == 0
        told = capsys.readouterr().out
        assert main((*asked, "--cluster", "east")) == 2
    assert "south: it does not disclose its load" in told
    assert f"north: {NO_HISTORY}" in told
    assert "the federation has no cluster east" in capsys.readouterr().err
