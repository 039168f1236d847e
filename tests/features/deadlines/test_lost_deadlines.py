"""Jobs that can no longer end by their deadlines, where the site holds them."""

from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import StartKnown, WaitingFor
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import JobFacts, PolicyChanged
from tests.engine.cluster import Cluster, T

HOLD = {"priority": {"deadline_lost": "hold"}}
WORDS = (
    "its user or an admin, since it can no longer end by its deadline, 2023-11-14 22:16:40 UTC: "
    "set a later deadline or a shorter walltime (qalter)"
)


class Due(Cluster):
    """Job 1 runs until 150; job 2 of 100 s is due at 200; job 3 follows."""

    def __init__(self, site: dict[str, Any] = HOLD, **more: Any) -> None:
        super().__init__(site=site, slack=1000, **more)
        self.submit("1", walltime=150)
        self.submit("2", resources=deadline_in(200))
        self.submit("3", "1:ppn=4", 50)

    def change(self, version: int, lost: str) -> None:
        site = {"priority": {"deadline_lost": lost}}
        self.send(PolicyChanged(id=f"p{version}", time=self.server.now, version=version, site=site))


def waits(site: Cluster, job: str) -> str:
    answer = site.record(job).answer
    return answer.kind if isinstance(answer, WaitingFor) else ""


def deadline_in(seconds: int) -> dict[str, str]:
    return {"x.deadline": str(T + seconds)}


def test_it_leaves_the_plan_a_second_after_its_latest_start_and_others_go_on() -> None:
    site = Due()
    site.at(100)
    assert [site.start(job) for job in "23"] == [150, 250]
    assert site.view("2").deadline_state == "wished"
    assert site.promise("2") is not None
    site.at(101)
    assert [site.start(job) for job in "23"] == [None, 150]
    view = site.view("2")
    assert (view.waiting_for, view.deadline_state) == ("deadline", "missed")
    assert view.why == f"waiting for {WORDS}"
    assert site.promise("2") is None
    assert view.last_change is not None
    assert view.last_change.words == "it can no longer end by its deadline"
    site.at(2_000)
    assert site.runs("2") == []
    assert site.breaches("2") == [], "its own deadline, not the planner, ended its promise"


@pytest.mark.parametrize("lost", ["demote", "keep"])
def test_elsewhere_it_runs_late(lost: str) -> None:
    site = Due({"priority": {"deadline_lost": lost}})
    site.at(300)
    assert site.runs("2") == [150]


def test_job_starts_at_the_last_moment_before_its_deadline() -> None:
    site = Due()
    site.send(*site.server.delete("1"))
    site.at(300)
    assert site.runs("2") == [0]
    last = Cluster(site=HOLD)
    last.submit("1", walltime=100)
    last.submit("2", resources=deadline_in(200))
    last.at(300)
    assert last.runs("2") == [100]


@pytest.mark.parametrize(
    "asked", [deadline_in(10_000), {"walltime": "50"}, {"x.deadline": str(T + 200), "walltime": "99"}]
)
def test_a_later_deadline_or_a_shorter_walltime_brings_it_back_and_nothing_else(
    asked: dict[str, str],
) -> None:
    site = Due()
    site.at(101)
    site.alter("2", priority=5)
    site.alter_request("2", **deadline_in(200))
    assert waits(site, "2") == "deadline"
    site.alter_request("2", **asked)
    assert (waits(site, "2"), site.start("2")) == ("", 200)
    assert site.promise("2") is not None


def test_job_submitted_too_late_for_its_deadline_waits_also_after_a_hold() -> None:
    site = Due()
    site.submit("4", resources=deadline_in(99))
    assert (site.start("4"), waits(site, "4")) == (None, "deadline")
    site.submit("5", resources=deadline_in(100), state="H", holds="u")
    assert waits(site, "5") == "hold"
    site.at(1)
    site.send(*site.server.release("5"))
    assert waits(site, "5") == "deadline"


def test_job_without_a_place_waits_for_its_deadline_once_that_is_lost() -> None:
    site = Cluster(nodes=2, site=HOLD)
    site.node("n2", state="drain")
    site.submit("4", "n2:ppn=4", resources=deadline_in(200))
    assert waits(site, "4") == "node"
    site.at(101)
    assert waits(site, "4") == "deadline"


def test_another_policy_lifts_the_holds_and_sets_them() -> None:
    site = Due({})
    site.at(120)
    assert site.start("2") == 150
    site.change(1, "hold")
    assert [site.start(job) for job in "23"] == [None, 150]
    site.change(2, "demote")
    assert site.start("2") is not None
    site.at(500)
    assert len(site.runs("2")) == 1


@pytest.mark.parametrize("before", [50, 101])
def test_a_restart_keeps_the_hold_and_its_moment(before: int) -> None:
    site = Due()
    site.at(before)
    site.engine = Engine.restore(site.engine.checkpoint())
    site.at(300)
    assert (site.runs("2"), waits(site, "2")) == ([], "deadline")
    site.engine = Engine.restore(site.engine.checkpoint())
    site.alter_request("2", **deadline_in(10_000))
    site.at(301)
    assert len(site.runs("2")) == 1


def test_policies_that_plan_no_starts_hold_it_too() -> None:
    site = Due(policy="fcfs")
    site.at(300)
    assert (site.runs("2"), waits(site, "2"), site.runs("3")) == ([], "deadline", [150])
    site.alter_request("2", **deadline_in(10_000))
    site.at(301)
    assert len(site.runs("2")) == 1


def test_jobs_that_depend_on_it_wait() -> None:
    site = Due()
    site.submit("4", "1:ppn=4", 50, state="H", holds="s", depend="afterok:2")
    assert site.start("4") == 300
    site.at(101)
    assert (site.start("4"), waits(site, "4")) == (None, "dependency")


def test_a_what_if_says_that_the_job_would_be_held() -> None:
    site = Cluster(site=HOLD)

    def ask(seconds: int) -> object:
        wanted = {"nodes": "1:ppn=4", "walltime": "100", **deadline_in(seconds)}
        facts = JobFacts(id="x", owner="ann@login", queue="batch", submitted=T, resources=wanted)
        state = site.engine.state
        return fork_plan(site.engine, publish_snapshot(state)).what_if(facts, T).answer

    assert isinstance(ask(100), StartKnown)
    answer = ask(99)
    assert isinstance(answer, WaitingFor)
    assert answer.kind == "deadline"
