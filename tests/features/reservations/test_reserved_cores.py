"""Reservations of cores and gpus of nodes, which other jobs leave free."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.preview import preview_moves
from schedd.features.reservations.state import reservation_access, reservation_records
from schedd.wire import Reserve, ShareFacts
from tests.engine.cluster import Cluster, T
from tests.features.reservations.test_reservations import make_reservation
from tests.property_examples import examples

WHOLE_NODE = {"naccesspolicy": "singlejob"}
GIB = 1 << 20
"""In KiB."""


def planned(cluster: Cluster, *jobs: str) -> list[tuple[int | None, list[str]]]:
    return [(cluster.start(job), cluster.planned_node_names(job)) for job in jobs]


def test_long_jobs_leave_the_reserved_cores_to_short_jobs() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "quick", 0, None, everywhere=True, cores=1, shorter=300)
    cluster.submit("1", "1:ppn=3", 1000)
    cluster.submit("2", "1:ppn=2", 1000)
    cluster.submit("3", "1:ppn=2", 1000)
    cluster.submit("4", "1:ppn=2", 300)
    cluster.submit("5", "1:ppn=1", 300)
    assert planned(cluster, "1", "2", "4", "5") == [(0, ["n1"]), (0, ["n2"]), (0, ["n2"]), (0, ["n1"])]
    assert cluster.start("3") == 1000


def test_whole_nodes_are_only_for_jobs_on_the_access_list() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "quick", 0, 2000, nodes=("n1", "n2"), cores=1, users=("eve",))
    cluster.submit("1", "1:ppn=1", resources=WHOLE_NODE)
    cluster.submit("2", "1:ppn=1", resources=WHOLE_NODE, owner="eve")
    cluster.submit("3", "1:ppn=4")
    assert planned(cluster, "1", "2", "3") == [(2000, ["n1"]), (0, ["n1"]), (2000, ["n2"])]


def test_planned_jobs_move_only_as_far_as_they_hold_reserved_cores() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("0", "1:ppn=4", 50)
    cluster.submit("1", "1:ppn=2")
    cluster.submit("2", "1:ppn=2")
    cluster.submit("3", "1:ppn=4", owner="eve")
    make_reservation(cluster, "r", 50, 1000, nodes=("n1",), cores=2, users=("eve",))
    assert [cluster.start(job) for job in "123"] == [150, 50, 250]
    cluster.at(60)
    cluster.unreserve("r")
    assert [cluster.start(job) for job in "123"] == [60, 50, 160]


def test_running_jobs_count_against_the_cores_that_are_not_reserved() -> None:
    """Also jobs with changed access while they ran, since the lists of a gate change."""
    cluster = Cluster(nodes=1, cpus=8)
    cluster.submit("1", "1:ppn=3", 500)
    cluster.submit("2", "1:ppn=2", 400, owner="eve")
    make_reservation(cluster, "r", 0, None, nodes=("n1",), cores=3, users=("eve",))
    cluster.submit("3", "1:ppn=2", 100, owner="bob")
    cluster.submit("4", "1:ppn=1", 100, owner="bob")
    assert (cluster.start("3"), cluster.start("4")) == (0, 100), "job 2 holds reserved cores"
    make_reservation(cluster, "r", 0, None, nodes=("n1",), cores=3, users=("ann",))
    assert len(cluster.engine.state.gates) == 2
    assert cluster.start("4") == 0, "now it is job 1 that holds them"
    assert Engine.restore(cluster.engine.checkpoint()).checkpoint() == cluster.engine.checkpoint()


def test_cores_of_overlapping_reservations_add_up_for_jobs_of_neither() -> None:
    cluster = Cluster(nodes=1, cpus=8)
    make_reservation(cluster, "a", 0, 1000, nodes=("n1",), cores=3, users=("ann",))
    make_reservation(cluster, "b", 0, 2000, nodes=("n1",), cores=3, users=("bob",))
    cluster.submit("1", "1:ppn=3", owner="eve")
    cluster.submit("2", "1:ppn=5", owner="ann")
    cluster.submit("3", "1:ppn=3", owner="bob")
    cluster.submit("4", "1:ppn=2", owner="eve")
    assert [cluster.start(job) for job in "1234"] == [1000, 0, 0, 100]
    cluster.unreserve("b")
    cluster.at(1)
    assert cluster.start("1") == 100


def test_cores_in_total_are_kept_on_the_first_nodes_that_are_up() -> None:
    cluster = Cluster(nodes=3)
    make_reservation(cluster, "r", 0, None, everywhere=True, cores=6, total=True, users=("eve",))
    for job in "123":
        cluster.submit(job, "1:ppn=2")
    assert planned(cluster, "1", "2", "3") == [(0, ["n2"]), (0, ["n3"]), (0, ["n3"])]
    cluster.node("n1", state="down")
    cluster.submit("4", "1:ppn=2", 10)
    cluster.submit("5", "1:ppn=4", 10, owner="eve")
    assert cluster.start("4") == 100, "the cores of n1 are kept on n2 and n3"
    cluster.node("n1", state="up")
    assert planned(cluster, "5") == [(0, ["n1"])]


def test_gpus_are_reserved_apart_from_cores() -> None:
    cluster = Cluster(nodes=1)
    cluster.node("n1", gpus=4)
    make_reservation(cluster, "r", 0, 1000, nodes=("n1",), gpus=3, users=("eve",))
    cluster.submit("1", "1:ppn=1:gpus=1")
    cluster.submit("2", "1:ppn=1:gpus=1", 50)
    cluster.submit("3", "1:ppn=1", 50)
    cluster.submit("4", "1:ppn=1:gpus=3", 50, owner="eve")
    assert [cluster.start(job) for job in "1234"] == [0, 100, 0, 0]


def test_memory_is_reserved_of_each_node_or_in_total() -> None:
    cluster = Cluster(nodes=2)
    for name in ("n1", "n2"):
        cluster.node(name, mem=8 * GIB)
    make_reservation(cluster, "each", 0, 1000, everywhere=True, mem=6 * GIB, users=("eve",))
    cluster.submit("1", "1:ppn=1", resources={"mem": "3gb"})
    cluster.submit("2", "1:ppn=1", 50, resources={"mem": "2gb"})
    cluster.submit("3", "1:ppn=1", 50, resources={"mem": "6gb"}, owner="eve")
    cluster.submit("4", "1:ppn=1", 50)
    assert [cluster.start(job) for job in "1234"] == [1000, 0, 0, 0]
    make_reservation(cluster, "each", 0, 1000, everywhere=True, mem=10 * GIB, total=True, users=("eve",))
    cluster.submit("5", "1:ppn=1", 500, resources={"mem": "6gb"})
    assert planned(cluster, "1", "5") == [(0, ["n2"]), (100, ["n2"])]
    assert reservation_records(cluster.engine.state)["each"].event.amounts == "10 GiB of memory in total"


def test_cores_without_an_access_list_are_kept_from_all_jobs() -> None:
    cluster = Cluster(nodes=1)
    make_reservation(cluster, "daemons", 0, None, nodes=("n1",), cores=1)
    cluster.submit("1", "1:ppn=3")
    cluster.submit("2", "1:ppn=1")
    assert (cluster.start("1"), cluster.start("2")) == (0, 100)


def test_a_job_that_names_reserved_cores_runs_on_their_nodes() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "course", 100, 1000, nodes=("n2",), cores=2, users=("eve",))
    named = {"advres": "course"}
    cluster.submit("1", "1:ppn=4", 50, resources=named, owner="eve")
    cluster.submit("2", "1:ppn=4", 50, resources=named)
    assert planned(cluster, "1") == [(100, ["n2"])]
    assert "does not admit" in str(cluster.record("2").answer)


def test_preview_names_running_jobs_only_where_they_hold_reserved_cores() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "1:ppn=3", 500)
    cluster.submit("2", "n2:ppn=2", 500)
    event = Reserve(
        id="p", time=T, name="r", start=T + 10, everywhere=True, cores=2, users=("eve",), end=T + 900
    )
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [event], T, lambda: None)
    assert [one.job for one in found.running] == ["1"]


@pytest.mark.parametrize("cores", [0, 2])
def test_preview_admits_running_jobs_by_the_walltime_that_they_request(cores: int) -> None:
    cluster = Cluster(nodes=2, default_walltime=250)
    cluster.submit("1", "n1:ppn=4", 250)
    cluster.submit("2", "n2:ppn=4", walltime=None)
    event = Reserve(id="p", time=T, name="r", start=T, everywhere=True, cores=cores, shorter=300, end=T + 900)
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [event], T, lambda: None)
    assert [one.job for one in found.running] == ["2"]


def test_too_many_overlapping_access_lists_are_refused_by_name() -> None:
    cluster = Cluster(nodes=1, cpus=16)
    for i in range(4):
        make_reservation(cluster, f"r{i}", 0, 1000, nodes=("n1",), cores=1, users=(f"u{i}",))
    (words,) = cluster.alerts("reservation")
    assert words.startswith("reservation r3 was not made: its access list")
    assert sorted(reservation_records(cluster.engine.state)) == ["r0", "r1", "r2"]


# ---- parts of nodes that a server reserves ---------------------------------------------------------


def of_server(cluster: Cluster, name: str, *shares: ShareFacts, queues: tuple[str, ...] = ()) -> None:
    nodes = tuple(one.node for one in shares)
    make_reservation(cluster, name, 50, 1000, nodes=nodes, shares=shares, queues=queues or (name,))


def test_a_server_keeps_different_parts_of_its_nodes() -> None:
    cluster = Cluster(nodes=2)
    of_server(cluster, "R1", ShareFacts("n1", 3), ShareFacts("n2", 1))
    cluster.submit("1", "1:ppn=3")
    cluster.submit("2", "1:ppn=2", 40)
    cluster.submit("3", "1:ppn=2")
    cluster.submit("4", "n1:ppn=3", queue="R1")
    assert planned(cluster, "1", "2", "4") == [(0, ["n2"]), (0, ["n1"]), (40, ["n1"])]
    assert planned(cluster, "3") == [(100, ["n2"])]
    assert Engine.restore(cluster.engine.checkpoint()).checkpoint() == cluster.engine.checkpoint()


def test_a_server_keeps_memory_of_nodes() -> None:
    cluster = Cluster(nodes=1)
    cluster.node("n1", mem=8 << 20)
    of_server(cluster, "R1", ShareFacts("n1", 1, mem=5 << 20))
    cluster.submit("1", "1:ppn=1", resources={"mem": "4gb"})
    cluster.submit("2", "1:ppn=1", resources={"mem": "3gb"})
    cluster.submit("3", "1:ppn=1", resources={"mem": "5gb"}, queue="R1")
    assert [cluster.start(job) for job in "123"] == [1000, 0, 0]


def test_whole_nodes_are_kept_where_parts_need_too_many_access_lists() -> None:
    cluster = Cluster(nodes=1, cpus=16)
    for i in range(4):
        of_server(cluster, f"R{i}", ShareFacts("n1", 1))
    assert sorted(reservation_records(cluster.engine.state)) == ["R0", "R1", "R2", "R3"]
    assert cluster.alerts("reservation") == []
    cluster.submit("1", "1:ppn=1")
    cluster.submit("2", "1:ppn=1", queue="R3")
    assert [cluster.start(job) for job in "12"] == [1000, 0]
    cluster.node("n1", properties=("new",))
    cluster.submit("3", "1:ppn=1")
    assert cluster.start("3") == 1000


# ---- against a plain reference -------------------------------------------------------------------

_USERS = ("ann", "bob", "eve")
_CPUS = 6


def reserved(cluster: Cluster, node: str, moment: int) -> list[Reserve]:
    return [
        one.event
        for one in reservation_records(cluster.engine.state).values()
        if node in one.names and one.event.start <= moment < (one.event.end or moment + 1)
    ]


def holders(cluster: Cluster) -> list[tuple[str, int, int, str, int]]:
    """Node, start, end, owner and cpus of all jobs in the plan."""
    state = cluster.engine.state
    found = []
    for record in state.records.values():
        if record.slot >= 0 and (start := state.plan.start(record.slot)) >= 0:
            cpus = sum(chunk.cpus for chunk in state.plan.request(record.slot).chunks)
            owner = record.facts.owner.partition("@")[0]
            for take in state.plan.takes(record.slot):
                node = state.plan.node_names[take.row]
                found.append((node, start, state.plan.end(record.slot), owner, cpus))
    return found


def fits(reservations: Sequence[Reserve], held: Sequence[tuple[str, int]]) -> bool:
    """Whether each job may have cores of its own: none of a reservation that does not admit it.

    For each set of reservations, jobs that none of them admits must leave their cores free.
    """
    lists = [(reservation_access(one), one.cores) for one in reservations]
    for n in range(len(lists) + 1):
        for chosen in combinations(lists, n):
            outside = sum(
                cpus
                for owner, cpus in held
                if not any(access.admits(owner, "", "", "") for access, _ in chosen)
            )
            if outside and outside > _CPUS - sum(cores for _, cores in chosen):
                return False
    return True


def edges(cluster: Cluster) -> Iterator[int]:
    yield cluster.server.now
    for _, start, end, _, _ in holders(cluster):
        yield from (start, end)
    for one in reservation_records(cluster.engine.state).values():
        yield from (one.event.start, one.event.end or 0)


def fits_at(cluster: Cluster, node: str, moment: int, more: Sequence[tuple[str, int]] = ()) -> bool:
    held = [(o, c) for n, begin, end, o, c in holders(cluster) if n == node and begin <= moment < end]
    return fits(reserved(cluster, node, moment), [*held, *more])


def earliest_start(cluster: Cluster, owner: str, cpus: int, walltime: int) -> int:
    moments = sorted({one for one in edges(cluster) if one >= cluster.server.now})
    for start in moments:
        inside = [start, *(one for one in moments if start < one < start + walltime)]
        for node in cluster.server.nodes:
            if all(fits_at(cluster, node, one, [(owner, cpus)]) for one in inside):
                return start
    raise AssertionError("no start")


@pytest.mark.parametrize("seed", range(examples(12)))
def test_plan_equals_a_reference_and_no_other_job_holds_a_reserved_core(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(nodes=2, cpus=_CPUS)
    made = 0
    for step in range(25):
        draw = rng.random()
        if draw < 0.25 and made < 4:
            made += 1
            access: dict[str, Any] = {"users": tuple(rng.sample(_USERS, rng.randint(1, 2)))}
            start = cluster.server.now - T + rng.randrange(0, 300, 10)
            nodes = rng.choice([("n1",), ("n2",), ("n1", "n2")])
            running = [one for one in holders(cluster) if one[1] <= cluster.server.now]
            start = max([start, *(one[2] - T for one in running)])  # jobs that run may keep reserved cores
            make_reservation(
                cluster,
                f"r{rng.randrange(3)}",
                start,
                start + 400,
                nodes=nodes,
                cores=rng.randint(1, 3),
                **access,
            )
        elif draw < 0.35:
            cluster.at(cluster.server.now - T + rng.randrange(1, 60))
        else:
            owner, cpus, walltime = rng.choice(_USERS), rng.randint(1, _CPUS), rng.randrange(10, 300, 10)
            expected = earliest_start(cluster, owner, cpus, walltime) - T
            cluster.submit(str(step), f"1:ppn={cpus}", walltime, owner=owner)
            assert cluster.start(str(step)) == expected
        for node in cluster.server.nodes:
            for moment in set(edges(cluster)):
                if moment >= cluster.server.now:
                    assert fits_at(cluster, node, moment), (node, moment - T)
