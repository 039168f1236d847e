"""The federation over HTTP: who may, what is taken, what is told; over a roof whose clusters are away."""

import hashlib
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.api.roof import Tokens, create_app
from schedd.cli.user.submit import make_parser, read
from schedd.federation.log import Log
from schedd.federation.machine import HandoverSeen, Offer
from schedd.federation.roof import Report, Roof
from schedd.federation.settings import Settings
from schedd.service.roles import Bearer
from schedd.store.errors import NotLeader

JOB = {"script": "sleep 1", "request": "nodes=2:ppn=4,walltime=100", "key": "k1"}
HERE = "/v1/federation/jobs"
PEOPLE = [("ann@org", "user"), ("bob@org", "user"), ("root", "admin"), ("eyes", "reader")]


def bearer(name: str, role: Any) -> tuple[Bearer, bytes]:
    return Bearer(name, role), hashlib.sha256(f"token-of-{name}".encode()).digest()


def settings(path: Path) -> Settings:
    cluster = {"url": "http://127.0.0.1:9", "token_file": str(path), "realms": ["org"], "timeout": 0.2}
    return Settings.model_validate(
        {
            "clusters": {
                "north": {**cluster, "disclosure": "plan"},
                "south": {**cluster, "cluster": "other", "disclosure": "offers"},
            }
        }
    )


class Desk:
    """A roof over a real database, and its application."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_700_000_000
        self.app = create_app(
            Tokens(
                [
                    bearer("ann@org", "user"),
                    bearer("bob@org", "user"),
                    bearer("root", "admin"),
                    bearer("eyes", "reader"),
                ]
            )
        )
        self.begin()

    def begin(self) -> None:
        self.log = Log(f"sqlite:///{self.path}/fed.sqlite", "here", 6.0)
        assert self.log.lead.take()
        self.roof = Roof(settings(self.path), self.log, {"north": "x", "south": "x"}, lambda: self.now)
        self.app.state.roof = self.roof

    def client(self, name: str) -> TestClient:
        return TestClient(self.app, headers={"Authorization": f"Bearer token-of-{name}"})


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.log.close()


def test_a_job_is_kept_before_it_is_acknowledged_and_once_for_a_key(desk: Desk) -> None:
    ann = desk.client("ann@org")
    first = ann.post(HERE, json=JOB)
    assert first.status_code == 201
    assert ann.post(HERE, json=JOB).json()["id"] == first.json()["id"]
    assert desk.client("bob@org").post(HERE, json=JOB).json()["id"] != first.json()["id"]
    desk.log.close()
    desk.begin()
    row = ann.get(f"{HERE}/{first.json()['id']}").json()
    assert (row["owner"], row["over"], row["attempts"]) == ("ann@org", "", [])
    assert ann.post(HERE, json=JOB).json()["id"] == first.json()["id"]
    assert ann.post(HERE, json={**JOB, "key": "k2"}).json()["id"] == "3"


def test_a_job_goes_to_the_cluster_whose_plan_ends_it_first(desk: Desk) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        assert [one[0] for one in desk.roof.questions(name)] == [job]
        offer = {job: Offer(desk.now, desk.now + end)}
        desk.roof.report(name, Report(handovers={}, offers=offer, cpus=8))
    (action,) = desk.roof.work("south")
    assert desk.roof.work("north") == []
    assert (action.kind, action.handover) == ("submit", "fed.1.1")
    assert action.body == {
        "user": "ann",
        "queue": "",
        "script": "sleep 1",
        "resources": {"nodes": "2:ppn=4", "walltime": "100"},
        "attributes": {},
        "variables": {},
    }
    held = HandoverSeen("held", job="7.south")
    desk.roof.report("south", Report(handovers={"fed.1.1": held}))
    assert [one.kind for one in desk.roof.work("south")] == ["release"]
    planned = HandoverSeen("released", job="7.south", state="planned", planned_start=desk.now + 50)
    desk.roof.report("south", Report(handovers={"fed.1.1": planned}))
    row = desk.client("ann@org").get(f"{HERE}/{job}").json()
    assert (row["cluster"], row["server_job"]) == ("south", "7.south")
    assert row["attempts"][0]["planned_start"] is None  # that cluster shows offers alone
    cluster = desk.client("eyes").get("/v1/federation/clusters").json()["clusters"][1]
    assert (cluster["name"], cluster["away"], cluster["ours"], cluster["jobs"]) == ("south", "", 1, None)


def test_a_submission_that_a_cluster_refuses_goes_to_the_next_best(desk: Desk) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        desk.roof.questions(name)
        desk.roof.report(name, Report(handovers={}, offers={job: Offer(desk.now, desk.now + end)}))
    desk.roof.refused(desk.roof.work("south")[0], "body.queue: no such queue")
    desk.roof.report("south", Report(handovers={}))
    assert [one.kind for one in desk.roof.work("north")] == ["submit"]
    attempts = desk.client("ann@org").get(f"{HERE}/{job}").json()["attempts"]
    assert [one["phase"] for one in attempts] == ["refused", "asking"]
    assert attempts[0]["text"] == "body.queue: no such queue"


def test_a_cancelled_job_is_withdrawn_where_it_is(desk: Desk) -> None:
    ann = desk.client("ann@org")
    job = ann.post(HERE, json=JOB).json()["id"]
    desk.roof.questions("north")
    desk.roof.questions("south")
    desk.roof.report("south", Report(handovers={}))
    desk.now += 40
    desk.roof.report("north", Report(handovers={}, offers={job: Offer(1, 2)}))
    assert ann.delete(f"{HERE}/{job}").json()["cancelled"]
    assert [one.kind for one in desk.roof.work("north")] == ["withdraw"]
    desk.roof.report("north", Report(handovers={"fed.1.1": HandoverSeen("withdrawn")}))
    assert ann.get(f"{HERE}/{job}").json()["over"] == "cancelled"
    assert desk.roof.work("north") == []


def test_others_jobs_are_nobodys_business(desk: Desk) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    bob = desk.client("bob@org")
    assert bob.get(HERE).json()["jobs"] == []
    assert bob.get(f"{HERE}/{job}").status_code == 404
    assert bob.delete(f"{HERE}/{job}").status_code == 404
    assert len(desk.client("eyes").get(HERE).json()["jobs"]) == 1
    assert desk.client("eyes").delete(f"{HERE}/{job}").status_code == 403
    assert desk.client("eyes").post(HERE, json=JOB).status_code == 403
    assert desk.client("nobody").get(HERE).status_code == 401
    assert bob.post(HERE, json={**JOB, "owner": "ann@org"}).status_code == 403
    assert desk.client("root").post(HERE, json={**JOB, "owner": "ann@org"}).json()["id"] == job


@pytest.mark.parametrize(
    "wrong",
    [
        {"request": "nodes=;"},
        {"request": None},
        {"resources": {"nodes": "1"}},
        {"script": ""},
        {"attributes": {"User_List": "root"}},
        {"clusters": ["nowhere"]},
        {"colour": "red"},
    ],
)
def test_a_job_that_is_not_understood_changes_nothing(desk: Desk, wrong: dict[str, Any]) -> None:
    ann = desk.client("ann@org")
    answer = ann.post(HERE, json={**JOB, **wrong})
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"].startswith("urn:schedd:problem:")
    assert ann.get(HERE).json()["jobs"] == []


def test_a_cluster_that_does_not_answer_is_said_so_in_a_what_if(desk: Desk) -> None:
    found = desk.client("ann@org").post("/v1/federation/what-if", json={"request": "nodes=1,walltime=60"})
    rows = found.json()["clusters"]
    assert [row["cluster"] for row in rows] == ["north", "south"]
    assert all("no daemon answers" in row["why"] for row in rows)


def test_who_lost_its_lead_takes_nothing(desk: Desk) -> None:
    other = Log(f"sqlite:///{desk.path}/fed.sqlite", "there", 6.0)
    other.lead._take_file = bool  # type: ignore[assignment, method-assign]  # as if on another host
    assert other.lead.take()
    with pytest.raises(NotLeader):
        desk.roof.submit("ann@org", {})
    other.lead._lock_file = None
    other.close()


def test_standing_by_it_says_so(desk: Desk) -> None:
    desk.app.state.roof = None
    assert desk.client("ann@org").get("/readyz").status_code == 503
    assert desk.client("ann@org").post(HERE, json=JOB).status_code == 503
    assert "stands by" in desk.client("ann@org").get("/").text


def test_the_page_shows_clusters_and_no_job(desk: Desk) -> None:
    desk.client("ann@org").post(HERE, json={**JOB, "attributes": {"Job_Name": "secret"}})
    page = TestClient(desk.app).get("/").text
    assert "north" in page
    assert "1 jobs are under way" in page
    assert "secret" not in page
    assert "ann@" not in page


# ---- schedd submit -----------------------------------------------------------------------------------------


def options(*words: str) -> Namespace:
    return make_parser().parse_args(list(words))


def test_submit_reads_qsubs_options_and_the_scripts_own() -> None:
    script = (
        "#!/bin/sh\n#PBS -N relax -l nodes=2:ppn=4\n#PBS -l walltime=100\n#PBS -v A=1\necho\n#PBS -N late\n"
    )
    words = (
        "-v",
        "B=2,HOME",
        "-W",
        "stagein=x@h:/x",
        "-q",
        "long@north",
        "--only",
        "north,south",
        "-N",
        "mine",
    )
    found = read(options(*words, "--key", "k"), script, {"HOME": "/home/ann", "PWD": "/work", "SECRET": "s"})
    assert found["request"] == "nodes=2:ppn=4,walltime=100"
    assert found["attributes"]["Job_Name"] == "mine"
    assert found["attributes"]["stagein"] == "x@h:/x"
    assert found["attributes"]["init_work_dir"] == "/work"
    assert found["queues"] == {"north": "long"}
    assert found["clusters"] == ["north", "south"]
    variables = found["variables"]
    assert (variables["A"], variables["B"], variables["HOME"]) == ("1", "2", "/home/ann")
    assert variables["PBS_O_HOME"] == "/home/ann"
    assert "SECRET" not in variables
    everything = read(options("-V", "-l", "nodes=1"), "x", {"SECRET": "s"})
    assert everything["variables"]["SECRET"] == "s"
    assert everything["key"] != read(options("-l", "nodes=1"), "x", os.environ)["key"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-q", "batch", "-l", "nodes=1"), "QUEUE@CLUSTER"),
        (("-W", "depend=afterok:1", "-l", "nodes=1"), "stagein="),
        ((), "what does it ask for"),
    ],
)
def test_submit_says_what_it_does_not_understand(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(options(*words), "x", {})


def test_a_bag_of_tasks_is_shared_by_offers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(roof: Roof, owner: str, body: Any) -> list[dict[str, Any]]:
        del roof, owner
        tasks = int(body.asked["nodes"].partition(":")[0])
        rows = [{"cluster": "north", "end": desk.now + 10}] if tasks <= 5 else []
        return [*rows, {"cluster": "south", "end": desk.now + 10 * tasks}]

    monkeypatch.setattr("schedd.api.roof.first", answer)
    ann = desk.client("ann@org")
    bag = {"request": "nodes=1:ppn=2,walltime=60", "tasks": 10, "deadline": desk.now + 60}
    found = ann.post("/v1/federation/bag", json=bag).json()
    assert found["split"] == {"shares": {"north": 5, "south": 5}, "end": desk.now + 50, "met": True}
    late = ann.post("/v1/federation/bag", json={**bag, "deadline": desk.now + 1}).json()["split"]
    assert (late["met"], sum(late["shares"].values())) == (False, 10)
    refused = ann.post("/v1/federation/bag", json={**bag, "balance": "power"})
    assert refused.status_code == 422
    assert "needs the power" in refused.text
    assert ann.post("/v1/federation/bag", json={**bag, "request": "nodes=2:ppn=2"}).status_code == 422
