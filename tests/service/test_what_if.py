"""What-if: replaced jobs, windows of starts, and the smallest changes of a request."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.model import Chunk, Never, Place, Request, StartKnown, WaitingFor
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.explain import explain
from schedd.service.questions.plan_fork import PlanFork
from schedd.service.questions.smaller_requests import smaller_requests
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.wire import (
    AccountSet,
    Event,
    JobFacts,
    NodeChanged,
    NodeFacts,
    PolicyChanged,
    ServerChanged,
    ServerFacts,
)
from tests.property_examples import examples
from tests.service.planner_harness import GIB, T, event_id, job, node, planner
from tests.waits import WAIT_S


def job_facts(resources: dict[str, str]) -> JobFacts:
    return JobFacts(id="x", owner="u", queue="q", submitted=T, resources=resources)


def fork(loop: PlanLoop) -> PlanFork:
    return loop.fork().result(WAIT_S)


def answer_start(asked: WhatIfAnswer) -> int | None:
    return asked.answer.placement.start if isinstance(asked.answer, StartKnown) else None


def node_with_properties(name: str, cpus: int, *properties: str) -> NodeChanged:
    facts = NodeFacts(name=name, cpus=cpus, mem=8 * GIB, properties=properties)
    return NodeChanged(id=event_id(), time=T, node=facts)


def test_smallest_sufficient_walltime_and_feature_change_are_suggested() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        events: list[Event] = [
            node_with_properties("n1", 8, "fast"),
            node_with_properties("n2", 8),
            job("1", nodes="n1:ppn=4", walltime="1000"),
        ]
        # Planned on n1 from T + 1000 on: what starts before must be over by then.
        loop.submit([*events, job("3", nodes="n1:ppn=8", walltime="500")]).result(WAIT_S)
        wanted = job_facts({"nodes": "1:ppn=4:fast", "walltime": "01:00:00"})
        asked = fork(loop).what_if(wanted, T, changes=True)
        found = {one.change: one for one in asked.changes}
    assert (found["walltime"].value, found["walltime"].enough) == (1000, "00:16:40")
    assert (found["feature"].asked, found["feature"].enough, found["feature"].value) == ("fast", "", None)
    assert set(found) == {"walltime", "feature"}


def test_a_request_for_offline_parts_of_a_node_would_wait() -> None:
    facts = NodeFacts(name="n1", cpus=4, unusable={"cpus": 4})
    with planner(publish_starts=False) as loop:
        loop.submit([NodeChanged(id=event_id(), time=T, node=facts)]).result(WAIT_S)
        waiting = fork(loop).what_if(job_facts({"nodes": "1:ppn=8"}), T).answer
        never = fork(loop).what_if(job_facts({"nodes": "1:ppn=9"}), T).answer
    assert isinstance(waiting, WaitingFor)
    assert isinstance(never, Never)


def test_openpbs_requests_are_answered_as_the_adapter_reports_those_of_jobs() -> None:
    hosts = [
        NodeFacts(
            name=name,
            cpus=8,
            gpus=4,
            properties=("gpu_type=a100", "gpu_type=v100", "color=blue"),
            resources={
                "own_vnode": 2,
                "gpus_of_gpu_type_a100": 1,
                "gpus_of_gpu_type_v100": 3,
                "cpus_of_color_blue": 2,
            },
        )
        for name in ("n1", "n2")
    ]

    def answer(loop: PlanLoop, select: str, place: str = "free") -> type:
        facts = replace(job_facts({"select": select, "place": place, "walltime": "60"}), family="openpbs")
        return type(fork(loop).what_if(facts, T).answer)

    with planner(publish_starts=False) as loop:
        server = ServerChanged(id=event_id(), time=T, server=ServerFacts(family="openpbs"))
        events = [NodeChanged(id=event_id(), time=T, node=one) for one in hosts]
        loop.submit([server, *events]).result(WAIT_S)
        assert answer(loop, "3:ncpus=1", "scatter") is Never
        assert answer(loop, "3:ncpus=1", "vscatter") is StartKnown
        assert answer(loop, "5:ncpus=1", "vscatter") is Never
        assert answer(loop, "1:ncpus=1:ngpus=3:gpu_type=v100") is StartKnown
        assert answer(loop, "1:ncpus=1:ngpus=2:gpu_type=a100") is Never
        assert answer(loop, "4:ncpus=1:color=blue") is StartKnown
        assert answer(loop, "5:ncpus=1:color=blue") is Never
        wanted = {"select": "1:ncpus=3:color=blue", "place": "free", "walltime": "60"}
        facts = replace(job_facts(wanted), family="openpbs")
        asked = fork(loop).what_if(facts, T, changes=True)
        assert asked.answer == Never("3 cpus on a node with color=blue; the largest has 2")
        found = asked.changes
        assert [(one.change, one.enough) for one in found] == [("cpus", "2"), ("feature", "")]
        assert asked.request == "1 x (3 cpus on color=blue); free; 00:01:00", "without names of the adapter"


def test_smaller_memory_cpus_and_nodes_are_each_suggested() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1", 8), node("n2", 8), job("1", nodes="n2:ppn=5", mem="3gb")]).result(WAIT_S)
        asked = fork(loop).what_if(
            job_facts({"nodes": "2:ppn=4", "mem": "4gb", "walltime": "60"}), T, changes=True
        )
        assert [(one.change, one.asked, one.enough) for one in asked.changes] == [
            ("cpus", "4", "3"),
            ("nodes", "2", "1"),
        ]
        asked = fork(loop).what_if(
            job_facts({"nodes": "2:ppn=2", "mem": "14gb", "walltime": "60"}), T, changes=True
        )
        assert [(one.change, one.asked, one.enough) for one in asked.changes] == [
            ("mem", "7gb", "5gb"),
            ("nodes", "2", "1"),
        ]
        # What starts at once needs no change; what never can may need one.
        assert fork(loop).what_if(job_facts({"nodes": "1:ppn=2"}), T, changes=True).changes == ()
        never = fork(loop).what_if(job_facts({"nodes": "1:ppn=99"}), T, changes=True)
        assert [(one.change, one.enough) for one in never.changes] == [("cpus", "8")]
        never = fork(loop).what_if(job_facts({"nodes": "1:ppn=2:gpus=2"}), T, changes=True)
        assert [(one.change, one.asked, one.enough) for one in never.changes] == [("gpus", "2", "0")]
        # Units that may share a node are no nodes.
        never = fork(loop).what_if(job_facts({"procs": "99"}), T, changes=True)
        assert [(one.change, one.asked, one.enough) for one in never.changes] == [("units", "99", "11")]


FEW = st.integers(0, 8)


@settings(max_examples=examples(200))
@given(st.integers(1, 6), st.integers(1, 6), FEW, FEW, st.integers(1, 8), st.tuples(FEW, FEW, FEW, FEW, FEW))
def test_smaller_requests_are_maximal(
    count: int, cpus: int, mem: int, gpus: int, walltime: int, most: tuple[int, int, int, int, int]
) -> None:
    parts = (("gpus_of_gpu_type_v100", gpus),) if gpus else ()
    request = Request((Chunk(count, cpus=cpus, mem=mem * 1024, gpus=gpus, resources=parts),), Place.SCATTER)

    def start(asked: Request, seconds: int) -> int:
        chunk = asked.chunks[0]
        assert not parts or chunk.resources == (("gpus_of_gpu_type_v100", chunk.gpus),)
        wanted = (seconds, chunk.cpus, chunk.mem // 1024, chunk.count, chunk.gpus)
        return sum(wanted) if all(n <= limit for n, limit in zip(wanted, most, strict=True)) else -1

    changes = smaller_requests(request, walltime, start)
    found: dict[str, int | None] = {one.change: one.value for one in changes}
    asked = (walltime, cpus, mem, count, gpus)
    kinds = [("walltime", 1, 1), ("cpus", 1, 1), ("mem", 1024, 1), ("nodes", 1, 1), ("gpus", 1, 0)]
    for i, (change, unit, least) in enumerate(kinds):
        others = all(n <= limit for k, (n, limit) in enumerate(zip(asked, most, strict=True)) if k != i)
        nearest = min(asked[i] - 1, most[i])
        assert found.get(change) == (nearest * unit if others and nearest >= least else None), change
    for one, start_then in ((one, sum(asked)) for one in changes):
        i = [change for change, _, _ in kinds].index(one.change)
        assert one.planned_start == start_then - asked[i] + (one.value or 0) // (1024 if i == 2 else 1)


def test_hypothetical_change_replaces_the_queued_job() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1"), job("1", walltime="600"), job("2"), job("3")]).result(WAIT_S)
        copy = fork(loop)
        second = copy.published.ids["2"].facts
        assert answer_start(copy.what_if(second, T)) == T + 600 + 2 * 3600
        assert answer_start(copy.what_if(second, T, instead_of="2")) == T + 600
        assert answer_start(copy.what_if(copy.published.ids["3"].facts, T, instead_of="3")) == T + 4200
        assert answer_start(copy.what_if(second, T)) == T + 600 + 2 * 3600


def test_windows_cover_all_possible_starts() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1", 8), job("1", nodes="1:ppn=6", walltime="600")]).result(WAIT_S)
        loop.submit([job("2", nodes="1:ppn=8", walltime="100")]).result(WAIT_S)
        asked = fork(loop).what_if(job_facts({"nodes": "1:ppn=2", "walltime": "200"}), T, most_windows=2)
    assert [(one.first - T) for one in asked.windows] == [0, 700]
    assert asked.windows[0].last == T + 400
    assert asked.request == "1 x (2 cpus); free; 00:03:20"


def test_limits_apply_and_smaller_requests_are_suggested() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        limited = ServerFacts(limits={"max_run_res.ncpus": "[u:PBS_GENERIC=6]"})
        change = ServerChanged(id=event_id(), time=T, server=limited)
        loop.submit([node("n1", 16), change, job("1", user="u")]).result(WAIT_S)
        owned = replace(job_facts({"nodes": "1:ppn=4", "walltime": "60"}), owner="u@login")
        asked = fork(loop).what_if(owned, T, changes=True, most_windows=1)
        assert answer_start(asked) == asked.windows[0].first == T + 3600
        assert [(one.change, one.enough) for one in asked.changes] == [("cpus", "2")]
        never = fork(loop).what_if(replace(owned, resources={"nodes": "1:ppn=8"}), T, changes=True)
        assert isinstance(never.answer, WaitingFor)
        assert never.answer.kind == "limit"
        assert [(one.change, one.enough) for one in never.changes] == [("cpus", "2")]


def test_site_placement_is_used_and_explained() -> None:
    site = {
        "placement": "best_gap",
        "speeds": {"fast": 3.0},
        "criteria": {"wait": 1.0, "weighted_utilisation": 13.0},
    }
    with planner(publish_starts=False, end_allowance=0) as loop:
        policy = PolicyChanged(id=event_id(), time=T, version=1, site=site, by="root")
        events: list[Event] = [policy, node_with_properties("n1", 4), node_with_properties("n2", 4, "fast")]
        events += [job("1", nodes="n2:ppn=4", walltime="100"), job("2", nodes="n1:ppn=4", walltime="50")]
        loop.submit(events).result(WAIT_S)
        asked = fork(loop).what_if(job_facts({"nodes": "1:ppn=4", "walltime": "100"}), T)
        assert isinstance(asked.answer, StartKnown)
        assert answer_start(asked) == T + 100
        assert [share.node for share in asked.answer.placement.shares] == ["n2"]
        loop.submit([job("3", nodes="1:ppn=4", walltime="100")]).result(WAIT_S)
        found = explain(fork(loop), "3", T)
    assert found is not None
    assert found.planned_start == T + 100
    assert found.why.startswith(
        "it could start sooner, but nodes of speed 3 are worth more by the site's criteria"
    )


def test_lost_deadline_holds_a_job_under_a_queue_policy() -> None:
    site = {"priority": {"deadline_lost": "hold"}}
    for policy in ("conservative", "fcfs"):
        with planner(publish_starts=False, end_allowance=0, site=site, policy=policy) as loop:
            late = job("1", nodes="1:ppn=4", walltime="100", **{"x.deadline": str(T + 99)})
            loop.submit([node("n1", 8), late]).result(WAIT_S)
            found = explain(fork(loop), "1", T)
        assert found is not None
        assert [one.kind for one in found.blockers] == ["deadline"]


def test_under_a_queue_policy_the_policy_hides_no_other_reason() -> None:
    site = {
        "partitions": {"sets": {"left": {"nodes": ["n1"]}}, "default": ["left"]},
        "limits": [{"what": "cpus", "amount": 6}, {"counts": "used", "what": "walltime", "amount": 5000}],
        "accounts": {"otherwise": "common"},
    }
    with planner(publish_starts=False, end_allowance=0, site=site, policy="easy") as loop:
        made = AccountSet(id=event_id(), time=T, name="common", amount=7000)
        loop.submit([node("n1", 8), node("n2", 8), made]).result(WAIT_S)
        asked = fork(loop)
        answers = [
            asked.what_if(job_facts({"nodes": nodes, "walltime": walltime}), T).answer
            for nodes, walltime in (
                ("1:ppn=4", "1000"),
                ("2:ppn=2", "1000"),
                ("1:ppn=8", "100"),
                ("1:ppn=1", "6000"),
                ("1:ppn=4", "2000"),
                ("1:ppn=8", "2000"),
            )
        ]
    policy, never, cores, use, budget, both = answers
    assert isinstance(never, Never)
    assert "partition left" in never.requirement
    kinds = [one.kind for one in (policy, cores, use, budget, both) if isinstance(one, WaitingFor)]
    assert kinds == ["policy", "limit", "limit", "budget", "limit"]


def test_job_waits_for_an_insufficient_account() -> None:
    site = {"accounts": {"otherwise": "common"}}
    with planner(publish_starts=False, end_allowance=0, site=site) as loop:
        made = AccountSet(id=event_id(), time=T, name="common", amount=4 * 3600 + 400)
        loop.submit([node("n1", 8), made]).result(WAIT_S)
        small = {"nodes": "1:ppn=4", "walltime": "01:00:00"}
        assert answer_start(fork(loop).what_if(job_facts(small), T)) == T
        loop.submit([job("1", nodes="1:ppn=4", walltime="3600")]).result(WAIT_S)
        answer = fork(loop).what_if(job_facts(small), T).answer
        assert isinstance(answer, WaitingFor)
        assert (answer.kind, answer.what) == (
            "budget",
            "account common: 0.11 core-hours are left, and it may take 4.00 core-hours",
        )
        less = fork(loop).what_if(job_facts({"nodes": "1:ppn=4", "walltime": "100"}), T)
        assert answer_start(less) == T, "for this there is enough"


def test_amount_held_for_the_replaced_job_is_available() -> None:
    site = {"accounts": {"otherwise": "common"}}
    with planner(publish_starts=False, end_allowance=0, site=site) as loop:
        made = AccountSet(id=event_id(), time=T, name="common", amount=5 * 3600)
        ahead = job("1", nodes="1:ppn=8", walltime="1000")
        loop.submit([node("n1", 8), ahead]).result(WAIT_S)
        loop.submit([made]).result(WAIT_S)
        loop.submit([job("2", nodes="1:ppn=2", walltime="3600")]).result(WAIT_S)
        copy = fork(loop)
        wanted = job_facts({"nodes": "1:ppn=2", "walltime": "01:20:00"})
        assert isinstance(copy.what_if(wanted, T).answer, WaitingFor)
        assert answer_start(copy.what_if(wanted, T, instead_of="2")) == T + 1000


def test_many_copies_are_placed_singly_without_changing_the_plan() -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        events: list[Event] = [node("n1", 8), job("1", nodes="1:ppn=4", walltime="1000")]
        loop.submit(events).result(WAIT_S)
        copy = fork(loop)
        wanted = job_facts({"nodes": "1:ppn=2", "walltime": "100"})
        asked = copy.what_if(wanted, T, tasks=(1, 2, 3, 20, 21, 24))
        # Two at a time next to the other job until 1000, then four.
        assert [(one.tasks, one.end - T) for one in asked.many] == [
            (1, 100),
            (2, 100),
            (3, 200),
            (20, 1000),
            (21, 1100),
            (24, 1100),
        ]
        assert answer_start(copy.what_if(wanted, T)) == T
        assert copy.what_if(job_facts({"nodes": "1:ppn=16"}), T, tasks=(5,)).many == ()


def test_task_counts_beyond_the_work_limit_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner(publish_starts=False, end_allowance=0) as loop:
        loop.submit([node("n1", 2)]).result(WAIT_S)
        monkeypatch.setattr("schedd.service.questions.open_questions.QUESTION_WORK", 2_000)
        asked = fork(loop).what_if(job_facts({"nodes": "1:ppn=2", "walltime": "100"}), T, tasks=(1, 5, 5000))
        assert [(one.tasks, one.end - T) for one in asked.many] == [(1, 100), (5, 500)]
