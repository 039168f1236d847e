"""The federation's HTTP interface: access, submissions and answers, over a federation without reachable
clusters.
"""

import threading
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from schedd.client import Client
from schedd.federation.event_log import FederationLog
from schedd.federation.licences import LicenceUse
from schedd.federation.routing.candidates import ClusterLoads, compute_loads
from schedd.federation.routing.cluster_status import PlanOffer, TransferStatus
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.settings import FederationSettings
from schedd.federation.state.federation_state import ClusterReport
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.store.errors import NotLeader, StoreError
from tests.federation.federation_harness import HERE, JOB, FederationHarness, released, settings


def test_a_job_is_kept_before_it_is_acknowledged_and_once_for_a_key(desk: FederationHarness) -> None:
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


def test_a_job_that_cannot_be_kept_is_refused_with_why_and_may_be_sent_again(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    ann = desk.client("ann@org")
    with monkeypatch.context() as full:
        full.setattr(desk.log, "append", fail)
        answer = ann.post(HERE, json=JOB)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json()["detail"] == "database unavailable: the disk is full"
    assert "send it again, with the same `key`" in answer.json()["hint"]
    assert ann.get(HERE).json()["jobs"] == []
    assert ann.post(HERE, json=JOB).status_code == 201


def test_a_job_goes_to_the_cluster_whose_plan_ends_it_first(desk: FederationHarness) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        asked = (("nodes", "2:ppn=4"), ("walltime", "00:01:40"))
        assert desk.federation.due_questions(name) == [PlanQuestion(asked, "", "ann")]
        desk.report(name, end)
    (action,) = desk.federation.pending_actions("south")
    assert desk.federation.pending_actions("north") == []
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
    desk.report("south", fed_1_1=held)
    assert [one.kind for one in desk.federation.pending_actions("south")] == ["release"]
    planned = TransferStatus("released", job="7.south", state="planned", planned_start=desk.now + 50)
    desk.report("south", fed_1_1=planned)
    row = desk.client("ann@org").get(f"{HERE}/{job}").json()
    assert (row["cluster"], row["server_job"]) == ("south", "7.south")
    assert row["attempts"][0]["planned_start"] is None  # that cluster shows offers alone
    cluster = desk.client("eyes").get("/v1/federation/clusters").json()["clusters"][1]
    assert (cluster["name"], cluster["away"], cluster["ours"], cluster["jobs"]) == ("south", "", 1, None)


def test_a_job_and_the_choice_for_it_are_kept_in_one_go(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = desk.client("ann@org")
    ann.post(HERE, json=JOB)
    for name, end in (("north", 900), ("south", 500)):
        desk.report(name, end)
    kept: list[list[str]] = []
    append = desk.log.append

    def note(events: Any) -> None:
        kept.append([one.type for one in events])
        append(events)

    monkeypatch.setattr(desk.log, "append", note)
    row = ann.post(HERE, json={**JOB, "key": "k2"}).json()
    assert (row["cluster"], [one["phase"] for one in row["attempts"]]) == ("south", ["submitting"])
    assert kept == [["job_submitted", "cluster_chosen"]]
    desk.log.close()
    desk.begin()  # as it is read again
    assert desk.federation.jobs[row["id"]].attempts[0].cluster == "south"


def test_of_waiting_jobs_alike_each_cluster_is_asked_once(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = desk.client("ann@org")
    for key in ("k1", "k2", "k3"):
        ann.post(HERE, json={**JOB, "key": key})
    ann.post(HERE, json={**JOB, "key": "k4", "request": "nodes=1,walltime=100"})
    for name, end in (("north", 500), ("south", 900)):
        desk.report(name, end)
    released(desk, "north", *"1234")
    wanted: list[str] = []

    def want(_: PlanOffers, question: PlanQuestion, *__: object, **___: object) -> bool:
        wanted.append(dict(question.resources)["nodes"])
        return True

    monkeypatch.setattr(PlanOffers, "subscribe", want)
    desk.now += 61
    desk.report("south")
    assert sorted(wanted) == ["1", "1", "2:ppn=4", "2:ppn=4"]  # at both clusters


def test_what_waits_at_a_cluster_is_reckoned_anew_when_it_changed_and_only_then(
    desk: FederationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    reckoned: list[str] = []
    compared: list[bool] = []

    def note(jobs: Any, seen: Any, rules: Any, only: list[str]) -> ClusterLoads:
        reckoned.extend(only)
        return compute_loads(jobs, seen, rules, only)

    monkeypatch.setattr("schedd.federation.state.federation_state.compute_loads", note)

    def look(wanted: bool, **states: tuple[str, str]) -> None:
        """Looks at the north; whether it was reckoned anew. Where nothing follows from what was seen, so that
        the next look has to, the load is that of the jobs either way.
        """
        reckoned.clear()
        seen = {
            f"fed.{job[1:]}.1": TransferStatus(phase, job=job, state=state)
            for job, (phase, state) in states.items()
        }
        desk.federation.apply_report(
            "north", ClusterReport(transfers=seen, whole=False, cpus=8, generation=1)
        )
        assert reckoned == ["north"] * wanted, states
        if "north" in desk.federation._outdated_loads:
            return
        compared.append(wanted)
        right = compute_loads(
            desk.federation.jobs, desk.federation.clusters, desk.federation.settings.rules, ["north"]
        )
        assert desk.federation._load.sent["north"] == right.sent["north"]
        assert desk.federation.backlog("north") == right.backlog["north"]

    ann = desk.client("ann@org")
    for key in ("k1", "k2"):
        ann.post(HERE, json={**JOB, "key": key})
    for name, end in (("north", 500), ("south", 90_000)):
        desk.report(name, end)
    look(wanted=True)  # two were sent there
    assert desk.federation._load.sent["north"] == 2 * 8 * 100
    look(wanted=True, j1=("held", "waiting"), j2=("held", "waiting"))
    look(wanted=True, j1=("released", "planned"))
    look(wanted=True)  # it was let go by the look before
    look(wanted=False)
    look(wanted=False, j1=("released", "waiting"))  # the same for the load
    look(wanted=True, j1=("released", "running"))
    assert desk.federation.backlog("north").count[0] == 1

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    before = desk.federation._load.sent["north"]
    with monkeypatch.context() as full:
        full.setattr(desk.log, "append", fail)
        with pytest.raises(StoreError):
            desk.federation.submit("ann@org", desk.federation.jobs["1"].submission)
    assert desk.federation._load.sent["north"] > before, "the choice was made before it failed"
    look(wanted=True)
    assert compared == [True, True, False, False, True, True]


def test_a_submission_that_a_cluster_refuses_goes_to_the_next_best(desk: FederationHarness) -> None:
    job = desk.client("ann@org").post(HERE, json=JOB).json()["id"]
    for name, end in (("north", 900), ("south", 500)):
        desk.report(name, end)
    desk.federation.apply_refusal(desk.federation.pending_actions("south")[0], "body.queue: no such queue")
    desk.federation.apply_report("south", ClusterReport(transfers={}))
    assert [one.kind for one in desk.federation.pending_actions("north")] == ["submit"]
    attempts = desk.client("ann@org").get(f"{HERE}/{job}").json()["attempts"]
    assert [one["phase"] for one in attempts] == ["refused", "submitting"]
    assert attempts[0]["text"] == "body.queue: no such queue"


def test_a_cancelled_job_is_withdrawn_where_it_is(desk: FederationHarness) -> None:
    ann = desk.client("ann@org")
    job = ann.post(HERE, json=JOB).json()["id"]
    desk.report("south")
    desk.now += 40
    desk.report("north", 1)
    assert ann.delete(f"{HERE}/{job}").json()["cancelled"]
    assert [one.kind for one in desk.federation.pending_actions("north")] == ["withdraw"]
    desk.report("north", fed_1_1=TransferStatus("withdrawn"))
    assert ann.get(f"{HERE}/{job}").json()["over"] == "cancelled"
    assert desk.federation.pending_actions("north") == []


def test_others_jobs_are_nobodys_business(desk: FederationHarness) -> None:
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
def test_a_job_that_is_not_understood_changes_nothing(desk: FederationHarness, wrong: dict[str, Any]) -> None:
    ann = desk.client("ann@org")
    answer = ann.post(HERE, json={**JOB, **wrong})
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"].startswith("urn:schedd:problem:")
    assert ann.get(HERE).json()["jobs"] == []


def test_a_cluster_that_does_not_answer_is_said_so_in_a_what_if(desk: FederationHarness) -> None:
    found = desk.client("ann@org").post("/v1/federation/what-if", json={"request": "nodes=1,walltime=60"})
    rows = found.json()["clusters"]
    assert [row["cluster"] for row in rows] == ["north", "south"]
    assert all("no daemon answers" in row["why"] for row in rows)


def test_who_lost_its_lead_takes_nothing(desk: FederationHarness) -> None:
    other = FederationLog(f"sqlite:///{desk.path}/fed.sqlite", "there", 6.0)
    other.leadership._acquire_file_lock = bool  # type: ignore[assignment, method-assign]  # as if on another host
    assert other.leadership.try_acquire()
    with pytest.raises(NotLeader):
        desk.federation.submit("ann@org", {})
    other.leadership._lock_file = None
    other.close()


def test_standing_by_it_says_so(desk: FederationHarness) -> None:
    desk.app.state.federation = None
    assert desk.client("ann@org").get("/readyz").status_code == 503
    assert desk.client("ann@org").post(HERE, json=JOB).status_code == 503
    assert "stands by" in desk.client("ann@org").get("/").text


def test_the_page_shows_clusters_and_no_job(desk: FederationHarness) -> None:
    desk.client("ann@org").post(HERE, json={**JOB, "attributes": {"Job_Name": "secret"}})
    page = TestClient(desk.app).get("/").text
    assert "north" in page
    assert "<b>1</b> under way" in page
    assert "secret" not in page
    assert "ann@" not in page


BY_SELECT = {**JOB, "request": "select=2:ncpus=4:mem=1gb,place=scatter,walltime=100"}


def with_openpbs(desk: FederationHarness) -> None:
    """From now on the south has an OpenPBS."""
    plain = settings(desk.path).model_dump(exclude_unset=True)
    plain["clusters"]["south"]["family"] = "openpbs"
    desk.log.close()
    desk.begin(FederationSettings.model_validate(plain))


def test_a_request_by_select_goes_to_openpbs_alone(desk: FederationHarness) -> None:
    with_openpbs(desk)
    ann = desk.client("ann@org")
    made = ann.post(HERE, json=BY_SELECT)
    assert made.status_code == 201, made.text
    assert desk.federation.jobs["1"].submission["cpu_seconds"] == 800
    (question,) = desk.federation.due_questions("north")
    desk.federation.store_answers("north", {question: (unasked(desk, "north", question), -1)})
    desk.report("north")
    desk.report("south", 500)
    (action,) = desk.federation.pending_actions("south")
    assert action.body is not None
    assert action.body["resources"]["select"] == "2:ncpus=4:mem=1gb"
    assert desk.federation.pending_actions("north") == []
    asked = {"request": BY_SELECT["request"]}
    rows = ann.post("/v1/federation/what-if", json=asked).json()["clusters"]
    knows = {row["cluster"]: "does not know select" not in row["why"] for row in rows}
    assert knows == {"north": False, "south": True}


def unasked(desk: FederationHarness, cluster: str, question: PlanQuestion) -> PlanOffer:
    """What is taken as a cluster's answer; it is not asked."""

    def connect(*_: object) -> Client:
        raise AssertionError("it was asked")

    peer = ClusterWorker(cluster, desk.federation, "x", threading.Event(), connect)
    return peer._answer(cast("Client", None), question)[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"clusters": ["north"]}, "no cluster takes it: its server does not know select"),
        ({"request": "select=0:ncpus=4"}, "select"),
        ({"request": "select=2:ncpus=x"}, "ncpus"),
    ],
)
def test_a_select_that_nobody_takes_is_refused_with_why(
    desk: FederationHarness, wrong: dict[str, Any], words: str
) -> None:
    with_openpbs(desk)
    answer = desk.client("ann@org").post(HERE, json={**BY_SELECT, **wrong})
    assert answer.status_code == 422, answer.text
    assert words in answer.text
    assert not desk.federation.jobs.by_id


def test_without_an_openpbs_a_select_is_refused(desk: FederationHarness) -> None:
    answer = desk.client("ann@org").post(HERE, json=BY_SELECT)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["allowed"].startswith("nodes=")
    part = {"script": "x", "request": "select=1:ncpus=1"}
    assert (
        desk.client("ann@org").post("/v1/federation/coallocations", json={"parts": [part]}).status_code == 422
    )


GROUPS = "/v1/federation/coallocations"
PART = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100"}


def test_a_group_is_kept_before_it_is_acknowledged_and_shown_to_its_owner(desk: FederationHarness) -> None:
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
    assert [one["id"] for one in ann.get(GROUPS).json()["coallocations"]] == [row["id"]]
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
def test_a_group_that_makes_no_sense_is_refused(
    desk: FederationHarness, body: dict[str, Any], said: str
) -> None:
    answer = desk.client("ann@org").post(GROUPS, json=body)
    assert answer.status_code == 422, answer.text
    assert said in answer.text


# ---- licences ----------------------------------------------------------------------------------------------


def test_licences_are_lent_by_what_is_wanted_and_shown(desk: FederationHarness) -> None:
    desk.report("north")
    desk.report("south")
    for name, held, wanted in (("north", 0, 6), ("south", 0, 0)):
        (grant,) = desk.federation.licence_leases.pending_grants(name)
        assert (grant.copies, grant.number) == (0, 0)
        desk.federation.licence_leases.record_use(grant, LicenceUse(0, 0, held, wanted))
    (grant,) = desk.federation.licence_leases.pending_grants("north")
    assert (grant.copies, grant.number) == (8, 1)
    desk.federation.licence_leases.record_use(grant, LicenceUse(8, 1, 0, 6))
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
    assert desk.federation.licences.pools["matlab"].bounds == {"north": 8, "south": 0}
    desk.federation.apply_report("north", ClusterReport("it does not answer"))
    desk.report("south")
    assert desk.federation.licences.free_copies("matlab") == 2, "a cluster that is away keeps what it has"
    (grant,) = desk.federation.licence_leases.pending_grants("south")
    desk.federation.licence_leases.record_refusal(grant, "no such licence here")
    assert desk.federation.licence_leases.pending_grants("south") == []
    desk.log.replace_leases(desk.federation.licences.lease_events(desk.now))
    desk.log.close()
    desk.begin()
    assert desk.federation.licences.pools["matlab"].bounds == {"north": 8, "south": 0}
