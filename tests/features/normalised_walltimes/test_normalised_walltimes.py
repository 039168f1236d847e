"""Walltimes for a reference speed, scaled to the nodes of each job."""

import random
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schedd.api.request_bodies import WhatIfRequest
from schedd.api.what_if_fields import render_fields
from schedd.dialect.walltime_scale import SCALE, WalltimeScale
from schedd.engine import Engine
from schedd.engine.facts.job_requests import BOOKING
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.normalised_walltimes.state import walltime_state
from schedd.features.prediction.state import find_predictor, run_time_predictions
from schedd.model import FOREVER, Never, StartKnown
from schedd.service.questions.expectations import UNKNOWN
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.service.settings.site import SiteSettings
from schedd.wire import ExtendRun, JobFacts, PolicyChanged, Run
from tests.engine.cluster import Cluster, T
from tests.engine.policy_previews import previewed_moves
from tests.property_examples import examples

SPEEDS = {"n1": 0.5, "n2": 2.0, "n3": 1.0}
SITE = {"speeds": SPEEDS, "normalised_walltimes": {"speed": 1.0}}


def cluster_of(nodes: int = 3, **settings: Any) -> Cluster:
    return Cluster(nodes, **{"site": SITE, **settings})


def runs_of(cluster: Cluster, job: str) -> list[Run]:
    return [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == job]


def set_walltime(cluster: Cluster, run: Run) -> None:
    """The adapter sets the walltime of a run decision."""
    resources = {**cluster.server.jobs[run.job_id].resources, "walltime": str(run.walltime)}
    cluster.server.jobs[run.job_id] = replace(cluster.server.jobs[run.job_id], resources=resources)


def question(cluster: Cluster, **more: Any) -> tuple[PlanFork, JobFacts]:
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))
    resources = {"nodes": "1:ppn=4", "walltime": "400"}
    facts = JobFacts(id="q", owner="bob@login", queue="batch", submitted=T, resources=resources)
    return fork, replace(facts, **more)


# ---- plan and start -------------------------------------------------------------------------------


def test_jobs_are_planned_with_the_walltime_of_their_nodes_and_the_server_gets_it_at_the_start() -> None:
    cluster = cluster_of()
    cluster.reserve("r", "n2", start=250, end=100_000)
    for job in ("1", "2", "3"):
        cluster.submit(job, walltime=400, runtime=100_000)
    ends = {job: (run.shares[0].node, run.walltime) for job in "123" for run in runs_of(cluster, job)}
    assert ends == {"1": ("n2", 200), "2": ("n3", 400), "3": ("n1", 800)}
    assert [cluster.view(job).planned_end for job in "123"] == [T + 200, T + 400, T + 800]
    assert cluster.view("3").notes == (
        "its walltime of 00:06:40 is for nodes of speed 1: it is 00:13:20 on nodes of speed 0.5",
    )
    assert cluster.record("3").facts.resources["walltime"] == "00:13:20", "as the server has it now"


def test_a_job_waits_for_a_fast_node_if_it_ends_there_earlier() -> None:
    cluster = cluster_of(2)
    cluster.submit("1", walltime=400)
    cluster.submit("2", walltime=400)
    assert cluster.view("2").planned_start == T + 200
    assert cluster.view("2").planned_end == T + 400, "on the slow node it would run from 0 to 800"
    assert cluster.view("2").planned_nodes[0].node == "n2"


def test_the_slowest_node_of_a_job_decides() -> None:
    cluster = cluster_of()
    cluster.submit("1", nodes="3:ppn=4", walltime=100)
    assert runs_of(cluster, "1")[0].walltime == 200


def test_queues_have_other_references_or_none() -> None:
    site = {**SITE, "normalised_walltimes": {"queues": {"batch": 2.0}}}
    cluster = Cluster(3, site=site)
    cluster.submit("1", nodes="3:ppn=1", walltime=100)
    cluster.submit("2", nodes="3:ppn=1", walltime=100, queue="other")
    assert [runs_of(cluster, job)[0].walltime for job in "12"] == [400, None]


def test_a_job_that_a_faster_node_can_take_at_its_start_gets_the_shorter_walltime() -> None:
    cluster = cluster_of(2)
    cluster.node("n2", state="down")
    cluster.obeys = False
    cluster.submit("1", nodes="1:ppn=4", walltime=400)
    assert runs_of(cluster, "1")[0].walltime == 800
    cluster = cluster_of(2)
    cluster.submit("0", walltime=400, runtime=1000)
    cluster.submit("1", nodes="2:ppn=4", walltime=400)
    assert cluster.record("1").understood.scale == WalltimeScale(400, 1.0, 0.5)


def test_a_requeued_job_is_scaled_from_the_walltime_that_its_owner_stated() -> None:
    cluster = cluster_of(1)
    cluster.obeys = False
    cluster.submit("1", walltime=400)
    run = runs_of(cluster, "1")[0]
    set_walltime(cluster, run)
    cluster.send(*cluster.server.run(replace(run, version=cluster.server.jobs["1"].version)))
    assert cluster.view("1").planned_end == T + 800
    cluster.at(100)
    cluster.send(*cluster.server.requeue("1"))
    assert cluster.record("1").understood.scale == WalltimeScale(400, 1.0, 0.5)
    assert cluster.record("1").facts.resources["walltime"] == "800", "the server has no other record"
    assert runs_of(cluster, "1")[-1].walltime == 800
    cluster.alter_request("1", walltime="500")
    assert cluster.record("1").understood.walltime in (800, 1000)


def test_an_extended_run_that_is_requeued_is_scaled_from_the_walltime_that_its_owner_stated() -> None:
    extensions = {"jobs": {"queues": ["batch"]}, "step": 300, "before": 100}
    cluster = cluster_of(1, site={**SITE, "walltime_extensions": extensions})
    cluster.submit("1", walltime=400, runtime=10_000)
    set_walltime(cluster, runs_of(cluster, "1")[0])
    cluster.at(700)
    (order,) = [one for one in cluster.decisions if isinstance(one, ExtendRun)]
    assert order.walltime == 1_100
    cluster.alter_request("1", walltime="1100")
    assert cluster.view("1").planned_end == T + 1_100
    restored = Engine.restore(cluster.engine.checkpoint(), cluster.engine.state.settings)
    assert walltime_state(restored.state).given == {"1": (400, 800, 1_100)}
    cluster.obeys = False
    cluster.send(*cluster.server.requeue("1"))
    assert cluster.record("1").understood.scale == WalltimeScale(400, 1.0, 0.5)
    assert runs_of(cluster, "1")[-1].walltime == 800


def test_an_adapter_that_dies_after_setting_the_walltime_changes_nothing() -> None:
    cluster = cluster_of(1)
    cluster.obeys = False
    cluster.submit("1", walltime=400)
    run = runs_of(cluster, "1")[0]
    cluster.send(*cluster.server.alter("1", resources={"nodes": "1:ppn=4", "walltime": "800"}))
    cluster.send(*cluster.server.refuse(run, 0, "the adapter was restarted"))
    cluster.at(30)
    again = runs_of(cluster, "1")[-1]
    assert again.id != run.id
    assert again.walltime == 800
    restored = Engine.restore(cluster.engine.checkpoint(), cluster.engine.state.settings)
    assert walltime_state(restored.state).given == {"1": (400, 800)}
    assert restored.state.read_request(cluster.record("1").facts).walltime == 800


def test_the_walltime_of_a_running_job_is_what_its_server_reports() -> None:
    cluster = cluster_of(1)
    cluster.submit("1", walltime=400, runtime=10_000)
    cluster.alter_request("1", walltime="1000")
    assert cluster.view("1").planned_end == T + 1000
    assert cluster.view("1").notes == ()


def test_a_promise_holds_when_the_speed_is_chosen_again() -> None:
    cluster = cluster_of(2, slack="0")
    cluster.submit("1", walltime=400, runtime=200)
    cluster.submit("2", nodes="1:ppn=4", walltime=4000)
    promised = cluster.view("2").promised_start
    for job in range(3, 9):
        cluster.submit(str(job), walltime=100 * job, runtime=30)
    cluster.at(3000)
    assert promised is not None
    assert runs_of(cluster, "2")[0].time <= promised


# ---- jobs with a walltime that cannot be set ------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "job", "resources"),
    [
        ("torque", "1", {"minwclimit": "100"}),
        ("openpbs", "1", {"min_walltime": "100", "max_walltime": "400"}),
        ("openpbs", "1[2].server", {}),
    ],
)
def test_a_walltime_that_cannot_be_set_holds_on_nodes_of_the_reference_speed(
    family: str, job: str, resources: dict[str, str]
) -> None:
    cluster = cluster_of(1)
    cluster.obeys = False
    chunk = {"nodes": "1:ppn=4"} if family == "torque" else {"select": "1:ncpus=4", "nodes": ""}
    cluster.submit(job, walltime=400, family=family, resources={**chunk, **resources})
    answer = cluster.record(job).answer
    assert isinstance(answer, Never), "the only node is slower"
    cluster.node("n3")
    run = runs_of(cluster, job)[0]
    assert run.shares[0].node == "n3"
    assert run.walltime in (None, 400)
    assert "its walltime is not scaled to its nodes, which have a speed of 1 or more" in " ".join(
        cluster.view(job).notes
    )


# ---- questions --------------------------------------------------------------------------------------


def test_a_what_if_judges_a_deadline_by_the_walltime_on_its_nodes() -> None:
    """On the fast node it ends after 200 s, on the slowest after 800 s."""
    cluster = cluster_of()
    resources = {"nodes": "1:ppn=4", "walltime": "400", "deadline": str(T + 300)}
    fork, facts = question(cluster, resources=resources)
    found = fork.what_if(facts, T)
    assert found.walltime == 200
    fields = render_fields(fork, facts, found, FOREVER, UNKNOWN, current=None, start_by=None, now=T)
    assert (fields["deadline_state"], fields["promised_start"]) == ("accepted", T + 40)


def test_a_what_if_tries_nodes_of_each_speed_and_says_both_walltimes() -> None:
    cluster = cluster_of()
    cluster.submit("1", walltime=400, runtime=1000)
    cluster.submit("2", walltime=200, runtime=1000)
    fork, facts = question(cluster)
    found = fork.what_if(facts, T, changes=True)
    assert isinstance(found.answer, StartKnown)
    assert (found.answer.placement.start, found.answer.placement.end) == (T + 200, T + 400)
    assert found.walltime == 200
    assert found.request.endswith("00:06:40"), "as it is to be requested"
    assert "is for nodes of speed 1: it is 00:03:20 on nodes of speed 2" in found.notes[-1]
    cluster.submit("q", walltime=400)
    assert cluster.view("q").planned_start == T + 200, "as it was answered"
    fork, _ = question(cluster)
    record = cluster.record("q")
    assert fork.is_understood_as(record.facts, record.understood)


def test_shorter_walltimes_in_answers_are_those_to_request() -> None:
    cluster = cluster_of(1)
    cluster.reserve("r", "n1", start=300, end=5000)
    fork, facts = question(cluster)
    found = fork.what_if(facts, T, changes=True)
    assert [(one.change, one.asked, one.value) for one in found.changes if one.change == "walltime"] == [
        ("walltime", "00:06:40", 150)
    ]


def test_bookings_keep_their_length_on_nodes_of_the_reference_speed() -> None:
    cluster = cluster_of()
    fork, facts = question(cluster, id=f"{BOOKING}what-if", queue="")
    found = fork.what_if(facts, T)
    assert isinstance(found.answer, StartKnown)
    assert found.walltime == 400
    assert set(found.answer.placement.nodes) <= {"n2", "n3"}


def test_a_question_about_cores_to_book_is_about_no_job() -> None:
    body = WhatIfRequest.model_validate({"request": "nodes=1:ppn=4,walltime=400", "for_booking": True})
    assert body.facts(T, None).id.startswith(BOOKING)
    with pytest.raises(ValidationError, match="for_booking is about no job"):
        WhatIfRequest.model_validate({"job": "1", "for_booking": True})


def test_equal_tasks_end_by_the_walltimes_of_their_nodes() -> None:
    fork, facts = question(cluster_of())
    ends = [one.end - T for one in fork.what_if(facts, T, tasks=(1, 2, 3, 4)).many]
    assert ends == [200, 400, 400, 600]


@pytest.mark.parametrize("seed", range(16))
def test_equal_tasks_end_as_the_same_jobs_that_are_submitted_together(seed: int) -> None:
    draw = random.Random(seed)
    criteria = draw.choice([{"weighted_utilisation": 1.0}, {"weighted_utilisation": 3.0, "response": 1.0}])
    site = {
        "placement": draw.choice(["best_gap", "best_gap_edf"]),
        "speeds": {"n1": draw.choice([0.5, 1.0]), "n2": 2.0, "n3": draw.choice([1.0, 3.0])},
        "criteria": criteria,
        "normalised_walltimes": {"speed": 1.0},
    }
    cluster = Cluster(3, site=site)
    for number in range(draw.randrange(6)):
        nodes = f"{draw.choice([1, 2])}:ppn={draw.choice([1, 2, 4])}"
        cluster.submit(str(number), nodes, draw.choice([100, 300, 1_000]), runtime=5_000)
    resources = {"nodes": f"{draw.choice([1, 2])}:ppn={draw.choice([1, 4])}", "walltime": "100"}
    if draw.random() < 0.3:
        resources["deadline"] = str(draw.choice([300, 3_000]))
    fork, facts = question(cluster, resources=resources)
    found = [one.end for one in fork.what_if(facts, T, tasks=(1, 2, 3, 4)).many]
    cluster.obeys = False
    jobs = [replace(facts, id=f"task{number}") for number in range(4)]
    cluster.send(*(event for job in jobs for event in cluster.server.submit(job, 100)))
    ends = [cluster.view(job.id).planned_end or 0 for job in jobs]
    assert found == list(accumulate(ends, max))


# ---- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "place", "words"),
    [
        ({"normalised_walltimes": {}}, "", "it has no effect: set speed, or a speed in queues"),
        ({"normalised_walltimes": {"queues": {"a": 0}}}, "", "it has no effect"),
        ({"normalised_walltimes": {"speed": 1}}, "", "it needs the speeds of nodes: set the table speeds"),
        (
            {"normalised_walltimes": {"speed": 3}, "speeds": {"n1": 2}},
            "speed",
            "no node has a speed of 3: in the table speeds the fastest has 2",
        ),
        (
            {"normalised_walltimes": {"queues": {"a": 4}}, "speeds": {"n1": 2}},
            "a",
            "no node has a speed of 4",
        ),
        ({"normalised_walltimes": {"speed": 0}, "speeds": {"n1": 2}}, "speed", "greater than 0"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(site: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as error:
        SiteSettings.model_validate(site)
    [problem] = error.value.errors()
    conflict = problem.get("ctx", {}).get("error")
    assert place in (*problem["loc"], *getattr(conflict, "place", ()), "")


def test_the_option_can_be_switched_on_and_off() -> None:
    cluster = cluster_of(2, site={"speeds": SPEEDS})
    cluster.submit("0", nodes="2:ppn=4", walltime=100)
    cluster.submit("1", nodes="2:ppn=4", walltime=400)
    assert cluster.record("1").understood.walltime == 400

    def change(version: int, site: dict[str, Any]) -> None:
        event = PolicyChanged(id=f"p{version}", time=cluster.server.now, version=version, site=site, by="a")
        cluster.send(event)

    change(1, SITE)
    assert cluster.record("1").understood.scale == WalltimeScale(400, 1.0, 0.5)
    change(2, {"speeds": SPEEDS})
    assert cluster.record("1").understood.walltime == 400
    assert cluster.record("1").understood.scale is None


# ---- predictions ------------------------------------------------------------------------------------


def test_run_times_are_learned_and_predicted_as_work_within_the_scaled_walltime() -> None:
    cluster = cluster_of(2, predict=True)
    for job in range(12):
        cluster.submit(f"a{job}", walltime=400, runtime=100)  # on the node of speed 2: 200 s of speed 1
        cluster.at(200 * (job + 1))
    cluster.submit("x", nodes="2:ppn=4", walltime=400)
    cluster.submit("y", walltime=400)
    state = cluster.engine.state
    predictor = find_predictor(state)
    assert predictor is not None
    work = predictor.learner.prediction("y")
    assert work.work_limit == 400
    assert work.p50 == pytest.approx(200, rel=0.2)
    find = run_time_predictions(state)
    assert find is not None
    predicted = find("y")
    assert predicted is not None
    assert predicted.p50 == pytest.approx(100, rel=0.2)


# ---- properties -----------------------------------------------------------------------------------

_JOB = st.tuples(
    st.sampled_from(["1:ppn=4", "1:ppn=2", "2:ppn=3", "3:ppn=1", "1:ppn=1"]),
    st.integers(1, 2000),  # walltime
    st.floats(0.01, 1.2),  # share of the walltime that the job runs
    st.integers(0, 400),  # time until the next job
)


@settings(max_examples=examples(200), deadline=None)
@given(
    speeds=st.lists(st.sampled_from([0.25, 0.4, 0.5, 0.75, 1.0, 1.3, 2.0, 3.0, 4.0]), min_size=2, max_size=9),
    reference=st.sampled_from([0.25, 0.5, 1.0]),
    jobs=st.lists(_JOB, max_size=12),
    backfill=st.sampled_from(["oldest", "shortest"]),
)
def test_no_job_is_planned_shorter_than_its_scaled_walltime(
    speeds: list[float], reference: float, jobs: list[tuple[str, int, float, int]], backfill: str
) -> None:
    by_node = {f"n{i}": speed for i, speed in enumerate(speeds, 1)}
    site = {"speeds": by_node, "normalised_walltimes": {"speed": reference}}
    cluster = Cluster(len(speeds), site=site, backfill=backfill)
    state = cluster.engine.state
    moment = 0
    for number, (nodes, walltime, share, wait) in enumerate(jobs):
        if int(nodes[0]) > len(speeds):
            continue
        job = str(number)
        cluster.submit(job, nodes=nodes, walltime=walltime, runtime=max(1, round(walltime * share)))
        moment += wait
        cluster.at(moment)
        for record in state.records.values():
            slot, stated = record.slot, jobs[int(record.id)][1]
            if slot < 0 or state.plan.start(slot) < 0:
                continue
            names = [state.plan.node_names[take.row] for take in state.plan.takes(slot)]
            needed = stated * reference / min(by_node[name] for name in names)
            lasts = state.plan.end(slot) - state.plan.start(slot)
            assert lasts >= needed - 1e-6, f"{record.id} on {names}"
            if record.facts.state == "Q":
                resources = record.facts.resources
                assert SCALE not in resources
                assert resources["walltime"] == str(stated)
    for decision in (one for one in cluster.decisions if isinstance(one, Run)):
        slowest = min(by_node[share.node] for share in decision.shares)
        stated = jobs[int(decision.job_id)][1]
        assert decision.walltime is not None
        assert decision.walltime >= stated * reference / slowest - 1e-6
        levels = len({1.0, *speeds})
        if levels <= 8:  # else neighbours are one group
            assert decision.walltime <= stated * reference / slowest + 1


def test_a_preview_of_normalised_walltimes_names_the_jobs_behind_longer_ones() -> None:
    cluster = Cluster(nodes=1, slack=1000, site={"speeds": {"n1": 0.5}})
    for job in "123":
        cluster.submit(job)
    policy = {"speeds": {"n1": 0.5}, "normalised_walltimes": {"speed": 1.0}}
    assert any(one.after == T + 300 for one in previewed_moves(cluster, policy).values())
    assert {cluster.start(job) for job in "23"} == {100, 300}
