"""Admission by deadline: accepted deadlines bound the plan, refused ones get an offer."""

import random
from typing import Any

import pytest

from schedd.engine import Cause, Engine, JobView
from schedd.engine.facts.records import MAY_BREAK
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.deadlines.state import DeadlinesState
from schedd.model import NodeState
from schedd.policy.site import site_policy
from schedd.wire import Decision, Event, PolicyChanged
from tests.engine.cluster import Cluster, T
from tests.engine.policy_previews import previewed_moves

MARGIN = 60


def deadline_in(seconds: int) -> dict[str, str]:
    return {"x.deadline": str(T + seconds)}


def states(cluster: Cluster, jobs: str) -> list[str]:
    return [cluster.view(job).deadline_state for job in jobs]


def busy_cluster(**more: Any) -> Cluster:
    """One node, taken until 1,000; promises have a slack of 10,000 s."""
    cluster = Cluster(slack=10_000, **more)
    cluster.submit("0", walltime=1000)
    return cluster


def test_accepted_refused_and_missed_deadlines_are_told_apart() -> None:
    cluster = busy_cluster()
    for job, deadline in (("1", "+1160"), ("2", "+1259"), ("3", "+50")):
        cluster.submit(job, walltime=100, resources={"x.deadline": deadline})
    cluster.submit("4", walltime=100)
    assert states(cluster, "1234") == ["accepted", "wished", "missed", ""]
    assert [cluster.view(job).earliest_deadline for job in "1234"] == [None, T + 1260, T + 1360, None]
    assert [cluster.promise(job) for job in "12"] == [1000, 11_100]
    assert "was refused; the earliest that can be kept is 2023-11-14 22:34:20 UTC" in cluster.view("2").why
    assert "is accepted" in cluster.view("1").why
    cluster.at(1061)
    assert states(cluster, "12") == ["accepted", "wished"], "job 1 runs"
    cluster.at(1159)
    assert states(cluster, "2") == ["wished"]


def test_newcomers_of_higher_priority_do_not_delay_an_accepted_job_past_its_latest_start() -> None:
    weights = {"priority": {"wish": 1.0}}
    cluster = busy_cluster(site=weights)
    cluster.submit("1", walltime=1000, resources=deadline_in(2500))
    for job in "abcdefgh":
        cluster.submit(job, walltime=300, priority=100)
    assert cluster.start("1") == 1300, "one of them fits before it"
    cluster.at(6000)
    assert cluster.runs("1") == [1300]
    without = busy_cluster(site={**weights, "deadlines": {"admission": False}})
    without.submit("1", walltime=1000, resources=deadline_in(2500))
    for job in "abcdefgh":
        without.submit(job, walltime=300, priority=100)
    assert without.start("1") == 3400, "it ends 1,900 s after its deadline"


def test_the_offered_deadline_is_accepted_by_qalter() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(500))
    offered = cluster.view("1").earliest_deadline
    assert offered == T + 1100 + MARGIN
    cluster.alter_request("1", **{"x.deadline": str(offered - 1)})
    assert states(cluster, "1") == ["wished"]
    cluster.alter_request("1", **{"x.deadline": str(offered)})
    assert (states(cluster, "1"), cluster.promise("1")) == (["accepted"], 1000)


def test_another_deadline_ends_the_guarantee_of_the_former_and_keeps_the_promise_before_it() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(2000))
    cluster.at(10)
    cluster.alter_request("1", **deadline_in(3000))
    assert (states(cluster, "1"), cluster.promise("1")) == (["accepted"], 3000 - 100 - MARGIN)
    cluster.alter_request("1", **deadline_in(1000))
    assert (states(cluster, "1"), cluster.promise("1")) == (["wished"], 11_000)
    cluster.alter("1", resources={"nodes": "1:ppn=4", "walltime": "100"})
    assert (states(cluster, "1"), cluster.promise("1")) == ([""], 11_000)
    part = cluster.engine.state.part(DeadlinesState)
    assert not part.accepted
    assert not part.refused


def test_refused_deadline_is_accepted_when_the_plan_meets_it() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(500))
    cluster.at(100)
    cluster.send(*cluster.server.delete("0"))
    assert cluster.runs("1") == [100]
    cluster.submit("2", walltime=300)
    cluster.submit("3", walltime=100, resources=deadline_in(600))
    assert states(cluster, "3") == ["wished"]
    cluster.send(*cluster.server.delete("2"))
    assert (states(cluster, "3"), cluster.promise("3")) == (["accepted"], 600 - 100 - MARGIN)


def test_hold_ends_the_admission_and_the_release_judges_anew() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(1200))
    cluster.send(*cluster.server.hold("1"))
    assert (states(cluster, "1"), cluster.promise("1")) == (["wished"], None)
    cluster.submit("2", walltime=500)
    cluster.send(*cluster.server.release("1"))
    assert (states(cluster, "1"), cluster.view("1").earliest_deadline) == (["wished"], T + 1660)


def test_node_failure_puts_an_accepted_deadline_at_risk_and_its_miss_has_the_cause() -> None:
    cluster = Cluster(slack=10_000, nodes=2)
    for job in "ab":
        cluster.submit(job, walltime=1000)
    cluster.submit("1", "2:ppn=4", walltime=100, resources=deadline_in(1200))
    cluster.node("n1", state=NodeState.DOWN)
    cluster.at(400)
    assert states(cluster, "1") == ["at_risk"]
    assert "is at risk (node lost)" in cluster.view("1").why
    cluster.at(1200)
    assert states(cluster, "1") == ["missed"]
    assert cluster.breaches("1") == [Cause.NODE_LOST]
    cluster.node("n1", state=NodeState.UP)
    cluster.at(2000)
    assert cluster.engine.state.part(DeadlinesState).counts == {"accepted": 1, "missed": 1}


def test_admission_is_open_to_the_listed_and_promises_also_without_slack() -> None:
    site = {"deadlines": {"queues": ["batch"], "users": ["bob"], "margin": 0}}
    cluster = Cluster(slack=0, queue_slack={"batch": "off"}, site=site)
    cluster.submit("0", walltime=1000)
    cluster.submit("1", walltime=100, resources=deadline_in(1100))
    assert (states(cluster, "1"), cluster.promise("1")) == (["accepted"], 1000)
    only_bob = {"deadlines": {"users": ["bob"]}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=only_bob))
    cluster.submit("2", walltime=100, resources=deadline_in(9000))
    cluster.submit("3", walltime=100, resources=deadline_in(9000), owner="bob@login")
    assert states(cluster, "23") == ["wished", "accepted"]
    assert "is a wish: this site accepts no deadlines of such jobs" in cluster.view("2").why


def test_an_accepted_deadline_is_guaranteed_again_when_the_plan_meets_it_again() -> None:
    site = {"priority": {"wish": 1.0}, "deadlines": {"margin": 0}}
    cluster = Cluster(nodes=2, slack=0, site=site, node_grace=60)
    cluster.submit("a", walltime=1000)
    cluster.submit("b", walltime=4000)
    cluster.submit("1", walltime=100, resources=deadline_in(3000))
    cluster.node("n1", state=NodeState.DOWN)
    cluster.at(1100)
    assert (states(cluster, "1"), cluster.promise("1")) == (["at_risk"], 4000), "the first promise is broken"
    cluster.reserve("maintenance", "n1", start=1150, end=1500)
    cluster.node("n1", state=NodeState.UP)
    assert (cluster.start("1"), states(cluster, "1"), cluster.promise("1")) == (1500, ["accepted"], 2900)
    cluster.submit("c", walltime=2000, priority=100)
    assert (cluster.start("1"), states(cluster, "1")) == (1500, ["accepted"])


def test_larger_request_ends_the_admission_of_a_job_whose_promise_was_broken() -> None:
    cluster = Cluster(nodes=2, queue_slack={"batch": "off"}, node_grace=60)
    cluster.submit("a", "2:ppn=4", walltime=1000)
    cluster.submit("1", "2:ppn=4", walltime=100, resources=deadline_in(1300))
    cluster.node("n1", state=NodeState.DOWN)
    cluster.at(1250)
    part = cluster.engine.state.part(DeadlinesState)
    assert (cluster.promise("1"), cluster.breaches("1"), list(part.accepted)) == (
        None,
        [Cause.NODE_LOST],
        ["1"],
    )
    cluster.alter_request("1", walltime="200")
    assert not part.accepted


def test_running_job_that_exceeds_its_walltime_misses_its_deadline() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100, runtime=500, resources=deadline_in(200))
    cluster.at(200)
    assert states(cluster, "1") == ["accepted"]
    cluster.at(201)
    assert states(cluster, "1") == ["missed"]


def test_the_offer_names_the_other_extensions_that_qalter_replaces() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(500))
    cluster.submit("2", walltime=100, resources={**deadline_in(500), "x.flags": "RESTARTABLE"})
    words = "with the other values of -W x, which qalter replaces together"
    assert [words in cluster.view(job).why for job in "12"] == [False, True]


def test_refused_deadline_has_no_offer_after_admission_was_closed() -> None:
    cluster = busy_cluster()
    cluster.submit("1", walltime=100, resources=deadline_in(500))
    assert cluster.view("1").earliest_deadline is not None
    closed = {"deadlines": {"admission": False}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=closed))
    assert cluster.view("1").earliest_deadline is None
    assert "is a wish: this site accepts no deadlines of such jobs" in cluster.view("1").why


def test_opened_admission_judges_the_deadlines_of_waiting_jobs() -> None:
    """Also after a restart with another configuration, and in a smaller margin."""
    closed: dict[str, Any] = {"deadlines": {"admission": False}}
    cluster = busy_cluster(site=closed)
    cluster.submit("1", walltime=100, resources=deadline_in(1160))
    cluster.submit("2", walltime=100, resources=deadline_in(1200))
    cluster.submit("3", walltime=100, resources=deadline_in(9000), owner="bob@login")
    assert states(cluster, "123") == ["wished", "wished", "wished"]
    assert [cluster.promise(job) for job in "12"] == [11_000, 11_100]
    restarted = cluster.engine.state.settings.with_changes(
        site=site_policy({"deadlines": {"users": ["ann"]}})
    )
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), restarted)
    cluster.at(1)
    assert states(cluster, "123") == ["accepted", "wished", "wished"]
    assert [cluster.promise(job) for job in "12"] == [1000, 11_100]
    assert cluster.view("2").earliest_deadline == T + 1260
    narrow = {"deadlines": {"users": ["ann"], "margin": 0}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=narrow))
    assert states(cluster, "123") == ["accepted", "accepted", "wished"]
    assert cluster.promise("2") == 1100
    cluster.send(PolicyChanged(id="p2", time=cluster.server.now, version=2, site={}))
    assert states(cluster, "123") == ["accepted", "accepted", "accepted"]


# ---- against a plain rule -----------------------------------------------------------------------


class Watched(Cluster):
    """Keeps the causes of breaches also of jobs that are gone."""

    def __init__(self, **settings: Any) -> None:
        self.causes: dict[str, list[str]] = {}
        super().__init__(**settings)

    def send(self, *events: Event) -> tuple[Decision, ...]:
        self.causes |= {name: self.breaches(name) for name in self.engine.state.records}
        return super().send(*events)


@pytest.mark.covering
@pytest.mark.parametrize("failures", [False, True])
@pytest.mark.parametrize("slack", [0, 2_000, 50_000])
def test_an_accepted_job_never_misses_its_deadline_without_a_cause_of_the_closed_list(
    failures: bool, slack: int
) -> None:
    """Newcomers with priorities, early ends, deletions, node failures and restores. The accepted deadlines
    are noted as they are shown, and compared with the runs of the emulated server.
    """
    accepted_in_all = 0
    for seed in range(3):
        accepted_in_all += _run_stream(random.Random(seed), failures=failures, slack=slack)
    assert accepted_in_all > 20


def _run_stream(draw: random.Random, *, failures: bool, slack: int) -> int:
    cluster = Watched(nodes=3, slack=slack, site={"priority": {"wish": 1.0}}, node_grace=60)
    accepted: dict[str, JobView] = {}
    down: set[str] = set()
    for number in range(40):
        names = sorted(cluster.engine.state.records.keys() - accepted.keys())
        what = draw.choices(("submit", "wait", "fail", "repair", "delete", "restore"), (12, 4, 2, 2, 1, 1))[0]
        if what == "submit":
            walltime = 60 * draw.randint(1, 40)
            cluster.submit(
                str(number),
                f"{draw.randint(1, 3)}:ppn=4",
                walltime,
                runtime=min(walltime, 60 * draw.randint(1, 60)),
                priority=draw.randint(0, 3),
                resources=deadline_in(cluster.server.now - T + walltime + 60 * draw.randint(-5, 120)),
            )
        elif what == "wait":
            cluster.at(cluster.server.now - T + draw.randint(1, 1500))
        elif what == "fail" and failures:
            down.add(f"n{draw.randint(1, 3)}")
            for name in down:
                cluster.node(name, state=NodeState.DOWN)
        elif what == "repair" and down:
            cluster.node(down.pop(), state=NodeState.UP)
        elif what == "delete" and names:
            cluster.send(*cluster.server.delete(draw.choice(names)))
        elif what == "restore":
            cluster.engine = Engine.restore(cluster.engine.checkpoint())
        published = publish_snapshot(cluster.engine.state)
        for name in cluster.engine.state.records:
            view = job_view(published, name)
            assert view is not None
            if view.deadline_state == "accepted":
                accepted.setdefault(name, view)
            if name in accepted and view.state != "running" and view.deadline_state in ("at_risk", "missed"):
                assert failures, (name, view.why)
                assert view.at_risk is not None or view.breaches, (name, view.why)
    for name in down:
        cluster.node(name, state=NodeState.UP)
    cluster.at(cluster.server.now - T + 200_000)
    for name, view in accepted.items():
        started = cluster.runs(name)[-1]
        assert view.deadline is not None
        late = T + started + view.walltime > view.deadline
        assert not late or (failures and cluster.causes[name]), name
        assert set(cluster.causes[name]) <= MAY_BREAK
    return len(accepted)


def test_a_preview_names_the_owner_whose_accepted_deadline_would_be_missed() -> None:
    cluster = Cluster(nodes=2, slack=10_000)
    cluster.submit("0", walltime=1000)
    cluster.submit("b", walltime=2000)
    cluster.submit("1", walltime=100, resources=deadline_in(1160))
    cluster.submit("2", walltime=100)
    assert states(cluster, "1") == ["accepted"]
    moved = previewed_moves(cluster, {"limits": [{"amount": 1}]})
    assert {job: ((one.after or 0) - T, one.broken) for job, one in moved.items()} == {
        "1": (2000, True),
        "2": (2100, False),
    }


def test_a_running_job_whose_suspension_takes_it_past_its_deadline_is_at_risk() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1_000, resources=deadline_in(1_200))
    cluster.at(100)
    cluster.send(*cluster.server.suspend("1"))
    cluster.at(200)
    assert states(cluster, "1") == ["accepted"]
    cluster.at(500)
    assert states(cluster, "1") == ["at_risk"]
    cluster.send(*cluster.server.resume("1"))
    cluster.at(1_100)
    assert states(cluster, "1") == ["at_risk"]
