"""The federation's HTTP interface: access, submissions and answers, over a federation without reachable
clusters.
"""

import re
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api.iso_times import iso_time
from schedd.client import Client, Unreachable
from schedd.client.json_object import JsonObject
from schedd.federation.api.app import create_app
from schedd.federation.api.audited_route import _name_act
from schedd.federation.api.daemon import FEDERATION_ROUTES, SettingsFilesWatch
from schedd.federation.api.pages import routes
from schedd.federation.api.pages.routes import FederatedJobRow, start_key
from schedd.federation.event_log import FederationLog
from schedd.federation.licences import ClusterLicenceUse
from schedd.federation.routing.candidates import ClusterLoads, compute_loads
from schedd.federation.routing.cluster_status import PlanOffer, TransferStatus
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.service.access.tokens import Tokens
from schedd.store import Role
from schedd.store.errors import NotLeader, StoreError
from schedd.supervision import Supervisor
from schedd.wire.settings_file import SettingsFiles
from tests.conftest import ROOT
from tests.federation.federation_harness import HERE, JOB, FederationHarness, bearer, released, settings


def test_job_is_stored_before_the_reply_and_once_for_a_key(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    first = ann.post(HERE, json=JOB)
    assert first.status_code == 201
    assert ann.post(HERE, json=JOB).json()["id"] == first.json()["id"]
    assert harness.client("bob@org").post(HERE, json=JOB).json()["id"] != first.json()["id"]
    harness.log.close()
    harness.begin()
    row = ann.get(f"{HERE}/{first.json()['id']}").json()
    assert (row["owner"], row["over"], row["attempts"]) == ("ann@org", "", [])
    assert ann.post(HERE, json=JOB).json()["id"] == first.json()["id"]
    assert ann.post(HERE, json={**JOB, "key": "k2"}).json()["id"] == "3"


def test_job_is_refused_if_the_log_fails_and_can_be_repeated(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    ann = harness.client("ann@org")
    with monkeypatch.context() as full:
        full.setattr(harness.log, "append", fail)
        answer = ann.post(HERE, json=JOB)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json()["detail"] == "database unavailable: the disk is full"
    assert "send it again, with the same `key`" in answer.json()["hint"]
    assert ann.get(HERE).json()["jobs"] == []
    assert ann.post(HERE, json=JOB).status_code == 201


def test_settings_file_that_is_moved_away_is_reported(harness: FederationHarness, tmp_path: Path) -> None:
    path, token = tmp_path / "federation.toml", tmp_path / "north.token"
    path.touch()
    token.touch()
    files = SettingsFiles(path, settings(token))
    watch = SettingsFilesWatch(files, harness.app, Supervisor())
    ann, admin = harness.client("ann@org"), TestClient(harness.app)
    admin.post("/login", data={"token": "token-of-root"})
    token.rename(tmp_path / "away")
    watch.run_step()
    assert ann.get("/readyz").json()["settings"] == "the settings have a fault"
    (tmp_path / "away").rename(token)
    path.rename(tmp_path / "away")
    watch.run_step()
    assert str(path) not in ann.get("/").text
    page = admin.get("/").text
    (tmp_path / "away").rename(path)
    watch.run_step()
    assert ann.get("/readyz").json()["settings"] == ""
    assert str(path) in page


def test_log_that_cannot_be_written_is_reported(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise StoreError("the disk is full")

    ann = harness.client("ann@org")
    assert ann.get("/readyz").status_code == 200
    with monkeypatch.context() as full:
        full.setattr(harness.log._database, "write", fail)
        assert ann.post(HERE, json=JOB).status_code == 503
        answer = ann.get("/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (503, harness.federation.log_trouble)
        assert "No jobs are accepted or moved." in ann.get("/").text
    assert ann.post(HERE, json=JOB).status_code == 201
    assert ann.get("/readyz").status_code == 200
    with monkeypatch.context() as expired:
        expired.setattr(type(harness.log.leadership), "is_leader", property(lambda _: False))
        assert "the lease has expired" in ann.get("/readyz").json()["detail"]


def test_job_goes_to_cluster_with_earliest_end(harness: FederationHarness) -> None:
    job = harness.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        asked = (("nodes", "2:ppn=4"), ("walltime", "00:01:40"))
        assert harness.federation.due_questions(name) == [PlanQuestion(asked, "", "ann")]
        harness.report(name, end)
    (action,) = harness.federation.pending_actions("south")
    assert harness.federation.pending_actions("north") == []
    assert (action.kind, action.transfer) == ("submit", "fed.1.1")
    assert action.body == {
        "user": "ann",
        "queue": "",
        "script": "sleep 1",
        "resources": {"nodes": "2:ppn=4", "walltime": "00:01:40"},
        "attributes": {},
        "variables": {},
    }
    held = TransferStatus("held", job="7.south")
    harness.report("south", fed_1_1=held)
    assert [one.kind for one in harness.federation.pending_actions("south")] == ["release"]
    planned = TransferStatus("released", job="7.south", state="planned", planned_start=harness.now + 50)
    harness.report("south", fed_1_1=planned)
    row = harness.client("ann@org").get(f"{HERE}/{job}").json()
    assert (row["cluster"], row["server_job"]) == ("south", "7.south")
    assert row["attempts"][0]["planned_start"] is None  # the cluster discloses only offers
    cluster = harness.client("eyes").get("/v1/federation/clusters").json()["clusters"][1]
    assert (cluster["name"], cluster["away"], cluster["ours"], cluster["jobs"]) == ("south", "", 1, None)


def test_job_and_cluster_choice_share_a_commit(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = harness.client("ann@org")
    ann.post(HERE, json=JOB)
    for name, end in (("north", 900), ("south", 500)):
        harness.report(name, end)
    kept: list[list[str]] = []
    append = harness.log.append

    def note(events: Any) -> None:
        kept.append([one.type for one in events])
        append(events)

    monkeypatch.setattr(harness.log, "append", note)
    row = ann.post(HERE, json={**JOB, "key": "k2"}).json()
    assert (row["cluster"], [one["phase"] for one in row["attempts"]]) == ("south", ["submitting"])
    assert kept == [["job_submitted", "cluster_chosen"]]
    harness.log.close()
    harness.begin()  # identical after a replay
    assert harness.federation.jobs[row["id"]].attempts[0].cluster == "south"


def test_equal_waiting_jobs_need_a_single_question(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = harness.client("ann@org")
    for key in ("k1", "k2", "k3"):
        ann.post(HERE, json={**JOB, "key": key})
    ann.post(HERE, json={**JOB, "key": "k4", "request": "nodes=1,walltime=100"})
    for name, end in (("north", 500), ("south", 900)):
        harness.report(name, end)
    released(harness, "north", *"1234")
    wanted: list[str] = []

    def note_subscription(_: PlanOffers, question: PlanQuestion, *__: object, **___: object) -> bool:
        wanted.append(dict(question.resources)["nodes"])
        return True

    monkeypatch.setattr(PlanOffers, "subscribe", note_subscription)
    harness.now += 61
    harness.report("south")
    assert sorted(wanted) == ["1", "1", "2:ppn=4", "2:ppn=4"]  # at both clusters


def test_cluster_load_is_recomputed_only_after_changes(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reckoned: list[str] = []
    compared: list[bool] = []

    def note(jobs: Any, seen: Any, rules: Any, only: list[str]) -> ClusterLoads:
        reckoned.extend(only)
        return compute_loads(jobs, seen, rules, only)

    monkeypatch.setattr("schedd.federation.state.federation_state.compute_loads", note)

    def report_north(wanted: bool, **states: tuple[str, str]) -> None:
        """Poll the north. Return whether its load was recomputed; without new events the load must be correct
        anyway.
        """
        reckoned.clear()
        seen = {
            f"fed.{job[1:]}.1": TransferStatus(phase, job=job, state=state)
            for job, (phase, state) in states.items()
        }
        harness.federation.apply_report(
            "north", ClusterPollResult(transfers=seen, whole=False, cpus=8, generation=1)
        )
        assert reckoned == ["north"] * wanted, states
        if "north" in harness.federation._outdated_loads:
            return
        compared.append(wanted)
        right = compute_loads(
            harness.federation.jobs, harness.federation.clusters, harness.federation.settings.rules, ["north"]
        )
        assert harness.federation._load.sent["north"] == right.sent["north"]
        assert harness.federation.backlog("north") == right.backlog["north"]

    ann = harness.client("ann@org")
    for key in ("k1", "k2"):
        ann.post(HERE, json={**JOB, "key": key})
    for name, end in (("north", 500), ("south", 90_000)):
        harness.report(name, end)
    report_north(wanted=True)  # two were sent there
    assert harness.federation._load.sent["north"] == 2 * 8 * 100
    report_north(wanted=True, j1=("held", "waiting"), j2=("held", "waiting"))
    report_north(wanted=True, j1=("released", "planned"))
    report_north(wanted=True)  # it was let go by the look before
    report_north(wanted=False)
    report_north(wanted=False, j1=("released", "waiting"))  # the same for the load
    report_north(wanted=True, j1=("released", "running"))
    assert harness.federation.backlog("north").count[0] == 1

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    before = harness.federation._load.sent["north"]
    with monkeypatch.context() as full:
        full.setattr(harness.log, "append", fail)
        with pytest.raises(StoreError):
            harness.federation.submit("ann@org", harness.federation.jobs["1"].submission)
    assert harness.federation._load.sent["north"] > before, "the choice was made before it failed"
    report_north(wanted=True)
    assert compared == [True, True, False, False, True, True]


def test_refused_submission_goes_to_the_next_best_cluster(harness: FederationHarness) -> None:
    job = harness.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        harness.report(name, end)
    harness.federation.apply_refusal(
        harness.federation.pending_actions("south")[0], "body.queue: no such queue"
    )
    harness.federation.apply_report("south", ClusterPollResult(transfers={}))
    assert [one.kind for one in harness.federation.pending_actions("north")] == ["submit"]
    attempts = harness.client("ann@org").get(f"{HERE}/{job}").json()["attempts"]
    assert [one["phase"] for one in attempts] == ["refused", "submitting"]
    assert attempts[0]["text"] == "body.queue: no such queue"


def test_cancelled_job_is_withdrawn_at_its_cluster(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    job = ann.post(HERE, json=JOB).json()["id"]
    harness.report("south")
    harness.now += 40
    harness.report("north", 1)
    assert ann.delete(f"{HERE}/{job}").json()["cancelled"]
    assert [one.kind for one in harness.federation.pending_actions("north")] == ["withdraw"]
    harness.report("north", fed_1_1=TransferStatus("withdrawn"))
    assert ann.get(f"{HERE}/{job}").json()["over"] == "cancelled"
    assert harness.federation.pending_actions("north") == []


def test_only_owners_and_admins_cancel_jobs(harness: FederationHarness) -> None:
    job = harness.client("ann@org").post(HERE, json=JOB).json()["id"]
    roles: tuple[Role, ...] = ("reader", "operator", "adapter", "federation", "proxy")
    users = [bearer(f"some-{role}", role) for role in roles]
    harness.app.state.tokens = Tokens([*users, bearer("root", "admin")])
    for role in roles:
        code = harness.client(f"some-{role}").delete(f"{HERE}/{job}").status_code
        assert code == (404 if role == "proxy" else 403), role
    assert harness.client("some-reader").get(f"{HERE}/{job}").status_code == 200
    proxy = harness.client("some-proxy")  # it has no rights of its own
    assert proxy.get(f"{HERE}/{job}").status_code == 404
    assert proxy.post("/login", data={"token": "token-of-some-proxy"}).status_code == 403
    assert harness.client("root").delete(f"{HERE}/{job}").json()["cancelled"]


def test_foreign_jobs_are_hidden(harness: FederationHarness) -> None:
    job = harness.client("ann@org").post(HERE, json=JOB).json()["id"]
    bob = harness.client("bob@org")
    assert bob.get(HERE).json()["jobs"] == []
    assert bob.get(f"{HERE}/{job}").status_code == 404
    assert bob.delete(f"{HERE}/{job}").status_code == 404
    assert len(harness.client("eyes").get(HERE).json()["jobs"]) == 1
    assert harness.client("eyes").delete(f"{HERE}/{job}").status_code == 403
    assert harness.client("eyes").post(HERE, json=JOB).status_code == 403
    assert harness.client("nobody").get(HERE).status_code == 401
    assert bob.post(HERE, json={**JOB, "owner": "ann@org"}).status_code == 403
    assert harness.client("root").post(HERE, json={**JOB, "owner": "ann@org"}).json()["id"] == job


def test_job_leaves_its_size_to_the_cluster(harness: FederationHarness) -> None:
    job = harness.client("ann@org").post(HERE, json={**JOB, "request": "trl=8@100:4@150"})
    assert job.status_code == 201, job.text
    submission = harness.federation.jobs[job.json()["id"]].submission
    assert (submission["resources"], submission["walltime"]) == ({"trl": "8@100:4@150"}, 150)


@pytest.mark.parametrize(
    "wrong",
    [
        {"request": "nodes=;"},
        {"request": "trl=8@100:4"},
        {"request": None},
        {"resources": {"nodes": "1"}},
        {"script": ""},
        {"attributes": {"User_List": "root"}},
        {"clusters": ["nowhere"]},
        {"colour": "red"},
    ],
)
def test_invalid_job_changes_nothing(harness: FederationHarness, wrong: dict[str, Any]) -> None:
    ann = harness.client("ann@org")
    answer = ann.post(HERE, json={**JOB, **wrong})
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"].startswith("urn:schedd:problem:")
    assert ann.get(HERE).json()["jobs"] == []


def test_query_names_an_unreachable_cluster(harness: FederationHarness) -> None:
    found = harness.client("ann@org").post("/v1/federation/what-if", json={"request": "nodes=1,walltime=60"})
    rows = found.json()["clusters"]
    assert [row["cluster"] for row in rows] == ["north", "south"]
    assert all("no daemon answers" in row["why"] for row in rows)


def test_daemon_without_leadership_accepts_nothing(harness: FederationHarness) -> None:
    other = FederationLog(f"sqlite:///{harness.path}/fed.sqlite", "there", 6.0)
    other.leadership._acquire_file_lock = bool  # type: ignore[assignment, method-assign]  # as if on another host
    assert other.leadership.try_acquire()
    with pytest.raises(NotLeader):
        harness.federation.submit("ann@org", {})
    other.leadership._lock_file = None
    other.close()


def test_standby_daemon_is_not_ready(harness: FederationHarness) -> None:
    harness.app.state.federation = None
    assert harness.client("ann@org").get("/readyz").status_code == 503
    assert harness.client("ann@org").post(HERE, json=JOB).status_code == 503
    harness.app.state.leader = "head2"
    assert "This daemon is on standby." in harness.client("ann@org").get("/").text
    assert "head2" not in harness.client("ann@org").get("/").text, "nobody is logged in"
    visitor = TestClient(harness.app, base_url="http://fed")
    visitor.post("/login", data={"token": "token-of-ann@org"})
    assert "<code>head2</code> leads." in visitor.get("/").text


def test_page_shows_jobs_and_their_pages_only_to_those_who_may_see_them(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    assert ann.post(HERE, json={**JOB, "attributes": {"Job_Name": "secret"}}).status_code == 201
    harness.report("north", 500)
    harness.report("south", 900)
    released(harness, "north", "1")
    visitor = TestClient(harness.app)
    page = visitor.get("/").text
    assert 'href="http://127.0.0.1:9/dashboard/main/plan"' in page
    assert "1 waiting, 0 running" in page
    assert "secret" not in page
    assert "ann@" not in page
    assert "/login" in visitor.get("/jobs/1", follow_redirects=False).headers["location"]
    assert visitor.post("/login", data={"token": "wrong"}).status_code == 403

    pages = {}
    for name in ("ann@org", "bob@org", "eyes"):
        visitor = TestClient(harness.app, base_url="http://fed")
        answer = visitor.post("/login", data={"token": f"token-of-{name}", "next": "/jobs/1"})
        pages[name] = visitor.get("/").text, answer
    assert "secret" in pages["ann@org"][0]
    assert "secret" in pages["eyes"][0]
    assert "ann@org" in pages["eyes"][0]
    assert "secret" not in pages["bob@org"][0]
    assert [answer.status_code for _, answer in pages.values()] == [200, 404, 200]
    job_page = pages["ann@org"][1].text
    assert 'href="http://127.0.0.1:9/dashboard/main/jobs/1.north"' in job_page
    assert "Due since" in job_page or "Starts now" in job_page
    assert "secret" not in pages["bob@org"][1].text


def test_page_lists_next_starts_first_and_running_jobs_below(harness: FederationHarness) -> None:
    now = harness.federation.now

    def row(state: str, planned: int | None, started: int | None = None) -> FederatedJobRow:
        attempt: Any = JsonObject(
            cluster="north",
            state=state,
            started=started,
            planned_start=planned,
            displayed_start=planned,
            expected_start=None,
            expected_by=None,
            expected_as_of=None,
            promised_start=None,
            at_risk=None,
            predicted=False,
            starts_stopped="",
        )
        job: Any = JsonObject(cluster="north", over="", attempts=[attempt])
        return FederatedJobRow(job, state, attempt, None)

    rows = [row("running", None, now - 60), row("planned", now + 900), row("waiting", None)]
    rows += [row("planned", now + 300)]
    ordered = sorted(rows, key=lambda one: start_key(one, now))
    assert ordered == [rows[3], rows[1], rows[0], rows[2]]


def test_a_login_to_the_page_ends_with_its_token_and_at_logout(harness: FederationHarness) -> None:
    visitor = TestClient(harness.app, base_url="http://fed")
    page = visitor.post("/login", data={"token": "token-of-ann@org"}).text
    assert "No open jobs" in page
    assert "Without a cluster" not in page, "no numbers of jobs where there are none"
    assert "0 of the federation" not in page
    assert "No open jobs" in visitor.post("/logout", data={"csrf": "wrong"}).text
    (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', page))
    assert "Log in</a> to see jobs" in visitor.post("/logout", data={"csrf": csrf}).text

    visitor.post("/login", data={"token": "token-of-ann@org"})
    other_site = {"sec-fetch-site": "cross-site"}
    assert visitor.post("/logout", headers=other_site).status_code == 403
    assert "No open jobs" in visitor.get("/").text
    harness.app.state.tokens = Tokens([bearer("bob@org", "user")])
    assert "Log in</a> to see jobs" in visitor.get("/").text


BY_SELECT = {**JOB, "request": "select=2:ncpus=4:mem=1gb,place=scatter,walltime=100"}


def with_openpbs(harness: FederationHarness) -> None:
    """From now on the south has an OpenPBS."""
    plain = settings(harness.path).model_dump(exclude_unset=True)
    plain["clusters"]["south"]["family"] = "openpbs"
    harness.log.close()
    harness.begin(FederationSettings.model_validate(plain))


def test_select_request_goes_only_to_openpbs(harness: FederationHarness) -> None:
    with_openpbs(harness)
    ann = harness.client("ann@org")
    made = ann.post(HERE, json=BY_SELECT)
    assert made.status_code == 201, made.text
    assert harness.federation.jobs["1"].submission["cpu_seconds"] == 800
    (question,) = harness.federation.due_questions("north")
    harness.federation.store_answers("north", {question: (unasked(harness, "north", question), -1)})
    harness.report("north")
    harness.report("south", 500)
    (action,) = harness.federation.pending_actions("south")
    assert action.body is not None
    assert action.body["resources"]["select"] == "2:ncpus=4:mem=1gb"
    assert harness.federation.pending_actions("north") == []
    asked = {"request": BY_SELECT["request"]}
    rows = ann.post("/v1/federation/what-if", json=asked).json()["clusters"]
    knows = {row["cluster"]: "does not support select" not in row["why"] for row in rows}
    assert knows == {"north": False, "south": True}


def unasked(harness: FederationHarness, cluster: str, question: PlanQuestion) -> PlanOffer:
    """The answer is injected; the cluster is not queried."""

    def connect(*_: object) -> Client:
        raise AssertionError("it was asked")

    peer = ClusterWorker(cluster, harness.federation, "x", threading.Event(), connect)
    return peer._answer(cast("Client", None), question)[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"clusters": ["north"]}, "no cluster takes it: its server does not support select"),
        ({"request": "select=0:ncpus=4"}, "select"),
        ({"request": "select=2:ncpus=x"}, "ncpus"),
    ],
)
def test_unusable_select_is_refused_with_a_reason(
    harness: FederationHarness, wrong: dict[str, Any], words: str
) -> None:
    with_openpbs(harness)
    answer = harness.client("ann@org").post(HERE, json={**BY_SELECT, **wrong})
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    assert not harness.federation.jobs.by_id


def test_select_is_refused_without_openpbs(harness: FederationHarness) -> None:
    answer = harness.client("ann@org").post(HERE, json=BY_SELECT)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["allowed"].startswith("nodes=")
    component = {"script": "x", "request": "select=1:ncpus=1"}
    assert (
        harness.client("ann@org")
        .post("/v1/federation/coallocations", json={"components": [component]})
        .status_code
        == 422
    )


GROUPS = "/v1/federation/coallocations"
PART = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100"}


def test_coallocation_is_stored_before_the_reply_and_shown_to_its_owner(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    body = {
        "components": [PART, {**PART, "clusters": ["north"], "optional": True}],
        "overhead": 20,
        "key": "g",
    }
    made = ann.post(GROUPS, json=body)
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["owner"], row["state"], row["start"]) == ("ann@org", "waiting for a start", None)
    assert [one["optional"] for one in row["components"]] == [False, True]
    assert ann.post(GROUPS, json=body).json()["id"] == row["id"]
    harness.log.close()
    harness.begin()
    assert [one["id"] for one in ann.get(GROUPS).json()["coallocations"]] == [row["id"]]
    assert harness.client("bob@org").get(f"{GROUPS}/{row['id']}").status_code == 404
    assert harness.client("eyes").delete(f"{GROUPS}/{row['id']}").status_code == 403
    job = ann.post(HERE, json=JOB).json()["id"]  # numbers are of jobs and groups
    assert job != row["id"]
    assert ann.delete(f"{GROUPS}/{row['id']}").json()["cancelled"]


def test_unreadable_walltime_is_refused_with_its_place(harness: FederationHarness) -> None:
    found = harness.client("ann@org").post(HERE, json={**JOB, "key": "w", "request": "nodes=1,walltime=abc"})
    assert (found.status_code, "walltime=abc: invalid time 'abc'" in found.text) == (422, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"components": []}, "at least 1"),
        ({"components": [{**PART, "optional": True}]}, "must not be optional"),
        ({"components": [{**PART, "clusters": ["west"]}]}, "no cluster west"),
        ({"components": [{**PART, "owner": "bob@org"}]}, "set the owner of the co-allocation"),
        ({"components": [PART], "deadline": 50}, "the co-allocation takes 100 s"),
        ({"components": [{**PART, "attributes": {"User_List": "x"}}]}, "cannot be transferred"),
        ({"components": [{**PART, "request": "nodes=1:ppn=x"}]}, "ppn"),
        ({"components": [{**PART, "request": "trl=4@100:2@150"}]}, "a component has one size"),
    ],
)
def test_invalid_coallocation_is_refused(harness: FederationHarness, body: dict[str, Any], said: str) -> None:
    answer = harness.client("ann@org").post(GROUPS, json=body)
    assert answer.status_code == 422, answer.text
    assert said in answer.text


def test_coallocation_that_would_end_after_its_deadline_is_refused_without_a_ready_time(
    harness: FederationHarness,
) -> None:
    answer = harness.client("ann@org").post(GROUPS, json={"components": [PART], "deadline": harness.now + 99})
    assert answer.status_code == 422, answer.text
    assert f"the co-allocation takes 100 s from {harness.now} on" in answer.text


# ---- licences ----------------------------------------------------------------------------------------------


def test_licences_are_leased_by_demand(harness: FederationHarness) -> None:
    harness.report("north")
    harness.report("south")
    for name, held, wanted in (("north", 0, 6), ("south", 0, 0)):
        (grant,) = harness.federation.licence_leases.pending_grants(name)
        assert (grant.copies, grant.number) == (0, 0)
        harness.federation.licence_leases.record_use(grant, ClusterLicenceUse(0, 0, held, wanted))
    (grant,) = harness.federation.licence_leases.pending_grants("north")
    assert (grant.copies, grant.number) == (8, 1)
    harness.federation.licence_leases.record_use(grant, ClusterLicenceUse(8, 1, 0, 6))
    shown = harness.client("eyes").get("/v1/federation/licences").json()["licences"]
    assert [(one["name"], one["copies"], one["free"]) for one in shown] == [("matlab", 10, 2)]
    assert shown[0]["clusters"][0] == {
        "cluster": "north",
        "most": 8,
        "copies": 8,
        "held": 0,
        "wanted": 6,
        "why": "",
    }
    assert "matlab: 10 copies, 2 free" in TestClient(harness.app).get("/").text
    harness.log.close()
    harness.begin()  # the bounds are in the log
    assert harness.federation.licences.pools["matlab"].bounds == {"north": 8, "south": 0}
    harness.federation.apply_report("north", ClusterPollResult("it does not answer"))
    harness.report("south")
    assert harness.federation.licences.free_copies("matlab") == 2, "a cluster that is away keeps what it has"
    (grant,) = harness.federation.licence_leases.pending_grants("south")
    harness.federation.licence_leases.record_refusal(grant, "no such licence here", keeps=False)
    assert harness.federation.licence_leases.pending_grants("south") == []
    harness.log.replace_leases(harness.federation.licences.lease_events(harness.now))
    harness.log.close()
    harness.begin()
    assert harness.federation.licences.pools["matlab"].bounds == {"north": 8, "south": 0}


def _whole_app() -> FastAPI:
    app = create_app(Tokens([]))
    for add_routes in FEDERATION_ROUTES:
        add_routes(app)
    return app


def test_reference_page_lists_every_path_of_the_federation() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    section = page.partition("\n## A federation\n")[2].partition("\n## ")[0]
    found = set(re.findall(r"`(GET|POST|PUT|DELETE) (/[^`?]*)`", section))
    paths = _whole_app().openapi()["paths"]
    expected = {(method.upper(), path) for path, item in paths.items() for method in item}
    assert found == expected - {("GET", "/healthz"), ("GET", "/readyz")}


def test_every_answer_of_the_federation_has_a_type() -> None:
    app = _whole_app()
    found = {
        f"{method} {path}": reply["content"]["application/json"]["schema"].get("$ref", "").rpartition("/")[2]
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
        for status, reply in operation["responses"].items()
        if status.startswith("2")
    }
    assert found["get /v1/federation/jobs"] == "FederatedJobsView"
    assert {where for where, name in found.items() if not name} == set()


def test_times_are_in_iso_form_on_request(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    job = ann.post(HERE, json=JOB).json()["id"]
    released(harness, "north", job)
    for path in (HERE, f"{HERE}/{job}"):
        found = ann.get(path, params={"iso": True}).json()
        row = found if path != HERE else found["jobs"][0]
        assert row["iso"]["submitted"] == iso_time(row["submitted"])
        assert row["iso"]["over_at"] is None
        plain = ann.get(path).json()
        assert "iso" not in (plain if path != HERE else plain["jobs"][0])
    clusters = ann.get("/v1/federation/clusters?iso=true").json()
    assert clusters["iso"] == {"now": iso_time(clusters["now"])}
    assert clusters["clusters"][0]["iso"] == {"since": iso_time(clusters["clusters"][0]["since"])}


def test_acts_are_audited_with_refusals(harness: FederationHarness) -> None:
    ann, eyes, root = (harness.client(name) for name in ("ann@org", "eyes", "root"))
    job = ann.post(HERE, json=JOB).json()["id"]
    assert eyes.delete(f"{HERE}/{job}").status_code == 403
    assert ann.delete(f"{HERE}/77").status_code == 404
    assert ann.post(HERE, json={"script": 7}).status_code == 422
    assert ann.get(HERE).status_code == 200
    assert ann.post("/v1/federation/what-if", json={"wrong": 1}).status_code == 422
    harness.now += 60
    assert ann.delete(f"{HERE}/{job}").status_code == 200
    found = root.get("/v1/federation/audit").json()["entries"]
    assert [(one["who"], one["act"], one["detail"]) for one in reversed(found)] == [
        ("ann@org", "submit", f"job {job}"),
        ("eyes", "withdraw", f"refused: job {job}: not-allowed: eyes has a role that may only read"),
        ("ann@org", "withdraw", "refused: job 77: unknown-job: the federation has no job 77"),
        ("ann@org", "submit", "refused: job: invalid: the request is not understood"),
        ("ann@org", "withdraw", f"job {job}"),
    ]
    assert found[0]["time"] == harness.now
    later = root.get("/v1/federation/audit", params={"since": harness.now}).json()["entries"]
    assert later == found[:1]
    assert root.get("/v1/federation/audit?limit=2").json()["entries"] == found[:2]
    assert ann.get("/v1/federation/audit").status_code == 403


def test_a_submission_that_all_clusters_refuse_is_refused_in_the_audit(harness: FederationHarness) -> None:
    ann, root = harness.client("ann@org"), harness.client("root")
    ann.post(HERE, json=JOB)
    for name in ("north", "south"):
        harness.report(name)
        never = (PlanOffer(None, None, "it needs 200 nodes", never=True), 1)
        harness.federation.store_answers(name, dict.fromkeys(harness.federation.due_questions(name), never))
    job = ann.post(HERE, json={**JOB, "key": "k2"}, params={"wait": 1}).json()
    assert (job["over"], job["text"]) == ("refused", "north, south: it needs 200 nodes")
    newest = root.get("/v1/federation/audit").json()["entries"][0]
    assert newest["detail"] == f"refused: job {job['id']}: north, south: it needs 200 nodes"


def test_old_audit_entries_are_deleted(harness: FederationHarness) -> None:
    ann, root = harness.client("ann@org"), harness.client("root")
    assert ann.delete(f"{HERE}/77").status_code == 404
    harness.now += 399 * 86_400
    harness.log.close()
    harness.begin()
    assert len(root.get("/v1/federation/audit").json()["entries"]) == 1
    harness.now += 2 * 86_400
    harness.log.close()
    harness.begin()
    assert root.get("/v1/federation/audit").json()["entries"] == []


def test_acts_are_named_in_the_audit() -> None:
    path = "/v1/federation/"
    assert [
        _name_act(method, path + rest, "")
        for method, rest in (
            ("POST", "coallocations/3/components"),
            ("PUT", "coallocations/3/components/2"),
            ("PUT", "bookings/a%20b"),
            ("POST", "bookings/b/accept"),
            ("DELETE", "bags/4"),
        )
    ] == [
        ("add component", "co-allocation 3"),
        ("replace component", "co-allocation 3 2"),
        ("book", "booking a b"),
        ("accept", "booking b"),
        ("withdraw", "bag 4"),
    ]


def test_requests_of_a_caller_and_invalid_tokens_are_limited(harness: FederationHarness) -> None:
    harness.app.state.request_rate = 1e-6
    ann = harness.client("ann@org")
    assert [ann.get(HERE).status_code for _ in range(2)] == [200, 429]
    refused = ann.get(HERE)
    assert refused.json()["detail"] == "too many requests of ann@org"
    assert int(refused.headers["retry-after"]) > 0
    assert harness.client("bob@org").get(HERE).status_code == 200
    nobody = [harness.client("nobody").get(HERE).status_code for _ in range(2)]
    assert nobody == [401, 429]


def test_a_silent_cluster_has_little_time_for_a_question(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[str, float] = {}

    def connect(chosen: Any, _token: str) -> Client:
        limits[chosen.cluster] = chosen.timeout
        raise Unreachable("no daemon answers")

    monkeypatch.setattr("schedd.federation.api.app.connect_cluster", connect)
    ask = {"request": "nodes=1,walltime=60"}
    harness.client("ann@org").post("/v1/federation/what-if", json=ask)
    assert 0 < max(limits.values()) <= 5


def test_page_without_a_token_does_not_count_many_jobs_for_each_request(
    harness: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[FederationState] = []

    def count(federation: FederationState) -> list[Any]:
        counted.append(federation)
        time.sleep(0.3)
        return []

    monkeypatch.setattr(routes, "licence_rows", count)
    visitor = TestClient(harness.app)
    for _ in range(3):
        assert visitor.get("/").status_code == 200
    assert len(counted) == 1


def test_refused_logins_are_limited(harness: FederationHarness) -> None:
    harness.app.state.request_rate = 1.0
    visitor = TestClient(harness.app)
    statuses = [visitor.post("/login", data={"token": "guess"}).status_code for _ in range(9)]
    assert statuses[0] == 403
    assert statuses[-1] == 429
