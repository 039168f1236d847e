"""Arrays with a slot limit enforced by the server, which holds the surplus jobs."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from schedd.engine import Phase
from schedd.wire import Decision, Event, Run
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples


class Arrays(Cluster):
    """The server holds an array's jobs beyond its slot limit, and releases one when another ends."""

    def array(self, name: str, count: int, limit: int, **more: Any) -> None:
        for index in range(count):
            held: dict[str, Any] = {"state": "H", "holds": "l"} if index >= limit else {}
            self.submit(f"{name}[{index}]", array=f"{name}[]", slot_limit=limit, **more, **held)

    def send(self, *events: Event) -> tuple[Decision, ...]:
        events += tuple(self._released())
        return super().send(*events)

    def _released(self) -> list[Event]:
        found: list[Event] = []
        arrays = {job.array: job.slot_limit for job in self.server.jobs.values() if job.array}
        for name, limit in arrays.items():
            mine = [job for job in self.server.jobs.values() if job.array == name]
            free = (limit or 0) - sum(job.state in ("Q", "R") for job in mine)
            # Any of them: the server has an order of its own.
            for job in [one for one in mine if one.holds == "l"][::-1][: max(0, free)]:
                found += self.server.release(job.id)
        return found

    @property
    def idle(self) -> int:
        return sum(self.server.free(name) for name in self.server.nodes)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_arrays_with_slot_limits_leave_no_core_idle_that_a_waiting_job_could_use(seed: int) -> None:
    random = Random(seed)
    cluster = Arrays(nodes=4, cpus=8, end_allowance=120)
    for i in range(32):
        end = random.randint(4, 26)
        cluster.submit(f"f{i}", "1:ppn=1", walltime=random.choice([60, 200, 400]), runtime=end)
    for i, limit in enumerate((2, 3, 3, 4)):
        cluster.array(f"a{i}", 8, limit, nodes="1:ppn=1", walltime=1_200, runtime=5)
    for i in range(30):
        cluster.submit(f"s{i}", "1:ppn=1", walltime=random.randint(20, 600), runtime=random.randint(1, 9))
    for at in range(1, 300):
        cluster.at(at)
        if not cluster.server.jobs:
            break
        ready = [job.id for job in cluster.server.jobs.values() if job.state == "Q"]
        assert not (ready and cluster.idle), f"at {at}: {cluster.idle} cores are idle while {ready} wait"
    assert not cluster.server.jobs


def test_where_the_job_that_may_start_has_no_room_the_held_one_is_planned_later() -> None:
    cluster = Cluster(nodes=2, end_allowance=0)
    cluster.submit("wall", "n1:ppn=4", walltime=1_000)
    cluster.submit("a[0]", "n1:ppn=4", array="a[]", slot_limit=1)
    (held,) = cluster.server.submit(
        replace(cluster.server.jobs["a[0]"], id="a[1]", resources=HERE, state="H", holds="l"), 100
    )
    engine = cluster.engine
    for events in ([held], *[[]] * 20):
        assert not [one for one in engine.handle(events, T).decisions if isinstance(one, Run)]
        if engine.next_wake != T:
            break
    assert engine.next_wake is not None
    assert engine.next_wake > T
    start = cluster.start("a[1]")
    assert start is not None
    assert start > 0
    cluster.submit("other", "n2:ppn=4", walltime=20)  # what the held job had is free meanwhile
    assert cluster.runs("other") == [0]


def test_a_job_that_the_server_never_releases_leaves_its_nodes_to_others_for_longer_and_longer() -> None:
    """As after a restart of TORQUE 4.2.10, which may show a subjob on hold without a hold."""
    cluster = Cluster(nodes=1, end_allowance=0, slack=100_000, site={"priority": {"wish": 1.0}})
    limited = {"array": "a[]", "slot_limit": 2, "state": "H", "holds": "l"}
    cluster.submit("a[0]", "1:ppn=4", walltime=100, priority=10, **limited)
    for number in range(60):
        cluster.submit(f"{number}", "1:ppn=4", walltime=60)
    for at in range(10, 3_600, 10):
        cluster.at(at)
    ended = sum(f"{number}" not in cluster.server.jobs for number in range(60))
    assert ended >= 45
    assert cluster.record("a[0]").phase is Phase.WAITING
    cluster.send(*cluster.server.release("a[0]"))
    assert cluster.record("a[0]").back_off.until <= cluster.engine.state.now


HERE = {"nodes": "n2:ppn=4", "walltime": "100"}


def test_a_slot_limit_that_is_lowered_between_events_counts_at_once() -> None:
    """The subjobs of an array may state different limits: the one that was read last counts."""
    sets = {"one": {"nodes": ["n1"]}, "whole": {"every_node": True}}
    cluster = Cluster(nodes=1, cpus=2, site={"partitions": {"sets": sets}})
    cluster.submit("a[0]", "1:ppn=1", walltime=1_000, array="a[]", slot_limit=2)
    cluster.submit("f", "1:ppn=1", walltime=500)
    cluster.submit("a[2]", "1:ppn=1", walltime=1_000, array="a[]", slot_limit=1)
    cluster.submit("a[1]", "1:ppn=1", walltime=1_000, array="a[]", slot_limit=2)
    assert min(cluster.start("a[1]") or 0, cluster.start("a[2]") or 0) == 500
    cluster.at(200)  # partitions were considered again
    limits = cluster.engine.state.limits
    assert not limits.lowered
    assert limits.pools["jobs of array a[]"].amount == 2 or (cluster.start("a[1]") or 0) >= 1_000
