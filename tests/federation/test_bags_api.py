"""Bags over HTTP: offers, acceptance, outdated offers, task counts and cancellation."""

import json
import re
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest
from fastapi.testclient import TestClient

from schedd.client import ClientError, Refused
from schedd.client.json_object import JsonObject
from schedd.federation.api import bags
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.workers.bag_worker import BagWorker
from schedd.start_sentence import format_utc
from schedd.store import StoreError
from tests.federation.federation_harness import FederationHarness

OFFERS, BAGS = "/v1/federation/bag-offers", "/v1/federation/bags"
WORK = {"script": "sleep 1", "attributes": {"Job_Name": "sweep"}}


class OfferedPlan:
    """What clusters' plans say: ``ends`` by cluster, from the number of tasks to seconds from now on."""

    def __init__(self, harness: FederationHarness) -> None:
        self.harness = harness
        self.ends: dict[str, Callable[[int], int | None]] = {}
        self.generation = 1
        self.fails: dict[str, ClientError] = {}
        self.closed: set[str] = set()
        """Clusters that accept no deadlines."""
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def connect(self, settings: Any, token: str) -> Any:
        del token
        name = next(n for n, one in self.harness.federation.settings.clusters.items() if one == settings)
        return _Client(self, name)


class _Client:
    def __init__(self, plan: OfferedPlan, name: str) -> None:
        self.plan, self.name = plan, name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def what_if(self, **asked: Any) -> JsonObject:
        self.plan.asked.append((self.name, asked))
        if self.name in self.plan.fails:
            raise self.plan.fails[self.name]
        ends = self.plan.ends[self.name]
        found = [(tasks, ends(tasks)) for tasks in asked["tasks"]]
        rows = [
            JsonObject(tasks=tasks, end=self.plan.harness.now + end)
            for tasks, end in found
            if end is not None
        ]
        answer = "start_known" if rows else "never"
        return JsonObject(
            generation=self.plan.generation,
            tasks=rows,
            answer=answer,
            why="no such nodes",
            deadline_state="wished" if self.name in self.plan.closed else "accepted",
            earliest_deadline=None,
        )


@pytest.fixture
def plan(harness: FederationHarness, monkeypatch: pytest.MonkeyPatch) -> OfferedPlan:
    """The north runs five tasks of 10 s at once, the south one after the other; none runs more."""
    made = OfferedPlan(harness)
    made.ends = {"north": lambda n: 10 if n <= 5 else None, "south": lambda n: 10 * n if n <= 5 else None}
    monkeypatch.setattr("schedd.federation.api.bags.connect_cluster", made.connect)
    for name in ("north", "south"):
        harness.report(name)
    return made


@pytest.fixture
def ann(harness: FederationHarness) -> TestClient:
    return harness.client("ann@org")


MARGIN = 60


def bag(harness: FederationHarness, seconds: int = 60, **more: Any) -> dict[str, Any]:
    """Ten tasks with offers that may end this number of seconds from now."""
    deadline = harness.now + seconds + MARGIN
    return {"request": "nodes=1:ppn=2,walltime=60", "tasks": 10, "deadline": deadline, **more}


def test_offer_has_name_plan_versions_and_end(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    found = ann.post(OFFERS, json=bag(harness)).json()
    assert found["split"] == {"shares": {"north": 5, "south": 5}, "end": harness.now + 50, "met": True}
    assert (found["plans"], found["expires"]) == ({"north": 1, "south": 1}, harness.now + 300)
    assert {tuple(sorted(one)) for one in found["offers"]} == {("end", "provider", "tasks")}
    assert (found["deadline_state"], found["earliest_deadline"]) == ("accepted", None)
    deadline = str(harness.now + 120)
    asked = {"nodes": "1:ppn=2", "walltime": "00:01:00", "deadline": deadline}
    assert plan.asked[0][1]["resources"] == asked
    refused = ann.post(OFFERS, json=bag(harness, 49)).json()
    assert (refused["deadline_state"], refused["earliest_deadline"]) == ("wished", harness.now + 50 + MARGIN)
    assert (refused["split"]["met"], sum(refused["split"]["shares"].values())) == (False, 10)
    refused = ann.post(OFFERS, json=bag(harness, balance="load"))
    assert (refused.status_code, "needs the load" in refused.text) == (422, True)
    assert not harness.federation.bags.by_id, "nothing is submitted"


def test_offer_for_tasks_of_several_sizes(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    found = ann.post(OFFERS, json=bag(harness, request="trl=2@60:1@110"))
    assert found.json()["split"]["met"], found.text
    assert plan.asked[0][1]["resources"] == {"trl": "2@60:1@110", "deadline": str(harness.now + 120)}


def test_cluster_that_accepts_no_deadlines_gets_tasks_only_if_the_others_cannot_keep_it(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    plan.closed = {"north"}
    found = ann.post(OFFERS, json=bag(harness, tasks=5)).json()
    assert (found["split"]["shares"], found["deadline_state"]) == ({"south": 5}, "accepted")
    found = ann.post(OFFERS, json=bag(harness)).json()
    assert (found["split"]["shares"], found["split"]["met"]) == ({"north": 5, "south": 5}, True)
    assert (found["deadline_state"], found["earliest_deadline"]) == ("wished", None)


def test_offer_explains_clusters_without_capacity(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    plan.fails["north"] = Refused("invalid", 422, "nodes=…: not understood")
    plan.ends["south"] = lambda _: None
    found = ann.post(OFFERS, json=bag(harness)).json()
    assert (found["split"], found["why"]) == (
        None,
        {"north": "nodes=…: not understood", "south": "no such nodes"},
    )
    none = ann.post(BAGS, json={**bag(harness), **WORK})
    assert none.status_code == 409
    assert "north: nodes=…: not understood; south: no such nodes" in none.json()["detail"]


def test_accepted_offer_gives_each_cluster_its_array(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(harness)).json()
    made = ann.post(BAGS, json={"offer": offer["id"], "key": "k", **WORK})
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["tasks"], row["waiting"], row["state"], row["published_end"]) == (
        10,
        10,
        "waiting",
        harness.now + 50,
    )
    assert (row["end"], row["deadline_kept"], row["name"]) == (harness.now + 50, True, "sweep")
    shares = {one["cluster"]: (one["array"], one["published_end"] - harness.now) for one in row["shares"]}
    assert shares == {"north": ("0-4", 10), "south": ("5-9", 50)}
    (asked,) = harness.federation.pending_actions("north")
    assert asked.body is not None
    assert (asked.kind, asked.body["array"], asked.body["user"]) == ("submit", "0-4", "ann")
    assert ann.post(BAGS, json={"offer": offer["id"], "key": "k", **WORK}).json()["id"] == row["id"]
    again = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert (again.status_code, "was already accepted, as bag 1" in again.text) == (409, True)
    assert "makes a new offer" in again.json()["hint"]
    assert plan.asked[-1][0] in ("north", "south")


def again(harness: FederationHarness) -> None:
    """The federation ends, and another begins on its log."""
    harness.log.close()
    harness.begin()


def test_offer_is_accepted_once_after_a_restart(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(harness)).json()
    again(harness)
    stranger = harness.client("bob@org").post(BAGS, json={"offer": offer["id"], **WORK})
    assert (stranger.status_code, "no offer" in stranger.text) == (409, True)
    plan.asked.clear()
    row = ann.post(BAGS, json={"offer": offer["id"], **WORK}).json()
    assert sorted(name for name, _ in plan.asked) == ["north", "south"], "whether they still can is asked"
    shares = {one["cluster"]: (one["array"], one["published_end"] - harness.now) for one in row["shares"]}
    assert shares == {"north": ("0-4", 10), "south": ("5-9", 50)}
    again(harness)
    late = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert late.status_code == 409
    assert late.json()["detail"] == f"offer {offer['id']} was already accepted, as bag {row['id']}"
    assert late.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_outdated_offer_after_a_restart_is_refused_with_a_hint(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    first, second = (ann.post(OFFERS, json=bag(harness)).json()["id"] for _ in range(2))
    again(harness)
    plan.ends["south"] = lambda n: 100 * n
    late = ann.post(BAGS, json={"offer": first, **WORK})
    assert (late.status_code, "south: its plan has changed" in late.json()["detail"]) == (409, True)
    harness.now += 300
    again(harness)
    expired = ann.post(BAGS, json={"offer": second, **WORK})
    assert (expired.status_code, expired.json()["detail"]) == (409, f"offer {second} has expired")
    harness.now += 2 * 3_600
    harness.report("north")
    assert not harness.log.read(), "it is forgotten"
    gone = ann.post(BAGS, json={"offer": second, **WORK})
    assert (gone.status_code, "has no offer" in gone.json()["detail"]) == (409, True)
    assert gone.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_concurrent_acceptance_makes_no_second_bag(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    del plan
    offer = ann.post(OFFERS, json=bag(harness)).json()["id"]

    def accept_first(*about: Any) -> dict[str, int]:
        monkeypatch.undo()  # while the plans are asked
        monkeypatch.setattr(
            "schedd.federation.state.bag_operations.BagOperations._check_no_share_in_transit", lambda *_: None
        )
        assert ann.post(BAGS, json={"offer": offer, **WORK}).status_code == 201
        return {}

    monkeypatch.setattr(bags, "_recheck_ends", accept_first)
    second = ann.post(BAGS, json={"offer": offer, **WORK})
    assert (second.status_code, "already accepted" in second.json()["detail"]) == (409, True)
    assert len(harness.federation.bags.by_id) == 1


def test_offer_is_not_issued_if_the_log_fails(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    del plan

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(harness.log, "append", fail)
    answer = ann.post(OFFERS, json=bag(harness))
    assert (answer.status_code, answer.json()["detail"]) == (503, "database unavailable: the disk is full")


def test_expired_or_foreign_offer_is_refused_with_a_hint(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    assert plan.generation == 1
    offer = ann.post(OFFERS, json=bag(harness)).json()
    stranger = harness.client("bob@org").post(BAGS, json={"offer": offer["id"], **WORK})
    assert stranger.status_code == 409
    assert harness.client("eyes").post(BAGS, json={"offer": offer["id"], **WORK}).status_code == 403
    harness.now += 300
    late = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert (late.status_code, late.json()["detail"]) == (409, f"offer {offer['id']} has expired")
    assert late.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_offer_remains_valid_after_plan_changes_with_room(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(harness)).json()
    second = ann.post(OFFERS, json=bag(harness)).json()
    harness.federation.generations["south"] = 2
    plan.ends["south"] = lambda tasks: 20 * tasks
    stale = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert stale.status_code == 409
    assert "south: its plan has changed: 5 tasks would now end 40 s too late there" in stale.json()["detail"]
    assert not harness.federation.bags.by_id
    plan.ends["south"] = lambda tasks: 11 * tasks
    row = ann.post(BAGS, json={"offer": second["id"], **WORK}).json()
    assert row["published_end"] == harness.now + 55, "later than it was, and by the deadline yet"
    assert plan.asked[-1] == ("south", {**plan.asked[-1][1], "tasks": (5,)})


def test_concurrent_bags_do_not_share_cores(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    assert plan.generation == 1
    first, second = (ann.post(OFFERS, json=bag(harness)).json()["id"] for _ in range(2))
    assert ann.post(BAGS, json={"offer": first, **WORK}).status_code == 201
    loser = ann.post(BAGS, json={"offer": second, **WORK})
    assert (loser.status_code, loser.headers["retry-after"]) == (409, "5")
    assert "was just submitted to north" in loser.json()["detail"]


def test_bag_without_offer_is_submitted_unless_late(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    assert plan.generation == 1
    refused = ann.post(BAGS, json={**bag(harness, 20), **WORK})
    assert refused.status_code == 409
    problem = refused.json()
    earliest = harness.now + 50 + MARGIN
    assert problem["detail"] == (
        f"the deadline is refused: {format_utc(earliest)}, 30 s later, is the earliest that can be kept"
    )
    (option,) = problem["options"]
    assert option["id"] in problem["hint"]
    assert option["earliest_deadline"] == earliest
    row = ann.post(BAGS, json={**bag(harness, 20, late=True), **WORK}).json()
    assert (row["deadline_kept"], row["end"]) == (True, harness.now + 50), "within the margin"
    assert row["deadline_state"] == "wished"
    row = ann.post(BAGS, json={**bag(harness), **WORK}).json()
    assert (row["deadline_kept"], row["deadline_state"]) == (True, "wished"), "no cluster has judged it yet"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"deadline": 5}, "is past"),
        ({"tasks": 0}, "tasks"),
        ({"tasks": 100_001}, "tasks"),
        ({"request": "nodes=1:ppn=x"}, "ppn"),
        ({"clusters": ["west"]}, "no cluster west"),
        ({"script": ""}, "script"),
        ({"attributes": {"User_List": "bob"}}, "cannot be transferred"),
        ({"offer": "3f"}, "offer"),
        ({"owner": "bob@org"}, "may not act for"),
    ],
)
def test_invalid_bags_are_refused(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient, wrong: dict[str, Any], said: str
) -> None:
    found = ann.post(BAGS, json={**bag(harness), **WORK, **wrong})
    assert found.status_code in (403, 422), found.text
    assert said in found.text
    assert not plan.asked


def test_bag_shows_task_counts_by_cluster(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    assert plan.generation == 1
    row = ann.post(BAGS, json={**bag(harness), **WORK}).json()
    north, south = (one["job"] for one in row["shares"])
    none = {"planned": 0, "running": 0, "ended": 0, "failed": 0, "deleted": 0, "last_end": None, "tasks": 5}
    none["first_end"] = None

    def report_share(name: str, share: str, state: str, **more: Any) -> None:
        counts = {**none, **{key: value for key, value in more.items() if key in none}}
        rest = {key: value for key, value in more.items() if key not in none}
        one = TransferStatus("released", f"7[].{name}", state, True, tasks=counts, **rest)
        harness.report(name, None, **{f"fed_{share}_1": one})

    for name, share in (("north", north), ("south", south)):
        harness.report(name, None, **{f"fed_{share}_1": TransferStatus("held", f"7[].{name}")})
        report_share(name, share, "planned", planned=5)
    assert [row[name] for name in ("first_end", "stretch_s", "stretch")] == [None] * 3
    report_share("south", south, "planned", planned=5, first_end=harness.now + 1)
    first = harness.now + 20
    report_share(
        "north",
        north,
        "running",
        running=2,
        ended=2,
        failed=1,
        planned=1,
        planned_end=harness.now + 130,
        first_end=first,
    )
    row = ann.get(f"{BAGS}/{row['id']}").json()
    assert {name: row[name] for name in ("waiting", "running", "ended", "failed")} == {
        "waiting": 6,
        "running": 2,
        "ended": 2,
        "failed": 1,
    }
    assert (row["state"], row["end"], row["deadline_kept"]) == ("running", harness.now + 130, False)
    # The south does not disclose its plan, so its planned ends are hidden.
    assert (row["first_end"], row["stretch_s"], row["stretch"]) == (first, 110, 110 / 130)
    assert [one["stretch_s"] for one in row["shares"]] == [110, None]
    assert harness.client("bob@org").get(f"{BAGS}/{row['id']}").status_code == 404
    assert harness.client("bob@org").get(BAGS).json() == {"bags": []}
    assert len(harness.client("eyes").get(BAGS).json()["bags"]) == 1
    for name, share in (("north", north), ("south", south)):
        ends = {"first_end": harness.now + (10 if name == "south" else 20), "last_end": harness.now + 40}
        report_share(name, share, "", ended=5, end="ended", exit_status=0, **ends)
    row = ann.get(f"{BAGS}/{row['id']}").json()
    assert (row["over"], row["ended"], row["end"], row["deadline_kept"]) == (
        "ended",
        10,
        harness.now + 40,
        True,
    )
    assert (row["stretch_s"], row["stretch"], row["deadline_state"]) == (30, 0.75, "kept")
    assert [one["stretch_s"] for one in row["shares"]] == [20, 30]
    report = ann.get("/v1/federation/report").json()["bags"]["stretch"]
    assert report == {"known": 1, "stretch_s": 30, "stretch": 0.75}
    assert ann.get(BAGS, params={"state": "open"}).json() == {"bags": []}
    jobs = ann.get("/v1/federation/jobs").json()["jobs"]
    assert [(one["bag"], one["tasks"]) for one in jobs] == [(row["id"], "0-4"), (row["id"], "5-9")]


def test_bag_is_accepted_once_its_clusters_promise_it_and_stays_so_after_a_restart(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    name = ann.post(BAGS, json={**bag(harness), **WORK}).json()["id"]
    promised = harness.now + 60
    deadline = promised + MARGIN

    def judge(planned: int, north: int | None, south: int | None) -> tuple[str, int | None, int | None]:
        """Both clusters report their shares; the bag's state, promised end and earliest deadline follow."""
        for cluster, share, promised in (("north", "2", north), ("south", "3", south)):
            for phase in ("held", "released"):
                seen = TransferStatus(
                    phase,
                    f"7[].{cluster}",
                    "planned" if phase == "released" else "waiting",
                    planned_end=harness.now + planned if phase == "released" else None,
                    promised_end=harness.now + promised if promised is not None else None,
                )
                harness.report(cluster, None, **{f"fed_{share}_1": seen})
        BagWorker(harness.federation, threading.Event(), lambda: harness.now, plan.connect).round()
        row = ann.get(f"{BAGS}/{name}").json()
        return row["deadline_state"], row["promised_end"], row["earliest_deadline"]

    assert plan.generation == 1
    assert judge(100, 50, None) == ("wished", None, harness.now + 100 + MARGIN)
    text = TestClient(harness.app).get("/").text
    assert re.search("refused: the earliest possible one is <time", text), text
    assert judge(60, 50, None) == ("wished", None, None)
    assert judge(60, 50, 61) == ("wished", None, None), "promised for the margin"
    assert judge(60, 50, 60) == ("accepted", promised, None)
    assert judge(60, 50, 40) == ("accepted", promised, None)
    written = len(harness.log.read())
    again(harness)
    for cluster in ("north", "south"):
        harness.report(cluster)
    assert judge(121, 50, 60) == ("at_risk", promised, None)
    assert TestClient(harness.app).get("/").text.count('<span class="tag bad">at risk</span>') == 1
    assert len(harness.log.read()) == written
    harness.now = deadline + 1
    assert judge(60, 50, 60)[0] == "missed"


def test_page_shows_bags_without_owners(
    harness: FederationHarness, plan: OfferedPlan, ann: TestClient
) -> None:
    assert plan.generation == 1
    page = TestClient(harness.app)
    assert "Bags of tasks" not in page.get("/").text
    row = ann.post(BAGS, json={**bag(harness), **WORK}).json()
    ann.post(BAGS, json={**bag(harness, 20, late=True), **WORK})
    text = page.get("/").text
    assert "Bags of tasks" in text
    assert text.count('<span class="faint">wished</span>') == 2
    assert "north, south" in text
    assert "ann@" not in text
    assert "sweep" not in text
    for name in harness.federation.bags.by_id:
        ann.delete(f"{BAGS}/{name}")
    assert "Bags of tasks" not in page.get("/").text
    assert row["id"] in harness.federation.bags.by_id


def test_owner_cancels_a_bag(harness: FederationHarness, plan: OfferedPlan, ann: TestClient) -> None:
    assert plan.generation == 1
    row = ann.post(BAGS, json={**bag(harness), **WORK}).json()
    here = f"{BAGS}/{row['id']}"
    assert harness.client("bob@org").delete(here).status_code == 404
    assert harness.client("eyes").delete(here).status_code == 403
    assert ann.delete(f"{BAGS}/999").status_code == 404
    done = ann.delete(here).json()
    assert (done["cancelled"], done["over"], done["deleted"], done["waiting"]) == (True, "cancelled", 10, 0)
    assert [one.kind for one in harness.federation.pending_actions("north")] == ["withdraw"]


# ---- schedd bag --------------------------------------------------------------------------------------------


ASKS = ("-n", "10", "-l", "nodes=1:ppn=2,walltime=60", "--by")


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "task.sh").write_text("#!/bin/sh\n#PBS -N sweep\necho $PBS_ARRAYID\n")
    return str(tmp_path / "task.sh")


def by(harness: FederationHarness, seconds: int) -> str:
    return datetime.fromtimestamp(harness.now + seconds).isoformat()  # noqa: DTZ006


def test_commands_offer_submit_show_and_cancel_a_bag(
    harness: FederationHarness,
    plan: OfferedPlan,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    assert plan.generation == 1
    assert shell("bag") == 0
    assert capsys.readouterr().out.endswith("there are no bags\n")
    assert shell("bag", "offer", *ASKS, by(harness, 60 + MARGIN)) == 0
    shown = capsys.readouterr().out
    (offer,) = re.findall(r"schedd bag submit --offer ([0-9a-f]+) …", shown)
    assert "10 tasks end" in shown
    assert "the deadline is accepted" in shown
    assert re.search(r"north +5 +5 by", shown), shown
    assert shell("bag", "submit", "--offer", offer, "-N", "mine", script) == 0
    name = capsys.readouterr().out.split()[-1]
    bag = harness.federation.bags[name]
    assert (bag.submission["attributes"]["Job_Name"], bag.tasks) == ("mine", 10)
    assert shell("bag", "submit", "--offer", offer, script) == 1
    assert f"was already accepted, as bag {name}; POST /v1/federation/bag-offers" in capsys.readouterr().err
    assert shell("bag", "show", name) == 0
    shown = capsys.readouterr().out
    assert "10: 10 waiting" in shown
    assert re.search(r"stretch factor +not known", shown), shown
    assert re.search(r"north +- +0-4", shown), shown
    assert shell("bag", "--json", "list") == 0
    (row,) = json.loads(capsys.readouterr().out)["bags"]
    assert (row["id"], row["deadline_kept"]) == (name, True)
    assert shell("bag", "list") == 0
    assert re.search(rf"{name} +ann@org +waiting +0/10 .* wished +north", capsys.readouterr().out)
    assert shell("bag", "cancel", name) == 0
    assert capsys.readouterr().out.endswith(f"bag {name}: withdrawn\n")
    assert shell("bag", "show", "999") == 3


def test_late_bag_needs_the_option_late(
    harness: FederationHarness,
    plan: OfferedPlan,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    assert plan.generation == 1
    assert shell("bag", "offer", *ASKS, by(harness, 20)) == 1
    assert re.search("the deadline is refused: the earliest possible one is .*:11", capsys.readouterr().out)
    assert shell("bag", "submit", *ASKS, by(harness, 20), script) == 1
    assert "90 s later, is the earliest that can be kept; set the deadline" in capsys.readouterr().err
    assert not harness.federation.bags.by_id
    assert shell("bag", "submit", *ASKS, by(harness, 20), "--late", script) == 1, "the deadline is not kept"
    assert len(harness.federation.bags.by_id) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("offer", "-n", "5"), "give -n, --by and -l"),
        (("submit", "-n", "5", "--by", "+1h"), "give -n, --by and -l"),
        (("submit", "--offer", "3f", "-n", "5"), "an offer has all terms of the bag"),
        (("offer", "-n", "5", "--by", "soon", "-l", "nodes=1"), "soon: no time"),
        (("offer", "-n", "5", "--by", "2020-01-01", "-l", "nodes=1"), "is past"),
        (("offer", "-n", "5", "--by", "+1h", "-l", "nodes=1", "-q", "long"), "QUEUE@CLUSTER"),
        (("submit", "no-such-script"), "no-such-script"),
    ],
)
def test_invalid_bag_options_are_explained(
    plan: OfferedPlan,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
    words: tuple[str, ...],
    said: str,
) -> None:
    more = (script,) if words[0] == "submit" and words[-1] != "no-such-script" else ()
    assert shell("bag", *words, *more) == 2
    assert said in capsys.readouterr().err
    assert not plan.asked
