"""Jobs that leave their walltime, or their number of tasks, to the plan."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.moldable.state import moldable_state
from schedd.model import StartKnown
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import AccountSet, JobFacts, Run
from tests.engine.cluster import Cluster, T
from tests.features.reservations.test_reservations import make_reservation
from tests.property_examples import examples


def submit(
    cluster: Cluster, job: str, family: str, least: int, most: int, deadline: int | None = None, **more: Any
) -> None:
    """A job of four cores that accepts a walltime between these, and may have a deadline."""
    due = {"deadline": str(T + deadline)} if deadline is not None else {}
    if family == "openpbs":
        lengths = {"min_walltime": str(least), "max_walltime": str(most)}
        resources = {"select": "1:ncpus=4", "place": "free", "nodes": "", **lengths, **due}
        cluster.submit(job, walltime=None, runtime=most, resources=resources, family="openpbs", **more)
    else:
        cluster.submit(job, walltime=most, resources={"minwclimit": str(least), **due}, **more)


def find_run(cluster: Cluster, job: str) -> Run:
    [run] = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == job]
    return run


def remarks(cluster: Cluster, job: str) -> str:
    return " ".join(cluster.view(job).notes)


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_a_shorter_walltime_lets_a_job_start_before_a_reservation(family: str) -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=3000)
    cluster.submit("before", walltime=100)
    submit(cluster, "1", family, 200, 2000)
    assert cluster.start("1") == 100
    assert 840 <= cluster.record("1").understood.walltime <= 900
    assert "planned with a walltime of 00:1" in remarks(cluster, "1")
    assert "between 00:03:20 and 00:33:20, to start earlier" in remarks(cluster, "1")
    cluster.at(100)
    assert find_run(cluster, "1").walltime == 900, "all of the gap is used"
    assert cluster.view("1").planned_end == T + 1000


@pytest.mark.parametrize("family", ["torque", "openpbs"])
@pytest.mark.parametrize("cores", [0, 1])
def test_a_job_is_shortened_for_a_reservation_that_admits_short_jobs(family: str, cores: int) -> None:
    cluster = Cluster()
    quick = {"cores": cores} if cores else {"nodes": ("n1",)}
    make_reservation(cluster, "quick", 0, 5000, everywhere=bool(cores), shorter=300, **quick)
    submit(cluster, "1", family, 200, 2000)
    assert cluster.start("1") == 0
    walltime = find_run(cluster, "1").walltime
    assert walltime is not None
    assert walltime <= 300
    submit(cluster, "2", family, 400, 2000)
    assert cluster.start("2") == 5000


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_a_walltime_of_a_range_is_chosen_to_end_by_the_deadline(family: str) -> None:
    """The margin is a minute. Without such an end the deadline is refused, and the walltime the longest."""
    cluster = Cluster()
    cluster.submit("before", walltime=100)
    submit(cluster, "1", family, 200, 2000, deadline=1100)
    assert (cluster.start("1"), cluster.record("1").understood.walltime) == (100, 940)
    assert cluster.view("1").deadline_state == "accepted"
    assert "between 00:03:20 and 00:33:20, to end by its deadline" in remarks(cluster, "1")
    cluster.at(100)
    assert find_run(cluster, "1").walltime == 940, "it is not lengthened beyond its deadline at its start"
    submit(cluster, "2", family, 200, 2000, deadline=1200)
    assert cluster.record("2").understood.walltime == 2000
    assert cluster.view("2").deadline_state == "wished"
    assert cluster.view("2").earliest_deadline == T + 1040 + 200 + 60, "with its shortest walltime"


def test_a_planned_job_that_gets_a_deadline_is_shortened_to_meet_it() -> None:
    cluster = Cluster()
    cluster.submit("before", walltime=100)
    submit(cluster, "1", "openpbs", 200, 2000)
    assert cluster.record("1").understood.walltime == 2000
    cluster.alter_request("1", deadline=str(T + 1100))
    cluster.at(70)
    assert (cluster.start("1"), cluster.record("1").understood.walltime) == (100, 940)
    assert cluster.view("1").deadline_state == "accepted"


def test_a_start_with_the_walltime_that_the_server_shows_already_is_no_difference() -> None:
    cluster = Cluster()
    lengths = {"min_walltime": "00:03:20", "max_walltime": "00:15:00", "walltime": "00:15:00"}
    resources = {"select": "1:ncpus=4", "place": "free", "nodes": "", **lengths}
    cluster.submit("1", walltime=None, runtime=900, resources=resources, family="openpbs")
    assert find_run(cluster, "1").walltime == 900
    assert cluster.view("1").state == "running"
    cluster.send(cluster.server.snapshot())
    assert cluster.alerts("snapshot") == []


@pytest.mark.parametrize(
    ("site", "job", "longest"),
    [
        ({"prices": [{"core_hour": 36.0}], "cost_limits": "hard"}, {"x.cost_limit": "35.5"}, 887),
        ({"limits": [{"what": "cpu_seconds", "amount": 3560}]}, {}, 890),
        ({"limits": [{"counts": "used", "what": "walltime", "amount": 880}]}, {}, 880),
        ({"accounts": {}}, {}, 885),
    ],
    ids=["cost limit", "pool", "limit of use", "account"],
)
def test_a_walltime_grows_at_the_start_only_within_cost_limits_pools_and_budgets(
    site: dict[str, Any], job: dict[str, str], longest: int
) -> None:
    cluster = Cluster(site=site)
    account = AccountSet(id=cluster.server.event_id(), time=T, name="phys", amount=4 * 885)
    if "accounts" in site:
        cluster.send(account)
    cluster.reserve("r", "n1", start=900, end=3000)
    cluster.obeys = False
    payer = "phys" if "accounts" in site else ""
    cluster.submit("1", walltime=2000, resources={"minwclimit": "200", **job}, account=payer)
    assert find_run(cluster, "1").walltime == longest


@pytest.mark.parametrize("family", ["torque", "openpbs"])
def test_the_longest_walltime_is_kept_if_a_shorter_one_starts_no_earlier(family: str) -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=1050)
    submit(cluster, "1", family, 999, 5000)
    submit(cluster, "2", family, 1500, 5000)
    assert find_run(cluster, "1").walltime == 1000
    assert (cluster.start("2"), cluster.record("2").understood.walltime) == (1050, 5000)
    assert "to start earlier" not in remarks(cluster, "2")


def test_a_job_is_shortened_later_if_it_then_starts_earlier() -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=3000)
    cluster.submit("before", walltime=900, runtime=300)
    submit(cluster, "1", "openpbs", 200, 2000)
    assert (cluster.start("1"), cluster.record("1").understood.walltime) == (3000, 2000)
    cluster.at(300)  # the first job ended early
    cluster.at(370)
    start = cluster.start("1")
    assert start is not None
    assert 300 <= start <= 365
    assert find_run(cluster, "1").walltime == 1000 - start


def test_a_shortened_job_keeps_its_walltime_and_its_promise_when_it_is_altered() -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=3000)
    cluster.submit("before", walltime=100)
    submit(cluster, "1", "openpbs", 200, 2000)
    promised, walltime = cluster.promise("1"), cluster.record("1").understood.walltime
    cluster.alter("1", priority=5)
    assert (cluster.promise("1"), cluster.record("1").understood.walltime) == (promised, walltime)
    cluster.alter_request("1", max_walltime="300")
    assert cluster.record("1").understood.walltime == 300
    cluster.send(*cluster.server.delete("1"))
    assert not moldable_state(cluster.engine.state).chosen


@pytest.mark.parametrize("lengths", [("600", "300"), ("300", "300"), ("nonsense", "600")])
def test_a_range_without_a_choice_is_planned_with_its_walltime_or_refused(lengths: tuple[str, str]) -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=100, end=200)
    resources = {"minwclimit": lengths[0]}
    cluster.submit("1", walltime=int(lengths[1]), resources=resources)
    if lengths[0] != lengths[1]:
        assert cluster.start("1") is None
        assert "minwclimit" in cluster.view("1").why
        if lengths[0] == "600":
            assert (
                "minwclimit=600, its shortest walltime, above walltime=300" in cluster.view("1").requirement
            )
            cluster.alter_request("1", minwclimit="200")
            assert cluster.start("1") is not None
    else:
        assert (cluster.start("1"), cluster.record("1").understood.walltime) == (200, int(lengths[1]))


def test_the_alternative_that_ends_first_is_planned() -> None:
    cluster = Cluster()
    cluster.submit("half", "1:ppn=2", walltime=500)
    cluster.submit("1", resources={"trl": "4@400:2@600:1@1000"}, runtime=600)
    assert (cluster.start("1"), cluster.view("1").planned_end) == (0, T + 600)
    decision = find_run(cluster, "1")
    assert (decision.walltime, [share.cpus for share in decision.shares]) == (600, [2])
    assert cluster.record("1").phase.name == "RUNNING"
    cluster.submit("2", resources={"trl": "4@400:2@900"})
    assert (cluster.start("2"), cluster.view("2").planned_end) == (600, T + 1000)
    assert "planned with 4 tasks for 00:06:40" in remarks(cluster, "2")


def test_the_first_alternative_is_named_as_the_choice_of_a_policy_without_a_plan() -> None:
    cluster = Cluster(policy="fcfs")
    cluster.submit("half", "1:ppn=2", walltime=500)
    cluster.submit("1", resources={"trl": "4@400:2@100"})
    assert "it gets 4 tasks for 00:06:40, the first of its alternatives" in remarks(cluster, "1")
    cluster.at(500)
    assert [share.cpus for share in find_run(cluster, "1").shares] == [4]


def test_another_alternative_is_planned_once_it_ends_earlier() -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=5000)
    cluster.submit("wide", "1:ppn=3", walltime=950, runtime=300)
    cluster.submit("thin", "1:ppn=1", walltime=950)
    cluster.submit("1", resources={"x.trl": "4@100:1@600"})
    assert cluster.view("1").planned_end == T + 5100
    cluster.at(370)
    decision = find_run(cluster, "1")
    assert (decision.walltime, [share.cpus for share in decision.shares]) == (600, [1])


@pytest.mark.parametrize("text", ["4", "4@", "2-8@100", "4@100:", ":".join(["1@9"] * 17)])
def test_a_malformed_list_of_alternatives_is_refused(text: str) -> None:
    cluster = Cluster()
    cluster.submit("1", resources={"trl": text})
    assert cluster.start("1") is None
    assert "TASKS@SECONDS" in cluster.view("1").why


def test_a_what_if_chooses_like_the_plan() -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=3000)
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))

    def what_if_start(**resources: str) -> tuple[int, int]:
        facts = JobFacts(id="", owner="ann", queue="batch", submitted=T, resources=resources)
        found = fork.what_if(facts, T)
        assert isinstance(found.answer, StartKnown)
        return found.answer.placement.start - T, found.walltime

    assert what_if_start(nodes="1:ppn=4", minwclimit="200", walltime="2000") == (0, 1000)
    assert what_if_start(trl="4@2000:2@990") == (0, 990)
    assert what_if_start(nodes="1:ppn=4", minwclimit="200", walltime="2000", deadline=str(T + 500)) == (
        0,
        440,
    )
    assert what_if_start(trl="4@400:2@990") == (0, 400)
    cluster.submit("1", walltime=2000, resources={"minwclimit": "200"})
    assert (cluster.start("1"), cluster.record("1").understood.walltime) == (0, 1000)  # as it starts at once


def test_a_what_if_names_the_walltime_that_a_reservation_admits() -> None:
    cluster = Cluster()
    make_reservation(cluster, "quick", 0, None, everywhere=True, cores=1, shorter=300)
    fork = fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))
    resources = {"nodes": "1:ppn=4", "walltime": "2000"}
    facts = JobFacts(id="", owner="ann", queue="batch", submitted=T, resources=resources)
    found = fork.what_if(facts, T, changes=True)
    assert {one.change: one.value for one in found.changes} == {"walltime": 300, "cpus": 3}
    found = fork.what_if(replace(facts, resources={**resources, "minwclimit": "200"}), T)
    assert isinstance(found.answer, StartKnown)
    assert found.answer.placement.start == T


GAPS = st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 600)), max_size=5)


@settings(max_examples=examples(25))
@given(gaps=GAPS, least=st.integers(1, 1500), more=st.integers(1, 3000))
def test_the_choice_is_that_of_a_plain_search(gaps: list[tuple[int, int]], least: int, more: int) -> None:
    cluster = Cluster()
    cluster.submit("first", walltime=50)
    free, moment = [], 50
    for number, (gap, length) in enumerate(gaps):
        free.append((moment, moment + gap))
        cluster.reserve(f"r{number}", "n1", start=moment + gap, end=moment + gap + length)
        moment += gap + length
    free.append((moment, moment + 10**6))

    def earliest(length: int) -> tuple[int, int]:
        return next((first, last) for first, last in free if last - first >= length)

    most = least + more
    submit(cluster, "1", "openpbs", least, most)
    walltime = cluster.record("1").understood.walltime
    start, last = earliest(least)
    if earliest(most)[0] - start < 60:
        assert (cluster.start("1"), walltime) == (earliest(most)[0], most)
    else:
        assert cluster.start("1") == start
        assert min(most, last - start) - 60 <= walltime <= min(most, last - start)


@pytest.mark.parametrize(
    ("family", "name"), [("torque", "min_walltime"), ("openpbs", "minwclimit"), ("openpbs", "trl")]
)
def test_a_walltime_that_the_server_would_not_get_is_not_planned(family: str, name: str) -> None:
    cluster = Cluster()
    cluster.reserve("r", "n1", start=1000, end=3000)
    cluster.submit("before", walltime=100)
    value = "1@200:2@100" if name == "trl" else "200"
    cluster.submit("1", "1:ppn=4", 2000, resources={name: value}, family=family)
    assert cluster.record("1").understood.walltime == 2000
