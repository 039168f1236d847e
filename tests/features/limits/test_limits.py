"""Limits on concurrent use, kept at every moment of the plan."""

from random import Random

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import JobFacts, JobStarted, QueueFacts, ServerFacts, ShareFacts
from tests.engine.cluster import Cluster, T


def limit_server(cluster: Cluster, **limits: str) -> None:
    cluster.send(
        *cluster.server.change_server(
            ServerFacts(limits={k.replace("__", "."): v for k, v in limits.items()})
        )
    )


def limit_queue(cluster: Cluster, queue: str, **limits: str) -> None:
    facts = QueueFacts(name=queue, limits={k.replace("__", "."): v for k, v in limits.items()})
    cluster.send(*cluster.server.change_queue(facts))


def starts(cluster: Cluster, *jobs: str) -> list[int | None]:
    return [cluster.start(job) for job in jobs]


def test_no_more_jobs_of_a_user_are_planned_at_once_than_may_run() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, max_user_run="2")
    for job in "12345":
        cluster.submit(job)
    cluster.submit("6", owner="bob@login")
    assert starts(cluster, *"12345") == [0, 0, 100, 100, 200]
    assert cluster.start("6") == 0
    assert "not sooner, since at most 2 jobs of user ann at once" in cluster.view("3").why
    assert cluster.view("3").limited_by == ("at most 2 jobs of user ann at once",)
    assert cluster.view("6").limited_by == ()


def test_an_early_end_lets_the_next_job_of_the_user_start() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, max_user_run="1")
    cluster.submit("1", runtime=30)
    cluster.submit("2")
    cluster.submit("3")
    assert starts(cluster, "2", "3") == [100, 200]
    cluster.at(30)
    assert (cluster.runs("2"), cluster.start("3")) == ([30], 130)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_running": "1"}, [0, 100, 200, 300]),
        ({"max_group_run": "1"}, [0, 100, 0, 0]),
        ({"max_run": "[o:PBS_ALL=3],[u:PBS_GENERIC=1]"}, [0, 100, 0, 100]),
        ({"max_run": "[u:PBS_GENERIC=1],[u:ann=2]"}, [0, 0, 0, 100]),
        ({"max_run": "[g:physics=1]"}, [0, 100, 0, 0]),
        ({"max_run": "[p:PBS_GENERIC=1]"}, [0, 0, 0, 100]),
        ({"max_run_res__ncpus": "[u:PBS_GENERIC=4]"}, [0, 100, 0, 100]),
        ({"max_run_res__mem": "[u:ann=1gb]"}, [0, 100, 0, 0]),
        ({"max_user_res__ncpus": "7"}, [0, 100, 0, 100]),
        ({"max_run_soft": "[o:PBS_ALL=1]"}, [0, 0, 0, 0]),
        ({"max_user_queuable": "1"}, [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("where", ["server", "queue"])
def test_every_form_of_limit_holds_in_the_plan(
    limits: dict[str, str], expected: list[int], where: str
) -> None:
    cluster = Cluster(nodes=4)
    if where == "server":
        limit_server(cluster, **limits)
    else:
        limit_queue(cluster, "batch", **limits)
    memory = {"mem": "1gb"}
    cluster.submit("1", group="physics", project="p", resources=memory)
    cluster.submit("2", group="physics", project="q", resources=memory)
    cluster.submit("3", owner="bob@login", group="", project="r", resources=memory)
    cluster.submit("4", owner="bob@login", group="maths", project="r", resources=memory)
    assert starts(cluster, *"1234") == expected


def test_an_early_end_behind_a_long_queue_of_one_limit_costs_few_calls() -> None:
    """Each waiting job moves, and its search must not visit every interval that the others freed."""
    limit = {"limits": [{"what": "jobs", "who": "user", "amount": 8}]}
    cluster = Cluster(nodes=20, cpus=16, site=limit, validate=False)
    rng, events = Random(1), []
    for i in range(200):
        wanted = {
            "nodes": f"1:ppn={rng.randint(1, 8)}",
            "walltime": str(rng.choice([600, 1800, 3600, 7200])),
        }
        facts = JobFacts(id=f"{i}", owner="ann@x", queue="batch", submitted=T, resources=wanted)
        events += cluster.server.submit(facts, rng.randint(10, 600))
    cluster.send(*events)
    before, moved = cluster.engine.state.generation, cluster.engine.state.changes[-1].number
    cluster.server.now += min(
        cluster.server.runtime[job.id] for job in cluster.server.jobs.values() if job.state == "R"
    )
    cluster.send(*cluster.server.ends())
    moves = sum(c.slots.shape[0] for c in cluster.engine.state.changes if c.number > moved)
    assert moves > 150
    assert cluster.engine.state.generation - before <= 13


def test_a_limit_of_one_queue_leaves_others_alone() -> None:
    cluster = Cluster(nodes=4)
    cluster.send(*cluster.server.change_queue(QueueFacts(name="long")))
    limit_queue(cluster, "long", max_running="1")
    cluster.submit("1", queue="long")
    cluster.submit("2", queue="long")
    cluster.submit("3")
    assert starts(cluster, *"123") == [0, 100, 0]
    cluster.alter("2", queue="batch")
    assert cluster.start("2") == 0


def test_a_lowered_limit_moves_planned_jobs_and_breaks_promises_by_name() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, max_user_run="4")
    for job in "12345678":
        cluster.submit(job)
    assert starts(cluster, *"5678") == [100] * 4
    limit_server(cluster, max_user_run="2")
    # Four run already: that is the server's affair. Planned jobs keep to the limit.
    assert starts(cluster, *"5678") == [100, 100, 200, 200]
    assert cluster.breaches("5") == []
    assert cluster.at_risk("8") == Cause.QUEUE
    change = cluster.view("8").last_change
    assert change is not None
    assert (change.cause, change.words) == (
        Cause.QUEUE,
        "the server's limits were changed; that is later than its promise of 2023-11-14 22:15:00 UTC",
    )
    limit_server(cluster)
    assert starts(cluster, *"5678") == [100] * 4


def test_job_beyond_its_limit_waits_for_the_limit() -> None:
    cluster = Cluster(nodes=2, cpus=8)
    limit_queue(cluster, "batch", max_run_res__ncpus="[u:PBS_GENERIC=6]")
    cluster.submit("1", "1:ppn=8")
    view = cluster.view("1")
    assert (view.state, view.waiting_for) == ("waiting", "limit")
    limit = "at most 6 cpus of user ann in queue batch at once"
    assert view.why == f"waiting for {LIMIT_TO_BE_RAISED}: {limit}; it asks for 8 cpus"
    limit_queue(cluster, "batch", max_run_res__ncpus="[u:PBS_GENERIC=8]")
    assert cluster.start("1") == 0


def test_unreadable_limit_raises_an_alert() -> None:
    cluster = Cluster()
    limit_server(cluster, max_run="u:ann=3", max_user_run="many")
    assert [text.partition(": ")[2] for text in cluster.alerts("limit")] == [
        "max_run = u:ann=3",
        "max_user_run = many",
    ]


def test_jobs_started_by_hand_beyond_a_limit_make_planned_ones_wait() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, max_user_run="2")
    cluster.submit("1", "1:ppn=4", 1000)
    cluster.submit("2", "1:ppn=4", 500)
    cluster.submit("3", "1:ppn=4", 300)
    cluster.submit("4")
    assert starts(cluster, "3", "4") == [500, 800]
    event = JobStarted(id="x", time=T, job_id="4", shares=(ShareFacts("n4", 4),), by="root")
    cluster.server.start("4", event.shares)
    cluster.send(event)
    assert starts(cluster, "3", "4") == [500, 0]
    cluster.submit("5")
    assert cluster.start("5") == 800


def test_the_slot_limit_of_an_array_is_a_limit_and_no_hold() -> None:
    cluster = Cluster(nodes=4)
    for i in range(4):
        cluster.submit(f"9[{i}].s", array="9[].s", slot_limit=2)
    cluster.submit("10.s")
    assert starts(cluster, *(f"9[{i}].s" for i in range(4))) == [0, 0, 100, 100]
    assert cluster.start("10.s") == 0
    cluster.send(*cluster.server.hold("9[2].s", "l"))
    view = cluster.view("9[2].s")
    assert (view.state, view.planned_start) == ("planned", T + 100)
    assert view.limited_by == ("at most 2 jobs of array 9[].s at once",)
    assert cluster.promise("9[2].s") == 100
    cluster.at(100)
    assert cluster.runs("9[2].s") == []  # the server still holds it
    cluster.at(104)
    cluster.send(*cluster.server.release("9[2].s"))
    assert (cluster.runs("9[2].s"), cluster.breaches("9[2].s")) == ([104], [Cause.QUEUE])


def test_a_slot_limit_raised_on_the_way_lets_more_run() -> None:
    cluster = Cluster(nodes=4)
    for i in range(3):
        cluster.submit(f"9[{i}].s", array="9[].s", slot_limit=1)
    assert cluster.start("9[2].s") == 200
    for i in (1, 2):
        cluster.alter(f"9[{i}].s", slot_limit=3)
    assert starts(cluster, "9[1].s", "9[2].s") == [0, 0]


def test_limits_survive_a_checkpoint() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, max_user_run="1")
    cluster.submit("1")
    cluster.submit("2")
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.submit("3")
    assert cluster.start("3") == 200
    view = job_view(publish_snapshot(engine.state), "3")
    assert view is not None
    assert view.limited_by == ("at most 1 job of user ann at once",)


def test_unused_pools_are_dropped() -> None:
    cluster = Cluster(nodes=1)
    limit_server(cluster, max_user_run="1")
    for i in range(40):
        cluster.submit(str(i), walltime=1, owner=f"u{i}")
    assert len(cluster.engine.state.limits.pools) == 40
    rows = cluster.engine.state.plan.tables.rows.shape[0]
    cluster.at(1000)
    cluster.submit("x")
    assert list(cluster.engine.state.limits.pools) == ["jobs of user ann"]
    for i in range(40):
        cluster.submit(f"y{i}", walltime=1, owner=f"v{i}")
    assert cluster.engine.state.plan.tables.rows.shape[0] == rows


# ---- licences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{"matlab": "2"}, {"gres": "matlab:2"}, {"x.gres": "MATLAB+2"}, {"software": "matlab:2"}]
)
def test_a_floating_licence_is_never_over_used(asked: dict[str, str]) -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, resources_available__matlab="5")
    for job in "123":
        cluster.submit(job, resources=asked)
    cluster.submit("4")
    assert starts(cluster, *"1234") == [0, 0, 100, 0]
    assert cluster.view("3").limited_by == ("at most 5 matlab at once",)
    assert "not planned" not in cluster.view("3").why


def test_openpbs_jobs_request_licences_in_chunks() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, resources_available__matlab="3")
    for job in "12":
        facts = {"select": "2:ncpus=1:matlab=1", "matlab": "2", "walltime": "100"}
        cluster.send(
            *cluster.server.submit(
                JobFacts(id=job, owner="ann", queue="batch", submitted=T, family="openpbs", resources=facts),
                100,
            )
        )
    assert starts(cluster, *"12") == [0, 100]
    assert "not planned" not in cluster.view("2").why


def test_limits_of_single_requests_are_not_licences() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, resources_available__nodect="1", resources_available__arch="linux")
    cluster.submit("1")
    cluster.submit("2")
    assert starts(cluster, *"12") == [0, 0]
    assert cluster.alerts("limit") == []


def test_lost_licences_move_jobs_by_that_cause() -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, resources_available__matlab="3")
    cluster.submit("1", nodes="4:ppn=4")
    for job in "234":
        cluster.submit(job, resources={"matlab": "1"})
    assert starts(cluster, *"234") == [100, 100, 100]
    limit_server(cluster, resources_available__matlab="1")
    assert starts(cluster, *"234") == [100, 200, 300]
    assert cluster.at_risk("4") == Cause.LICENCE
    limit_server(cluster, resources_available__matlab="0")
    assert (
        cluster.view("2").why
        == f"waiting for {LIMIT_TO_BE_RAISED}: at most 0 matlab at once; it asks for 1 matlab"
    )


def test_limits_of_the_site_apply_in_addition_to_the_servers() -> None:
    site = {"limits": [{"what": "cpus", "who": "user", "amount": 8}, {"what": "matlab", "amount": 1}]}
    cluster = Cluster(nodes=4, site=site)
    limit_server(cluster, max_user_run="3")
    for job in "123":
        cluster.submit(job)
    cluster.submit("4", owner="bob", resources={"matlab": "1"})
    cluster.submit("5", owner="eve", resources={"matlab": "1"})
    assert starts(cluster, *"12345") == [0, 0, 100, 0, 100]


@pytest.mark.parametrize(
    ("family", "none", "some"),
    [
        ("torque", {"nodes": "1:ppn=2"}, {"nodes": "1:ppn=2", "mem": "4gb"}),
        ("openpbs", {"select": "1:ncpus=2"}, {"select": "1:ncpus=2:mem=4gb"}),
    ],
)
def test_memory_that_the_site_assumes_does_not_count_as_requested(
    family: str, none: dict[str, str], some: dict[str, str]
) -> None:
    cluster = Cluster(nodes=4, mem_per_core=2 << 20)
    limit_server(cluster, max_run_res__mem="[o:PBS_ALL=6gb]")
    for job, resources in (("1", some), ("2", none), ("3", none), ("4", some)):
        facts = JobFacts(
            id=job,
            owner="ann@login",
            queue="batch",
            submitted=cluster.server.now,
            family=family,
            resources={**resources, "walltime": "100"},
        )
        cluster.send(*cluster.server.submit(facts, 100))
    assert starts(cluster, *"1234") == [0, 0, 0, 100]


def test_a_walltime_that_the_site_assumes_does_not_count_as_requested() -> None:
    cluster = Cluster(nodes=4, default_walltime=5000)
    limit_server(cluster, max_run_res__walltime="[o:PBS_ALL=150]")
    cluster.submit("1")
    cluster.submit("2", walltime=None)
    cluster.submit("3", walltime=None)
    cluster.submit("4")
    assert starts(cluster, *"1234") == [0, 0, 0, 100]


def test_products_with_time_count_the_planned_walltime() -> None:
    """A job without a walltime holds its cores all the same."""
    limits = [{"what": "cpu_seconds", "who": "user", "amount": 40_000}]
    cluster = Cluster(nodes=4, default_walltime=5000, site={"limits": limits})
    for job in "123":
        cluster.submit(job, walltime=None)
    assert starts(cluster, *"123") == [0, 0, 5000]


def test_use_of_walltime_over_time_is_held_for_the_planned_walltime() -> None:
    limits = [{"what": "walltime", "who": "user", "amount": 10_000, "counts": "used", "period": 100_000}]
    cluster = Cluster(nodes=4, default_walltime=5000, site={"limits": limits})
    for job in "123":
        cluster.submit(job, walltime=None)
    assert starts(cluster, *"123") == [0, 0, None]


@pytest.mark.parametrize(
    ("name", "amount", "resources"),
    [
        ("max_run_res.cput", "[u:PBS_GENERIC=00:10:00]", {"cput": "00:06:00"}),
        ("max_run_res.cput", "[u:PBS_GENERIC=600]", {"cput": "360"}),
        ("max_user_res.cput", "00:10:00", {"cput": "00:06:00"}),
        ("max_run_res.walltime", "[u:PBS_GENERIC=00:02:30]", {}),
    ],
)
def test_limits_on_times_are_read_as_servers_print_them(
    name: str, amount: str, resources: dict[str, str]
) -> None:
    cluster = Cluster(nodes=4)
    limit_server(cluster, **{name.replace(".", "__"): amount})
    for job in "12":
        cluster.submit(job, resources=resources)
    cluster.submit("3", owner="bob@login", resources=resources)
    assert cluster.alerts("limit") == []
    assert starts(cluster, *"123") == [0, 100, 0]
