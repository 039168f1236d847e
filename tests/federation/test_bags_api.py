"""Bags over HTTP: offers told, taken, refused when they hold no longer; bags shown and taken back."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest
from fastapi.testclient import TestClient

from schedd.api import bags
from schedd.client import ClientError, Refused
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.store import StoreError
from tests.federation.federation_harness import FederationHarness

OFFERS, BAGS = "/v1/federation/bag-offers", "/v1/federation/bags"
WORK = {"script": "sleep 1", "attributes": {"Job_Name": "sweep"}}


class Plan:
    """What clusters' plans say: ``ends`` by cluster, from the number of tasks to seconds from now on."""

    def __init__(self, desk: FederationHarness) -> None:
        self.desk = desk
        self.ends: dict[str, Callable[[int], int | None]] = {}
        self.generation = 1
        self.fails: dict[str, ClientError] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def connect(self, settings: Any, token: str) -> Any:
        del token
        name = next(n for n, one in self.desk.federation.settings.clusters.items() if one == settings)
        return _Client(self, name)


class _Client:
    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.name = plan, name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def what_if(self, **asked: Any) -> dict[str, Any]:
        self.plan.asked.append((self.name, asked))
        if self.name in self.plan.fails:
            raise self.plan.fails[self.name]
        ends = self.plan.ends[self.name]
        found = [(tasks, ends(tasks)) for tasks in asked["tasks"]]
        rows = [{"tasks": tasks, "end": self.plan.desk.now + end} for tasks, end in found if end is not None]
        answer = "start_known" if rows else "never"
        return {"generation": self.plan.generation, "tasks": rows, "answer": answer, "why": "no such nodes"}


@pytest.fixture
def plan(desk: FederationHarness, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The north runs five tasks of 10 s at once, the south one after the other; none runs more."""
    made = Plan(desk)
    made.ends = {"north": lambda n: 10 if n <= 5 else None, "south": lambda n: 10 * n if n <= 5 else None}
    monkeypatch.setattr("schedd.api.bags.connect_cluster", made.connect)
    for name in ("north", "south"):
        desk.report(name)
    return made


@pytest.fixture
def ann(desk: FederationHarness) -> TestClient:
    return desk.client("ann@org")


def bag(desk: FederationHarness, seconds: int = 60, **more: Any) -> dict[str, Any]:
    return {"request": "nodes=1:ppn=2,walltime=60", "tasks": 10, "deadline": desk.now + seconds, **more}


def test_an_offer_has_a_name_the_plans_versions_and_an_end(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    found = ann.post(OFFERS, json=bag(desk)).json()
    assert found["split"] == {"shares": {"north": 5, "south": 5}, "end": desk.now + 50, "met": True}
    assert (found["plans"], found["expires"]) == ({"north": 1, "south": 1}, desk.now + 300)
    assert {tuple(sorted(one)) for one in found["offers"]} == {("end", "provider", "tasks")}
    assert plan.asked[0][1]["resources"] == {"nodes": "1:ppn=2", "walltime": "00:01:00"}
    late = ann.post(OFFERS, json=bag(desk, 1)).json()["split"]
    assert (late["met"], sum(late["shares"].values())) == (False, 10)
    refused = ann.post(OFFERS, json=bag(desk, balance="load"))
    assert (refused.status_code, "needs the load" in refused.text) == (422, True)
    assert not desk.federation.bags.by_id, "nothing is submitted"


def test_why_a_cluster_offers_nothing_is_told(desk: FederationHarness, plan: Plan, ann: TestClient) -> None:
    plan.fails["north"] = Refused("invalid", 422, "nodes=…: not understood")
    plan.ends["south"] = lambda _: None
    found = ann.post(OFFERS, json=bag(desk)).json()
    assert (found["split"], found["why"]) == (
        None,
        {"north": "nodes=…: not understood", "south": "no such nodes"},
    )
    none = ann.post(BAGS, json={**bag(desk), **WORK})
    assert none.status_code == 409
    assert "north: nodes=…: not understood; south: no such nodes" in none.json()["detail"]


def test_an_offer_is_taken_and_each_cluster_gets_its_array(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(desk)).json()
    made = ann.post(BAGS, json={"offer": offer["id"], "key": "k", **WORK})
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["tasks"], row["waiting"], row["state"], row["published_end"]) == (
        10,
        10,
        "waiting",
        desk.now + 50,
    )
    assert (row["end"], row["deadline_kept"], row["name"]) == (desk.now + 50, True, "sweep")
    shares = {one["cluster"]: (one["array"], one["published_end"] - desk.now) for one in row["shares"]}
    assert shares == {"north": ("0-4", 10), "south": ("5-9", 50)}
    (asked,) = desk.federation.pending_actions("north")
    assert asked.body is not None
    assert (asked.kind, asked.body["array"], asked.body["user"]) == ("submit", "0-4", "ann")
    assert ann.post(BAGS, json={"offer": offer["id"], "key": "k", **WORK}).json()["id"] == row["id"]
    again = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert (again.status_code, "was taken: it is bag 1" in again.text) == (409, True)
    assert "makes a new offer" in again.json()["hint"]
    assert plan.asked[-1][0] in ("north", "south")


def again(desk: FederationHarness) -> None:
    """The federation ends, and another begins on its log."""
    desk.log.close()
    desk.begin()


def test_an_offer_is_taken_after_a_restart_as_before_it_and_once(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(desk)).json()
    again(desk)
    stranger = desk.client("bob@org").post(BAGS, json={"offer": offer["id"], **WORK})
    assert (stranger.status_code, "no offer" in stranger.text) == (409, True)
    plan.asked.clear()
    row = ann.post(BAGS, json={"offer": offer["id"], **WORK}).json()
    assert sorted(name for name, _ in plan.asked) == ["north", "south"], "whether they still can is asked"
    shares = {one["cluster"]: (one["array"], one["published_end"] - desk.now) for one in row["shares"]}
    assert shares == {"north": ("0-4", 10), "south": ("5-9", 50)}
    again(desk)
    late = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert late.status_code == 409
    assert late.json()["detail"] == f"offer {offer['id']} was taken: it is bag {row['id']}"
    assert late.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_an_offer_that_holds_no_longer_after_a_restart_is_refused_with_what_to_do(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    first, second = (ann.post(OFFERS, json=bag(desk)).json()["id"] for _ in range(2))
    again(desk)
    plan.ends["south"] = lambda n: 100 * n
    late = ann.post(BAGS, json={"offer": first, **WORK})
    assert (late.status_code, "south: its plan has moved on" in late.json()["detail"]) == (409, True)
    desk.now += 300
    again(desk)
    expired = ann.post(BAGS, json={"offer": second, **WORK})
    assert (expired.status_code, expired.json()["detail"]) == (409, f"offer {second} has expired")
    desk.now += 2 * 3_600
    desk.report("north")
    assert not desk.log.read(), "it is forgotten"
    gone = ann.post(BAGS, json={"offer": second, **WORK})
    assert (gone.status_code, "there is no offer" in gone.json()["detail"]) == (409, True)
    assert gone.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_who_takes_an_offer_that_somebody_took_a_moment_ago_gets_no_second_bag(
    desk: FederationHarness, plan: Plan, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    del plan
    offer = ann.post(OFFERS, json=bag(desk)).json()["id"]

    def look(*about: Any) -> dict[str, int]:
        monkeypatch.undo()  # while the plans are asked
        monkeypatch.setattr(
            "schedd.federation.state.bag_operations.BagOperations._check_no_share_in_transit", lambda *_: None
        )
        assert ann.post(BAGS, json={"offer": offer, **WORK}).status_code == 201
        return {}

    monkeypatch.setattr(bags, "_recheck_ends", look)
    second = ann.post(BAGS, json={"offer": offer, **WORK})
    assert (second.status_code, "was taken" in second.json()["detail"]) == (409, True)
    assert len(desk.federation.bags.by_id) == 1


def test_an_offer_that_cannot_be_kept_is_not_told(
    desk: FederationHarness, plan: Plan, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    del plan

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(desk.log, "append", fail)
    answer = ann.post(OFFERS, json=bag(desk))
    assert (answer.status_code, answer.json()["detail"]) == (503, "database unavailable: the disk is full")


def test_an_offer_that_expired_or_is_somebody_elses_is_refused_with_what_to_do(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    assert plan.generation == 1
    offer = ann.post(OFFERS, json=bag(desk)).json()
    stranger = desk.client("bob@org").post(BAGS, json={"offer": offer["id"], **WORK})
    assert stranger.status_code == 409
    assert desk.client("eyes").post(BAGS, json={"offer": offer["id"], **WORK}).status_code == 403
    desk.now += 300
    late = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert (late.status_code, late.json()["detail"]) == (409, f"offer {offer['id']} has expired")
    assert late.json()["hint"] == "POST /v1/federation/bag-offers makes a new offer"


def test_an_offer_of_a_plan_that_moved_on_holds_as_long_as_there_is_room(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    offer = ann.post(OFFERS, json=bag(desk)).json()
    second = ann.post(OFFERS, json=bag(desk)).json()
    desk.federation.generations["south"] = 2
    plan.ends["south"] = lambda tasks: 20 * tasks
    stale = ann.post(BAGS, json={"offer": offer["id"], **WORK})
    assert stale.status_code == 409
    assert "south: its plan has moved on: 5 tasks end there 40 s too late" in stale.json()["detail"]
    assert not desk.federation.bags.by_id
    plan.ends["south"] = lambda tasks: 11 * tasks
    row = ann.post(BAGS, json={"offer": second["id"], **WORK}).json()
    assert row["published_end"] == desk.now + 55, "later than it was, and by the deadline yet"
    assert plan.asked[-1] == ("south", {**plan.asked[-1][1], "tasks": (5,)})


def test_two_who_take_at_once_are_not_told_the_same_cores(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    assert plan.generation == 1
    first, second = (ann.post(OFFERS, json=bag(desk)).json()["id"] for _ in range(2))
    assert ann.post(BAGS, json={"offer": first, **WORK}).status_code == 201
    loser = ann.post(BAGS, json={"offer": second, **WORK})
    assert (loser.status_code, loser.headers["retry-after"]) == (409, "5")
    assert "was given to north a moment ago" in loser.json()["detail"]


def test_a_bag_is_asked_for_and_taken_at_once_unless_it_would_be_late(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    assert plan.generation == 1
    refused = ann.post(BAGS, json={**bag(desk, 20), **WORK})
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["detail"] == "the tasks end 30 s after the deadline"
    (option,) = problem["options"]
    assert option["id"] in problem["hint"]
    row = ann.post(BAGS, json={**bag(desk, 20, late=True), **WORK}).json()
    assert (row["deadline_kept"], row["end"]) == (False, desk.now + 50)
    assert ann.post(BAGS, json={**bag(desk), **WORK}).json()["deadline_kept"] is True


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"deadline": 5}, "is past"),
        ({"tasks": 0}, "tasks"),
        ({"tasks": 100_001}, "tasks"),
        ({"request": "nodes=1:ppn=x"}, "ppn"),
        ({"clusters": ["west"]}, "no cluster west"),
        ({"script": ""}, "script"),
        ({"attributes": {"User_List": "bob"}}, "cannot be handed over"),
        ({"offer": "3f"}, "offer"),
        ({"owner": "bob@org"}, "may not act for"),
    ],
)
def test_what_makes_no_sense_is_refused(
    desk: FederationHarness, plan: Plan, ann: TestClient, wrong: dict[str, Any], said: str
) -> None:
    found = ann.post(BAGS, json={**bag(desk), **WORK, **wrong})
    assert found.status_code in (403, 422), found.text
    assert said in found.text
    assert not plan.asked


def test_a_bag_tells_how_its_tasks_stand_by_cluster(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    assert plan.generation == 1
    row = ann.post(BAGS, json={**bag(desk), **WORK}).json()
    north, south = (one["job"] for one in row["shares"])
    none = {"planned": 0, "running": 0, "ended": 0, "failed": 0, "deleted": 0, "last_end": None, "tasks": 5}
    none["first_end"] = None

    def seen(name: str, share: str, state: str, **more: Any) -> None:
        counts = {**none, **{key: value for key, value in more.items() if key in none}}
        rest = {key: value for key, value in more.items() if key not in none}
        one = TransferStatus("released", f"7[].{name}", state, True, tasks=counts, **rest)
        desk.report(name, None, **{f"fed_{share}_1": one})

    for name, share in (("north", north), ("south", south)):
        desk.report(name, None, **{f"fed_{share}_1": TransferStatus("held", f"7[].{name}")})
        seen(name, share, "planned", planned=5)
    assert [row[name] for name in ("first_end", "stretch_s", "stretch")] == [None] * 3
    seen("south", south, "planned", planned=5, first_end=desk.now + 1)
    first = desk.now + 20
    seen(
        "north",
        north,
        "running",
        running=2,
        ended=2,
        failed=1,
        planned=1,
        planned_end=desk.now + 70,
        first_end=first,
    )
    row = ann.get(f"{BAGS}/{row['id']}").json()
    assert {name: row[name] for name in ("waiting", "running", "ended", "failed")} == {
        "waiting": 6,
        "running": 2,
        "ended": 2,
        "failed": 1,
    }
    assert (row["state"], row["end"], row["deadline_kept"]) == ("running", desk.now + 70, False)
    # The south discloses no plan: what it says of ends to come is not told.
    assert (row["first_end"], row["stretch_s"], row["stretch"]) == (first, 50, 50 / 70)
    assert [one["stretch_s"] for one in row["shares"]] == [50, None]
    assert desk.client("bob@org").get(f"{BAGS}/{row['id']}").status_code == 404
    assert desk.client("bob@org").get(BAGS).json() == {"bags": []}
    assert len(desk.client("eyes").get(BAGS).json()["bags"]) == 1
    for name, share in (("north", north), ("south", south)):
        ends = {"first_end": desk.now + (10 if name == "south" else 20), "last_end": desk.now + 40}
        seen(name, share, "", ended=5, end="ended", exit_status=0, **ends)
    row = ann.get(f"{BAGS}/{row['id']}").json()
    assert (row["over"], row["ended"], row["end"], row["deadline_kept"]) == ("ended", 10, desk.now + 40, True)
    assert (row["stretch_s"], row["stretch"]) == (30, 0.75)
    assert [one["stretch_s"] for one in row["shares"]] == [20, 30]
    report = ann.get("/v1/federation/report").json()["bags"]["stretch"]
    assert report == {"known": 1, "stretch_s": 30, "stretch": 0.75}
    assert ann.get(BAGS, params={"state": "open"}).json() == {"bags": []}
    jobs = ann.get("/v1/federation/jobs").json()["jobs"]
    assert [(one["bag"], one["tasks"]) for one in jobs] == [(row["id"], "0-4"), (row["id"], "5-9")]


def test_the_page_shows_numbers_of_bags_and_not_whose_they_are(
    desk: FederationHarness, plan: Plan, ann: TestClient
) -> None:
    assert plan.generation == 1
    page = TestClient(desk.app)
    assert "Bags of tasks" not in page.get("/").text
    row = ann.post(BAGS, json={**bag(desk), **WORK}).json()
    ann.post(BAGS, json={**bag(desk, 20, late=True), **WORK})
    text = page.get("/").text
    assert "Bags of tasks" in text
    assert text.count("<td>kept</td>") == 1
    assert text.count('<td class="away">not kept</td>') == 1
    assert "north, south" in text
    assert "ann@" not in text
    assert "sweep" not in text
    for name in desk.federation.bags.by_id:
        ann.delete(f"{BAGS}/{name}")
    assert "Bags of tasks" not in page.get("/").text
    assert row["id"] in desk.federation.bags.by_id


def test_a_bag_is_taken_back_by_its_owner(desk: FederationHarness, plan: Plan, ann: TestClient) -> None:
    assert plan.generation == 1
    row = ann.post(BAGS, json={**bag(desk), **WORK}).json()
    here = f"{BAGS}/{row['id']}"
    assert desk.client("bob@org").delete(here).status_code == 404
    assert desk.client("eyes").delete(here).status_code == 403
    assert ann.delete(f"{BAGS}/999").status_code == 404
    done = ann.delete(here).json()
    assert (done["cancelled"], done["over"], done["deleted"], done["waiting"]) == (True, "cancelled", 10, 0)
    assert [one.kind for one in desk.federation.pending_actions("north")] == ["withdraw"]


# ---- schedd bag --------------------------------------------------------------------------------------------


ASKS = ("-n", "10", "-l", "nodes=1:ppn=2,walltime=60", "--by")


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "task.sh").write_text("#!/bin/sh\n#PBS -N sweep\necho $PBS_ARRAYID\n")
    return str(tmp_path / "task.sh")


def by(desk: FederationHarness, seconds: int) -> str:
    return datetime.fromtimestamp(desk.now + seconds).isoformat()  # noqa: DTZ006


def test_a_bag_is_offered_taken_shown_and_taken_back(
    desk: FederationHarness,
    plan: Plan,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    assert plan.generation == 1
    assert shell("bag") == 0
    assert capsys.readouterr().out.endswith("there are no bags\n")
    assert shell("bag", "offer", *ASKS, by(desk, 60)) == 0
    shown = capsys.readouterr().out
    (offer,) = re.findall(r"schedd bag submit --offer ([0-9a-f]+) …", shown)
    assert "10 tasks end" in shown
    assert "by the deadline" in shown
    assert re.search(r"north +5 +5 by", shown), shown
    assert shell("bag", "submit", "--offer", offer, "-N", "mine", script) == 0
    name = capsys.readouterr().out.split()[-1]
    bag = desk.federation.bags[name]
    assert (bag.submission["attributes"]["Job_Name"], bag.tasks) == ("mine", 10)
    assert shell("bag", "submit", "--offer", offer, script) == 1
    assert f"was taken: it is bag {name}; POST /v1/federation/bag-offers" in capsys.readouterr().err
    assert shell("bag", "show", name) == 0
    shown = capsys.readouterr().out
    assert "10: 10 waiting" in shown
    assert re.search(r"stretch factor +not known", shown), shown
    assert re.search(r"north +- +0-4", shown), shown
    assert shell("bag", "--json", "list") == 0
    (row,) = json.loads(capsys.readouterr().out)["bags"]
    assert (row["id"], row["deadline_kept"]) == (name, True)
    assert shell("bag", "list") == 0
    assert re.search(rf"{name} +ann@org +waiting +0/10 ", capsys.readouterr().out)
    assert shell("bag", "cancel", name) == 0
    assert capsys.readouterr().out.endswith(f"bag {name}: taken back\n")
    assert shell("bag", "show", "999") == 3


def test_a_bag_that_would_be_late_is_submitted_only_if_that_is_said(
    desk: FederationHarness,
    plan: Plan,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    assert plan.generation == 1
    assert shell("bag", "offer", *ASKS, by(desk, 20)) == 1
    assert "00:00:30 after the deadline" in capsys.readouterr().out
    assert shell("bag", "submit", *ASKS, by(desk, 20), script) == 1
    assert "the tasks end 30 s after the deadline; take offer" in capsys.readouterr().err
    assert not desk.federation.bags.by_id
    assert shell("bag", "submit", *ASKS, by(desk, 20), "--late", script) == 1, "the deadline is not kept"
    assert len(desk.federation.bags.by_id) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("offer", "-n", "5"), "give -n, --by and -l"),
        (("submit", "-n", "5", "--by", "+1h"), "give -n, --by and -l"),
        (("submit", "--offer", "3f", "-n", "5"), "an offer says all but what runs"),
        (("offer", "-n", "5", "--by", "soon", "-l", "nodes=1"), "soon: no time"),
        (("offer", "-n", "5", "--by", "2020-01-01", "-l", "nodes=1"), "is past"),
        (("offer", "-n", "5", "--by", "+1h", "-l", "nodes=1", "-q", "long"), "QUEUE@CLUSTER"),
        (("submit", "no-such-script"), "no-such-script"),
    ],
)
def test_what_is_not_understood_of_a_bag_is_said(
    plan: Plan,
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
