"""Whatever limits nodes or starts is in force before the jobs of the first snapshot get their promises."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.wire import (
    SERVER_RESERVATION,
    Event,
    JobFacts,
    NodeFacts,
    QueueFacts,
    Reserve,
    ResourceCounted,
    ServerFacts,
    ShareFacts,
    Snapshot,
)
from tests.engine.chaos.promise_log import PromiseLog
from tests.engine.cluster import Cluster, T

HOUR = 3600
Change = Callable[[Cluster, Snapshot], Sequence[Event]]


def reservation(*nodes: str, start: int, end: int, name: str = "R1") -> Reserve:
    return Reserve(
        id="sim:r",
        time=T,
        name=name,
        nodes=nodes,
        start=T + start,
        end=T + end,
        reason=SERVER_RESERVATION,
    )


def with_reservation(_: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    return [replace(snapshot, reservations=(reservation("n1", "n2", start=2 * HOUR, end=9 * HOUR),))]


def with_queue_limit(_: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    return [replace(snapshot, queues=(QueueFacts(name="batch", limits={"max_running": "1"}),))]


def with_server_limit(_: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    return [replace(snapshot, server=ServerFacts(limits={"max_user_run": "1"}))]


def with_node_away(_: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    return [replace(snapshot, nodes=(snapshot.nodes[0], replace(snapshot.nodes[1], state="down")))]


def with_nothing_else(_: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    return [snapshot]


def with_licence_counted_later(cluster: Cluster, snapshot: Snapshot) -> Sequence[Event]:
    jobs = tuple(replace(job, resources={**job.resources, "matlab": "1"}) for job in snapshot.jobs)
    cluster.server.jobs = {job.id: job for job in jobs}
    return [
        replace(snapshot, jobs=jobs),
        ResourceCounted(id="sim:count", time=T, name="matlab", amount=1),
    ]


@pytest.mark.parametrize(
    ("change", "site"),
    [
        (with_reservation, {}),
        (with_queue_limit, {}),
        (with_server_limit, {}),
        (with_node_away, {}),
        (with_licence_counted_later, {"licences": {"matlab": {"command": ["/bin/count"]}}}),
        (with_nothing_else, {"partitions": {"sets": {"big": {"nodes": ["n2"], "users": ["ben"]}}}}),
        (with_nothing_else, {"limits": [{"amount": 1}]}),
    ],
)
def test_no_promise_to_a_job_of_the_first_snapshot_is_at_risk_from_what_it_brings(
    change: Change, site: dict[str, Any]
) -> None:
    cluster = Cluster(nodes=0, site=site, slack=0, end_allowance=0)
    server = cluster.server
    for name in ("n1", "n2"):
        server.nodes[name] = NodeFacts(name=name, cpus=4)
    for number in range(1, 7):
        resources = {"nodes": "1:ppn=4", "walltime": str(HOUR)}
        server.submit(
            JobFacts(id=str(number), owner="ann@login", queue="batch", submitted=T, resources=resources), HOUR
        )
    server.start("1", (ShareFacts(node="n1", cpus=4, mem=0),))
    log = PromiseLog(cluster.engine)
    for event in change(cluster, server.snapshot()):
        cluster.send(event)
        log.check_call(cluster.engine)
    promised = [cluster.promise(str(number)) for number in range(2, 7)]
    assert None not in promised
    for moment in range(0, 15 * HOUR, HOUR):
        cluster.at(moment)
        assert not cluster.engine.state.risks
        log.check_call(cluster.engine)
    assert cluster.engine.state.breaches == 0
    assert not server.jobs, "all jobs were started"


def test_a_reservation_that_the_server_no_longer_has_is_over_with_the_next_snapshot() -> None:
    """The adapter was restarted: it cannot report the ends of unknown jobs."""
    cluster = Cluster(nodes=1)
    listed = reservation("n1", start=HOUR, end=9 * HOUR)
    cluster.send(replace(cluster.server.snapshot(), reservations=(listed,)))
    cluster.reserve("disks", "n1", start=20 * HOUR, end=21 * HOUR)
    cluster.submit("1", walltime=2 * HOUR)
    assert cluster.start("1") == 9 * HOUR
    cluster.send(cluster.server.snapshot())
    assert cluster.start("1") == 9 * HOUR, "an adapter that lists no reservations says nothing about them"
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.send(replace(cluster.server.snapshot(), reservations=()))
    assert cluster.start("1") == 0
