"""The federation over HTTP: who may, what is taken, what is told; over a roof whose clusters are away."""

import hashlib
import json
import os
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from schedd.api import groups
from schedd.api.roof import Tokens, create_app
from schedd.cli.main import main
from schedd.cli.user.submit import make_parser, read
from schedd.federation.jobs import Question
from schedd.federation.licences import Lent
from schedd.federation.log import Log
from schedd.federation.roof import Report, Roof
from schedd.federation.seen import HandoverSeen, Offer
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
            "licences": {"matlab": 10},
            "clusters": {
                "north": {**cluster, "disclosure": "plan"},
                "south": {**cluster, "cluster": "other", "disclosure": "offers"},
            },
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
        groups.add(self.app)
        self.begin()

    def begin(self) -> None:
        self.log = Log(f"sqlite:///{self.path}/fed.sqlite", "here", 6.0)
        assert self.log.lead.take()
        self.roof = Roof(settings(self.path), self.log, {"north": "x", "south": "x"}, lambda: self.now)
        self.app.state.roof = self.roof

    def report(self, cluster: str, end: int | None = None, **handovers: HandoverSeen) -> None:
        """The cluster is looked at; with ``end``, its plan ends every job after so many seconds."""
        if end is not None:
            offer = Offer(self.now, self.now + end)
            self.roof.answered(cluster, dict.fromkeys(self.roof.questions(cluster), (offer, 1)))
        seen = {name.replace("_", "."): one for name, one in handovers.items()}
        self.roof.report(cluster, Report(handovers=seen, cpus=8, generation=1))

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
        asked = (("nodes", "2:ppn=4"), ("walltime", "00:01:40"))
        assert desk.roof.questions(name) == [Question(asked, "", "ann")]
        desk.report(name, end)
    (action,) = desk.roof.work("south")
    assert desk.roof.work("north") == []
    assert (action.kind, action.handover) == ("submit", "fed.1.1")
    assert action.body == {
        "user": "ann",
        "queue": "",
        "script": "sleep 1",
        "resources": {"nodes": "2:ppn=4", "walltime": "00:01:40"},
        "attributes": {},
        "variables": {},
    }
    held = HandoverSeen("held", job="7.south")
    desk.report("south", fed_1_1=held)
    assert [one.kind for one in desk.roof.work("south")] == ["release"]
    planned = HandoverSeen("released", job="7.south", state="planned", planned_start=desk.now + 50)
    desk.report("south", fed_1_1=planned)
    row = desk.client("ann@org").get(f"{HERE}/{job}").json()
    assert (row["cluster"], row["server_job"]) == ("south", "7.south")
    assert row["attempts"][0]["planned_start"] is None  # that cluster shows offers alone
    cluster = desk.client("eyes").get("/v1/federation/clusters").json()["clusters"][1]
    assert (cluster["name"], cluster["away"], cluster["ours"], cluster["jobs"]) == ("south", "", 1, None)


def test_a_submission_that_a_cluster_refuses_goes_to_the_next_best(desk: Desk) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        desk.report(name, end)
    desk.roof.refused(desk.roof.work("south")[0], "body.queue: no such queue")
    desk.roof.report("south", Report(handovers={}))
    assert [one.kind for one in desk.roof.work("north")] == ["submit"]
    attempts = desk.client("ann@org").get(f"{HERE}/{job}").json()["attempts"]
    assert [one["phase"] for one in attempts] == ["refused", "asking"]
    assert attempts[0]["text"] == "body.queue: no such queue"


def test_a_cancelled_job_is_withdrawn_where_it_is(desk: Desk) -> None:
    ann = desk.client("ann@org")
    job = ann.post(HERE, json=JOB).json()["id"]
    desk.report("south")
    desk.now += 40
    desk.report("north", 1)
    assert ann.delete(f"{HERE}/{job}").json()["cancelled"]
    assert [one.kind for one in desk.roof.work("north")] == ["withdraw"]
    desk.report("north", fed_1_1=HandoverSeen("withdrawn"))
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
    assert "<b>1</b> under way" in page
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
        "--data",
        "climate,ocean",
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
    assert found["data"] == ["climate", "ocean"]
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


# ---- showq, showstart, checkjob --federation; schedd cancel ------------------------------------------------


@pytest.fixture
def shell(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs commands as ann, of whom two jobs are known: one that is planned in the north, one nowhere yet."""
    server = uvicorn.Server(uvicorn.Config(desk.app, port=0, log_config=None, lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    monkeypatch.setenv("SCHEDD_FEDERATION", f"http://127.0.0.1:{listening.getsockname()[1]}")
    monkeypatch.setenv("SCHEDD_TOKEN", "token-of-ann@org")
    monkeypatch.setenv("COLUMNS", "120")
    ann = desk.client("ann@org")
    ann.post(HERE, json={**JOB, "request": "nodes=1,walltime=90m", "attributes": {"Job_Name": "fold"}})
    for name, end in (("north", 500), ("south", 900)):
        desk.report(name, end)
    assert [one.kind for one in desk.roof.work("north")] == ["submit"]
    for state in ("held", "released"):
        seen = HandoverSeen(state, job="7.north", state="planned", planned_start=1_699_999_950)
        desk.report("north", fed_1_1=seen)
        desk.roof.work("north")
    desk.now += 61
    desk.report("south")
    ann.post(HERE, json={**JOB, "key": "k2"})
    desk.client("bob@org").post(HERE, json=JOB)
    yield lambda *words: main(list(words))
    server.should_exit = True
    thread.join()


def test_users_commands_show_the_jobs_of_all_clusters(
    shell: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("showq", "--federation") == 0
    heads, first, second, _, count = capsys.readouterr().out.splitlines()
    assert heads.split() == ["JOB", "OWNER", "CLUSTER", "JOB", "THERE", "STATE", "PLANNED", "START"]
    assert first.split()[:5] == ["1", "ann@org", "north", "7.north", "planned"]
    assert "14 Nov 2023" in first
    assert second.split() == ["2", "ann@org", "-", "-", "waits", "for", "a", "cluster", "not", "known"]
    assert count == "2 jobs on 1 cluster"
    assert shell("showstart", "--federation", "1") == 0
    shown = capsys.readouterr().out
    assert "job 1 fold: ann@org" in shown
    assert "walltime=01:30:00" in shown, "as every server reads it"
    assert "north, as job 7.north" in shown
    assert shell("showstart", "--federation", "2") == 1, "no start is known"
    capsys.readouterr()
    assert shell("checkjob", "--federation", "1") == 0
    copies = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[-3:]]
    assert copies[1:] == [["1", "north", "7.north"], ["2", "south", "-"]], (
        "it is asked whether it should move"
    )
    assert shell("checkjob", "--federation", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["server_job"] == "7.north"


def test_a_job_is_taken_back(shell: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("cancel", "2", "9", "3") == 3, "there is no job 9, and 3 is not ours"
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "job 2: taken back"
    assert shown.err.count("the federation has no job") == 2
    assert shell("cancel", "2") == 0
    assert shell("showq", "--federation") == 0
    assert "\n2 " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("showq", "--federation", "-r"), 2, "with --federation there are -u and --json alone"),
        (("showstart", "--federation", "2@8@4:00:00"), 2, "name a job of the federation"),
        (("showstart", "--federation"), 2, "name a job of the federation"),
        (("checkjob", "--federation", "12"), 3, "the federation has no job 12"),
    ],
)
def test_what_a_federation_cannot_answer_is_said(
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    assert shell(*words) == code
    assert said in capsys.readouterr().err


def test_without_a_federation_they_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDD_FEDERATION", raising=False)
    assert main(["showq", "--federation"]) == 2
    assert "where is the federation? Give --url or set SCHEDD_FEDERATION" in capsys.readouterr().err
    assert main(["cancel", "1", "--url", "http://127.0.0.1:9"]) == 4


GROUPS = "/v1/federation/groups"
PART = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100"}


def test_a_group_is_kept_before_it_is_acknowledged_and_shown_to_its_owner(desk: Desk) -> None:
    ann = desk.client("ann@org")
    body = {"parts": [PART, {**PART, "clusters": ["north"], "optional": True}], "overhead": 20, "key": "g"}
    made = ann.post(GROUPS, json=body)
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["owner"], row["state"], row["start"]) == ("ann@org", "seeking a start", None)
    assert [one["optional"] for one in row["parts"]] == [False, True]
    assert ann.post(GROUPS, json=body).json()["id"] == row["id"]
    desk.log.close()
    desk.begin()
    assert [one["id"] for one in ann.get(GROUPS).json()["groups"]] == [row["id"]]
    assert desk.client("bob@org").get(f"{GROUPS}/{row['id']}").status_code == 404
    assert desk.client("eyes").delete(f"{GROUPS}/{row['id']}").status_code == 403
    job = ann.post(HERE, json=JOB).json()["id"]  # numbers are of jobs and groups
    assert job != row["id"]
    assert ann.delete(f"{GROUPS}/{row['id']}").json()["cancelled"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"parts": []}, "at least 1"),
        ({"parts": [{**PART, "optional": True}]}, "must not be optional"),
        ({"parts": [{**PART, "clusters": ["west"]}]}, "no cluster west"),
        ({"parts": [{**PART, "owner": "bob@org"}]}, "the owner is the group's"),
        ({"parts": [PART], "deadline": 50}, "it runs for 100 s"),
        ({"parts": [{**PART, "attributes": {"User_List": "x"}}]}, "cannot be handed over"),
        ({"parts": [{**PART, "request": "nodes=1:ppn=x"}]}, "ppn"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(desk: Desk, body: dict[str, Any], said: str) -> None:
    answer = desk.client("ann@org").post(GROUPS, json=body)
    assert answer.status_code == 422, answer.text
    assert said in answer.text


# ---- licences ----------------------------------------------------------------------------------------------


def test_licences_are_lent_by_what_is_wanted_and_shown(desk: Desk) -> None:
    desk.report("north")
    desk.report("south")
    for name, held, wanted in (("north", 0, 6), ("south", 0, 0)):
        (grant,) = desk.roof.grants(name)
        assert (grant.copies, grant.number) == (0, 0)
        desk.roof.lent(grant, Lent(0, 0, held, wanted))
    (grant,) = desk.roof.grants("north")
    assert (grant.copies, grant.number) == (8, 1)
    desk.roof.lent(grant, Lent(8, 1, 0, 6))
    shown = desk.client("eyes").get("/v1/federation/licences").json()["licences"]
    assert [(one["name"], one["copies"], one["free"]) for one in shown] == [("matlab", 10, 2)]
    assert shown[0]["clusters"][0] == {
        "cluster": "north",
        "most": 8,
        "copies": 8,
        "held": 0,
        "wanted": 6,
        "why": "",
    }
    assert "matlab: 10 copies, 2 free" in TestClient(desk.app).get("/").text
    desk.log.close()
    desk.begin()  # the log knows who may use what
    assert desk.roof.licences.pools["matlab"].bounds == {"north": 8, "south": 0}
    desk.roof.report("north", Report("it does not answer"))
    desk.report("south")
    assert desk.roof.licences.free("matlab") == 2, "a cluster that is away keeps what it has"
    (grant,) = desk.roof.grants("south")
    desk.roof.not_lent(grant, "no such licence here")
    assert desk.roof.grants("south") == []
    desk.log.lease_anew(desk.roof.licences.events(desk.now))
    desk.log.close()
    desk.begin()
    assert desk.roof.licences.pools["matlab"].bounds == {"north": 8, "south": 0}
