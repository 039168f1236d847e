"""Jobs that name an administrator's reservation: inside its nodes and times, or waiting with a reason."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.facts import reevaluation_queue
from schedd.engine.run import reevaluation
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.reservations import naming
from schedd.model import Answer, StartKnown
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import Book, JobFacts, Reserve, Run, RunRefused, Unreserve
from tests.engine.cluster import Cluster, T
from tests.engine.test_windows import DAY, HOUR, wall
from tests.property_examples import examples


def reserve(cluster: Cluster, name: str, start: int, end: int | None, *nodes: str, **access: Any) -> None:
    cluster.send(
        Reserve(
            id=cluster.server.event_id(),
            time=cluster.server.now,
            name=name,
            start=T + start,
            end=T + end if end is not None else None,
            nodes=nodes,
            **access,
        )
    )


def remove(cluster: Cluster, name: str) -> None:
    cluster.send(Unreserve(id=cluster.server.event_id(), time=cluster.server.now, name=name))


@pytest.mark.parametrize("resources", [{"advres": "school"}, {"x.flags": "ADVRES:school"}])
def test_a_job_is_planned_on_the_nodes_and_in_the_time_of_the_reservation_that_it_names(
    resources: dict[str, str],
) -> None:
    cluster = Cluster(nodes=3)
    reserve(cluster, "school", 500, 2000, "n2", users=("ann",))
    cluster.submit("1", walltime=1000, resources=resources)
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (500, ["n2"])
    assert cluster.runs("1") == []
    cluster.at(500)
    assert cluster.runs("1") == [500]


def test_jobs_that_name_a_reservation_follow_each_other_in_it_and_the_last_waits_for_room() -> None:
    cluster = Cluster(nodes=3)
    reserve(cluster, "school", 500, 1000, "n2", users=("ann",))
    for job in "123":
        cluster.submit(job, walltime=200, resources={"advres": "school"})
    assert [cluster.start(job) for job in "12"] == [500, 700]
    assert cluster.view("3").waiting_for == "reservation"
    assert "room in reservation school" in cluster.view("3").why


@pytest.mark.parametrize(
    ("access", "who"),
    [
        ({"groups": ("staff",)}, {"group": "staff"}),
        ({"accounts": ("chem",)}, {"account": "chem"}),
        ({"queues": ("batch",)}, {"queue": "batch"}),
        ({"shorter": 300}, {}),
    ],
)
def test_the_access_list_admits_groups_accounts_queues_and_short_jobs(
    access: dict[str, Any], who: dict[str, str]
) -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "school", 100, 2000, "n2", **access)
    named = {"advres": "school", "walltime": "200"}
    cluster.submit("1", walltime=200, resources=named, **who)
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (100, ["n2"])


def test_a_job_that_is_not_admitted_or_names_maintenance_waits_and_says_what_to_do() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "school", 0, 2000, "n2", users=("bob",))
    reserve(cluster, "repair", 0, 2000, "n1")
    cluster.submit("1", resources={"advres": "school"})
    cluster.submit("2", resources={"advres": "repair"})
    cluster.submit("3", resources={"advres": "nothing"})
    assert [cluster.runs(job) for job in "123"] == [[], [], []]
    assert "access list does not admit the job" in cluster.view("1").why
    assert "admits no jobs" in cluster.view("2").why
    assert "which its owner does not have" in cluster.view("3").why
    assert all("remove advres from the job" in cluster.view(job).why for job in "123")


def test_a_job_that_can_never_fit_says_so() -> None:
    cluster = Cluster(nodes=3)
    reserve(cluster, "school", 500, 1500, "n1", "n2", users=("ann",))
    cluster.submit("1", walltime=1001, resources={"advres": "school"})
    cluster.submit("2", "3:ppn=4", walltime=100, resources={"advres": "school"})
    cluster.submit("3", "2:ppn=4", walltime=100, resources={"advres": "school"})
    assert "is longer than reservation school, which lasts at most 00:16:40" in cluster.view("1").why
    assert "the nodes of reservation school cannot hold it" in cluster.view("2").why
    assert cluster.start("3") == 500


def test_a_job_without_a_walltime_is_told_that_the_assumed_one_is_too_long() -> None:
    cluster = Cluster(nodes=1, default_walltime=5000)
    reserve(cluster, "school", 500, 1500, "n1", users=("ann",))
    cluster.submit("1", walltime=None, resources={"advres": "school"})
    assert "the walltime that is assumed for it, 01:23:20, is longer" in cluster.view("1").why
    assert "request one, or" in cluster.view("1").why


def test_a_job_follows_changes_of_its_reservation_and_waits_when_it_is_removed() -> None:
    cluster = Cluster(nodes=3)
    reserve(cluster, "school", 500, 2000, "n2", users=("ann",))
    cluster.submit("1", walltime=100, resources={"advres": "school"})
    reserve(cluster, "school", 800, 2000, "n3", users=("ann",))
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (800, ["n3"])
    reserve(cluster, "school", 800, 2000, "n3", users=("bob",))
    assert "access list does not admit the job" in cluster.view("1").why
    reserve(cluster, "school", 900, 2000, "n3", users=("ann",))
    assert cluster.start("1") == 900
    remove(cluster, "school")
    assert cluster.runs("1") == []
    assert "reservation school, which is over or was removed" in cluster.view("1").why
    reserve(cluster, "school", 300, None, "n1", users=("ann",))
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (300, ["n1"])


def test_a_job_that_waits_when_its_reservation_ends_says_so() -> None:
    cluster = Cluster(nodes=1)
    reserve(cluster, "school", 0, 1000, "n1", users=("ann",))
    cluster.submit("1", walltime=900, resources={"advres": "school"})
    cluster.submit("2", walltime=900, resources={"advres": "school"})
    cluster.at(1000)
    assert (cluster.runs("1"), cluster.runs("2")) == ([0], [])
    assert "which is over or was removed" in cluster.view("2").why


def test_a_booking_of_the_owner_goes_before_a_reservation_of_the_same_name() -> None:
    cluster = Cluster(nodes=2, site={"bookings": {"most": 3}})
    reserve(cluster, "school", 500, 2000, "n2", users=("ann",))
    booking = Book(
        id="b:1",
        time=T,
        name="school",
        owner="ann",
        resources={"nodes": "1:ppn=4"},
        duration=200,
        ready=T,
        deadline=T + 200,
    )
    cluster.send(booking)
    cluster.submit("1", walltime=100, resources={"advres": "school"})
    assert cluster.runs("1") == [0]


def test_jobs_follow_when_their_owner_books_what_they_name() -> None:
    cluster = Cluster(nodes=2, site={"bookings": {"most": 3}})
    reserve(cluster, "school", 500, 2000, "n2", users=("ann",))
    cluster.submit("1", walltime=100, resources={"advres": "school"})
    cluster.submit("2", walltime=2000, resources={"advres": "school"})
    cluster.send(
        Book(
            id="b:1",
            time=T,
            name="school",
            owner="ann",
            resources={"nodes": "1:ppn=4"},
            duration=200,
            ready=T + 100,
            deadline=T + 300,
        )
    )
    cluster.at(100)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    assert (run.job_id, run.time - T, run.shares[0].node) == ("1", 100, "n1")


def test_a_job_may_name_a_standing_reservation_and_starts_in_the_next_window_that_fits() -> None:
    window = {"first": wall(2 * HOUR), "last": wall(3 * HOUR), "rule": "FREQ=DAILY"}
    cluster = Cluster(
        nodes=2, site={"reservations": {"class": {"nodes": ["n2"], "users": ["ann"], **window}}}
    )
    cluster.submit("1", walltime=HOUR, resources={"advres": "class"})
    cluster.submit("2", walltime=HOUR, resources={"advres": "class"})
    cluster.submit("3", walltime=HOUR + 1, resources={"advres": "class"})
    first, second = cluster.start("1"), cluster.start("2")
    assert (first, second) == (2 * HOUR, 2 * HOUR + DAY)
    assert cluster.planned_node_names("2") == ["n2"]
    assert "is longer than reservation class" in cluster.view("3").why
    assert first is not None
    cluster.at(first)
    assert cluster.runs("1") == [first]


def test_a_restored_engine_keeps_jobs_in_their_reservation() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "school", 500, 2000, "n2", users=("ann",))
    cluster.submit("1", walltime=100, resources={"advres": "school"})
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.submit("2", walltime=100, resources={"advres": "school"})
    assert (cluster.start("1"), cluster.start("2")) == (500, 600)
    remove(cluster, "school")
    assert "which is over or was removed" in cluster.view("2").why


def test_a_question_is_answered_as_the_job_would_be_planned() -> None:
    cluster = Cluster(nodes=3)
    reserve(cluster, "school", 500, 1500, "n2", users=("ann",))
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))

    def what_if_in_school(walltime: int, **more: Any) -> Answer:
        resources = {"nodes": "1:ppn=4", "walltime": str(walltime), "advres": "school"}
        facts = JobFacts(
            id="what-if", queue="batch", submitted=T, resources=resources, **{"owner": "ann@login", **more}
        )
        return fork.what_if(facts, T).answer

    inside = what_if_in_school(400)
    assert isinstance(inside, StartKnown)
    assert inside.placement.start == T + 500
    assert [share.node for share in inside.placement.shares] == ["n2"]
    assert "lasts at most 00:16:40" in str(what_if_in_school(1001))
    assert "does not admit the job" in str(what_if_in_school(400, owner="bob@login"))
    both = {"nodes": "2:ppn=4", "walltime": "400", "advres": "school"}
    wide = JobFacts(id="what-if", queue="batch", submitted=T, owner="ann@login", resources=both)
    assert "the nodes of reservation school cannot hold it" in str(fork.what_if(wide, T).answer)
    cluster.submit("1", walltime=800, resources={"advres": "school"})
    fork = fork_plan(cluster.engine, publish_snapshot(state))
    assert "room in reservation school" in str(what_if_in_school(400))


def test_many_jobs_of_a_changed_reservation_are_planned_again_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = 30
    for module in (reevaluation_queue, reevaluation):
        monkeypatch.setattr(module, "ARRIVALS_PER_CALL", some)
    cluster = Cluster(nodes=3, cpus=1)
    reserve(cluster, "school", 500, 90_000, "n2", users=("ann",))
    jobs = [str(i) for i in range(some + 20)]
    for job in jobs:
        cluster.submit(job, "1:ppn=1", walltime=100, resources={"advres": "school"})
    change = Reserve(
        id="later", time=T, name="school", start=T + 700, end=T + 90_000, nodes=("n3",), users=("ann",)
    )
    cluster.engine.handle([change], T)
    state = cluster.engine.state
    placed = [job for job in jobs if state.plan.start(state.records[job].slot) >= 0]
    assert 0 < len(placed) <= some
    assert cluster.engine.next_wake == T
    assert "which was just changed" in cluster.view(jobs[-1]).why
    cluster.send()
    assert [cluster.start(job) for job in jobs] == [700 + 100 * i for i in range(len(jobs))]
    assert {name for job in jobs for name in cluster.planned_node_names(job)} == {"n3"}
    remove(cluster, "school")
    assert all("is over or was removed" in cluster.view(job).why for job in jobs)
    assert all(cluster.promise(job) is None for job in jobs)
    reserve(cluster, "school", 1000, None, "n1", users=("ann",))
    assert [cluster.start(job) for job in jobs] == [1000 + 100 * i for i in range(len(jobs))]


def test_planned_jobs_are_not_planned_again_when_further_windows_come_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = {"first": wall(2 * HOUR), "last": wall(3 * HOUR), "rule": "FREQ=DAILY"}
    cluster = Cluster(
        nodes=2, site={"reservations": {"class": {"nodes": ["n2"], "users": ["ann"], **window}}}
    )
    cluster.at(3 * HOUR)
    for job in "12":
        cluster.submit(job, walltime=HOUR, resources={"advres": "class"})
    cluster.submit("3", walltime=HOUR + 1, resources={"advres": "class"})
    again: list[str] = []
    monkeypatch.setattr(
        naming, "_plan_again", lambda _, records, *__: again.extend(one.id for one in records)
    )
    cluster.at(2 * HOUR + DAY - 1)
    assert [cluster.start(job) for job in "12"] == [2 * HOUR + DAY, 2 * HOUR + 2 * DAY]
    assert set(again) == {"3"}
    cluster.at(2 * HOUR + 2 * DAY)
    assert cluster.runs("2") == [2 * HOUR + 2 * DAY]


def test_a_refused_job_follows_a_change_of_its_reservation_while_it_was_about_to_start() -> None:
    cluster = Cluster(nodes=3)
    cluster.obeys = False
    reserve(cluster, "school", 0, None, "n2", users=("ann",))
    cluster.submit("1", resources={"advres": "school"})
    run = next(one for one in cluster.decisions if isinstance(one, Run))
    reserve(cluster, "school", 0, None, "n3", users=("ann",))
    cluster.send(RunRefused(id="refused", time=T, job_id="1", decision_id=run.id, code=15046, text="busy"))
    cluster.at(20)
    runs = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "1"]
    assert [{share.node for share in one.shares} for one in runs[:2]] == [{"n2"}, {"n3"}]


NODES = ("n1", "n2", "n3")
_acts = st.one_of(
    st.tuples(
        st.just("reserve"),
        st.sampled_from(("a", "b")),
        st.integers(0, 600),
        st.integers(1, 900),
        st.sets(st.sampled_from(NODES), min_size=1),
        st.sampled_from((("ann",), ("bob",), ("ann", "bob"), ())),
    ),
    st.tuples(st.just("remove"), st.sampled_from(("a", "b"))),
    st.tuples(
        st.just("submit"),
        st.sampled_from(("ann", "bob")),
        st.sampled_from(("", "a", "b")),
        st.sampled_from((50, 200, 500)),
        st.sampled_from(("1:ppn=2", "1:ppn=4", "2:ppn=1")),
    ),
    st.tuples(st.just("wait"), st.integers(1, 300)),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(_acts, min_size=3, max_size=25))
def test_reserved_nodes_run_only_admitted_jobs_and_jobs_run_only_in_the_reservation_they_name(
    acts: list[tuple[Any, ...]],
) -> None:
    cluster = Cluster(nodes=3)
    reservations: dict[str, tuple[int, int, set[str], tuple[str, ...]]] = {}
    jobs: dict[str, tuple[str, str, int]] = {}
    seen: set[str] = set()

    def check() -> None:
        for run in [d for d in cluster.decisions if isinstance(d, Run)]:
            if run.id in seen:
                continue
            seen.add(run.id)
            owner, named, walltime = jobs[run.job_id]
            nodes = {share.node for share in run.shares}
            for start, end, of, users in reservations.values():
                if run.time < end and run.time + walltime > start and nodes & of:
                    assert owner in users, (run, reservations)
            if named:
                start, end, of, users = reservations[named]
                assert owner in users
                assert nodes <= of
                assert start <= run.time <= run.time + walltime <= end

    for n, act in enumerate(acts):
        if act[0] == "reserve":
            _, name, after, length, of, users = act
            start = cluster.server.now - T + after
            reservations[name] = (T + start, T + start + length, of, users)
            reserve(cluster, name, start, start + length, *sorted(of), users=users)
        elif act[0] == "remove":
            reservations.pop(act[1], None)
            remove(cluster, act[1])
        elif act[0] == "submit":
            _, owner, named, walltime, nodes = act
            jobs[str(n)] = (owner, named, walltime)
            resources = {"advres": named} if named else {}
            cluster.submit(str(n), nodes, walltime, owner=f"{owner}@login", resources=resources)
        elif act[0] == "wait":
            cluster.at(cluster.server.now - T + act[1])
        check()
