"""What a federation asks of a cluster, how often, and what of the answers it uses and shows."""

import threading
from pathlib import Path
from typing import Any, Self, cast

import pytest
from fastapi.testclient import TestClient

from schedd.api.federation import cluster_rows, create_app, job_row
from schedd.client import Client, Refused, Unreachable
from schedd.federation.event_log import FederationLog
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.service.access.tokens import Tokens

JOB = {
    "script": "sleep 1",
    "resources": {"nodes": "1"},
    "attributes": {},
    "variables": {},
    "queues": {},
    "cpu_seconds": 60,
    "walltime": 60,
}


class Cluster:
    """Answers for a daemon, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.generation = 1
        self.rows: list[dict[str, Any]] = []
        self.fails: Exception | None = None
        self.answers: Exception | None = None
        """To questions alone."""
        self.family = "torque"
        self.nodes = 3
        self.arriving = 0

    def cluster(self) -> dict[str, Any]:
        self._note("cluster")
        return {
            "generation": self.generation,
            "as_of": 1_700_000_000,
            "stale": "",
            "nodes": self.nodes,
            "arriving": self.arriving,
            "mode": "scheduler",
            "cpus": 64,
            "jobs": {"planned": 5},
            "server": {"family": self.family} if self.family else {},
        }

    def job_transfers(self, since: int = 0, *, after: int | None = None) -> list[dict[str, Any]]:
        self._note("transfers", since, after)
        return self.rows

    def what_if(self, **question: Any) -> dict[str, Any]:
        self._note("what_if", question["owner"])
        if self.answers is not None:
            raise self.answers
        known = bool(self.nodes) and not self.arriving
        return {
            "planned_start": 1_700_000_100 if known else None,
            "planned_end": 1_700_000_160 if known else None,
            "expected_start": None,
            "why": "room" if known else "never on this cluster: the cluster has no nodes",
            "answer": "start_known" if known else "never",
            "cost": 2.5,
            "generation": self.generation,
        }

    def submit_held(self, name: str, body: Any) -> None:
        self._note("submit_held", name, body["user"])

    def release_transfer(self, name: str) -> None:
        self._note("release_requested", name)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _note(self, *what: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.asked.append(what)

    def count(self, what: str) -> int:
        return sum(one[0] == what for one in self.asked)


class Street:
    """A federation over one cluster, whose rounds are made by hand."""

    def __init__(self, path: Path, disclosure: str = "plan", family: str = "torque") -> None:
        self.log = FederationLog(f"sqlite:///{path}/fed.sqlite", "here", 6.0)
        assert self.log.leadership.try_acquire()
        place = {
            "url": "http://127.0.0.1:9",
            "token_file": str(path),
            "realms": ["org"],
            "disclosure": disclosure,
            "family": family,
        }
        settings = FederationSettings.model_validate({"clusters": {"north": place}, "routing": {"poll": 5}})
        self.now = 1_700_000_000
        self.federation = FederationState(settings, self.log, {"north": "x"}, lambda: self.now)
        self.cluster = Cluster()
        client = cast("Client", self.cluster)
        self.peer = ClusterWorker(
            "north", self.federation, "x", threading.Event(), lambda _settings, _token: client
        )

    def round(self, *, look: bool = True) -> None:
        if look:
            self.peer._look_at = 0.0
        self.peer.round()

    def row(self, **more: Any) -> dict[str, Any]:
        found = {
            "transfer": "fed.1.1",
            "phase": "held",
            "job": "7.north",
            "state": "waiting",
            "release_requested": False,
            "end": "",
            "exit_status": None,
            "planned_start": None,
            "planned_end": None,
            "promised_start": None,
            "text": "",
        }
        return found | more


@pytest.mark.parametrize(
    ("disclosure", "cpus", "jobs", "start"),
    [
        ("offers", None, None, None),
        ("power", 64, None, None),
        ("load", 64, {"planned": 5}, None),
        ("plan", 64, {"planned": 5}, 1_700_000_100),
    ],
)
def test_no_more_of_a_cluster_is_used_and_shown_than_it_discloses(
    tmp_path: Path, disclosure: str, cpus: int | None, jobs: dict[str, int] | None, start: int | None
) -> None:
    street = Street(tmp_path, disclosure)
    street.round()
    job = street.federation.submit("ann@org", JOB)
    street.round()
    street.cluster.rows = [street.row()]
    street.cluster.generation = 2
    street.round()
    street.cluster.rows = [
        street.row(phase="released", release_requested=True, state="planned", planned_start=1_700_000_100)
    ]
    street.cluster.generation = 3
    street.round()
    (row,) = cluster_rows(street.federation)
    assert (row["cpus"], row["jobs"], row["disclosure"]) == (cpus, jobs, disclosure)
    assert street.federation.clusters["north"].cpus == (cpus or 0)
    (attempt,) = job_row(street.federation, street.federation.jobs[job.id])["attempts"]
    assert (attempt["phase"], attempt["planned_start"]) == ("released", start)
    street.log.close()


def test_jobs_alike_are_asked_about_once_for_each_plan(tmp_path: Path) -> None:
    street = Street(tmp_path)
    street.round()
    for _ in range(5):
        street.federation.submit("ann@org", JOB)
    street.round()
    assert street.cluster.count("what_if") == 1
    assert all(street.federation.jobs[name].attempts for name in "12345")
    job = street.federation.submit("ann@org", JOB)
    assert job.attempts, "what is known is enough to route it at once"
    street.round()
    assert street.cluster.count("what_if") == 1
    street.cluster.generation, street.now = 2, street.now + 6
    street.round()
    assert street.cluster.count("what_if") == 2
    street.round()
    assert street.cluster.count("what_if") == 2
    street.federation.submit("bob@org", JOB)  # another user's limits are others
    street.round(look=False)
    assert street.cluster.count("what_if") == 3
    street.log.close()


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    street = Street(tmp_path)
    street.round()
    street.round()
    assert street.cluster.asked[-2:] == [("transfers", 0, None), ("cluster",)]
    street.cluster.generation = 7
    street.round()
    assert street.cluster.asked[-1:] == [("transfers", 1_700_000_000, 1)]
    street.cluster.fails = Unreachable("no daemon answers")
    street.round()
    assert street.federation.clusters["north"].away == "no daemon answers"
    street.cluster.fails = None
    street.round()
    assert street.cluster.asked[-1:] == [("transfers", 0, None)], "nobody knows what was missed"
    assert street.federation.clusters["north"].away == ""
    street.log.close()


def test_what_was_asked_for_is_not_asked_for_again_at_once(tmp_path: Path) -> None:
    street = Street(tmp_path)
    street.round()
    street.federation.submit("ann@org", JOB)
    for _ in range(3):
        street.round()
    assert street.cluster.count("submit_held") == 1
    street.peer._sent_at = {name: at - 3.5 for name, at in street.peer._sent_at.items()}
    street.round()
    assert street.cluster.count("submit_held") == 2
    street.log.close()


def test_a_federation_that_is_refused_says_so(tmp_path: Path) -> None:
    street = Street(tmp_path)
    street.cluster.fails = Refused("no-token", 401, "no token that is known here was sent", "", [])
    street.round()
    assert "it refuses the federation" in street.federation.clusters["north"].away
    street.log.close()


def test_a_question_that_took_too_long_is_no_refusal_of_the_job(tmp_path: Path) -> None:
    street = Street(tmp_path)
    street.round()
    street.cluster.answers = Refused("too-hard", 422, "it takes too much work", "", [])
    job = street.federation.submit("ann@org", JOB)
    street.round()
    assert not street.federation.jobs[job.id].over
    street.cluster.answers, street.now = None, street.now + 6
    street.round()
    assert street.federation.jobs[job.id].attempts
    street.cluster.answers = Refused("invalid", 422, "no such queue", "", ["body.queue: no such queue"])
    other = street.federation.submit("bob@org", JOB)
    street.round()
    assert street.federation.jobs[other.id].over == "refused"
    assert street.federation.jobs[other.id].text == "north: body.queue: no such queue"
    street.log.close()


@pytest.mark.parametrize(("nodes", "arriving"), [(0, 0), (1, 2)])
def test_a_plan_whose_server_is_not_read_yet_refuses_no_job(
    tmp_path: Path, nodes: int, arriving: int
) -> None:
    street = Street(tmp_path)
    street.cluster.nodes, street.cluster.arriving = nodes, arriving
    first = street.federation.submit("ann@org", JOB)  # before anybody looked
    street.round()
    second = street.federation.submit("bob@org", JOB)
    street.round(look=False)
    assert [street.federation.jobs[one.id].over for one in (first, second)] == ["", ""]
    street.cluster.nodes, street.cluster.arriving, street.cluster.generation = 3, 0, 2
    street.now += 6
    street.round()
    assert all(street.federation.jobs[one.id].attempts for one in (first, second))
    street.log.close()


BY_SELECT: dict[str, Any] = {**JOB, "resources": {"select": "1:ncpus=2", "walltime": "60"}}


def test_a_torque_that_the_settings_call_openpbs_gets_no_select_and_is_told_of_loudly(tmp_path: Path) -> None:
    street = Street(tmp_path, family="openpbs")
    street.cluster.family = "torque"
    job = street.federation.submit("ann@org", BY_SELECT)
    street.round()
    street.round()
    assert street.federation.jobs[job.id].attempts == ()
    street.federation.submit("ann@org", {**BY_SELECT, "resources": {"select": "1:ncpus=3", "walltime": "60"}})
    street.round()
    assert street.cluster.count("what_if") == 0
    words = "its server is TORQUE, but clusters.north.family says openpbs"
    assert words in cluster_rows(street.federation)[0]["trouble"]
    app = create_app(Tokens([]))
    app.state.federation = street.federation
    client = TestClient(app)
    assert words in client.get("/").text
    assert words in client.get("/readyz").json()["trouble"]["north"]
    plain = street.federation.submit("ann@org", JOB)
    street.round()
    assert [one.cluster for one in street.federation.jobs[plain.id].attempts] == ["north"]
    street.log.close()


@pytest.mark.parametrize(("said", "trouble"), [("openpbs", "OpenPBS"), ("torque", ""), ("", "")])
def test_an_openpbs_that_the_settings_call_torque_is_told_of(tmp_path: Path, said: str, trouble: str) -> None:
    street = Street(tmp_path)
    street.cluster.family = said
    street.round()
    (row,) = cluster_rows(street.federation)
    assert row["trouble"].startswith(f"its server is {trouble}, but") if trouble else row["trouble"] == ""
    assert street.federation.unsupported_reason("north", BY_SELECT["resources"])
    street.cluster.family = "torque"  # somebody looked into it
    street.round()
    assert cluster_rows(street.federation)[0]["trouble"] == ""
    street.log.close()
