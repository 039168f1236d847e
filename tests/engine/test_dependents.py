"""Jobs that wait for others are examined when something changed for them, and only then."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest

from schedd.engine.facts.dependents import Dependents
from schedd.engine.place import placement
from tests.engine.cluster import Cluster
from tests.property_examples import examples


class _All(Dependents):
    """An index that has each job examined in each call."""

    def jobs_to_examine(self, now: int, order: Iterable[str]) -> Iterator[str]:
        del now
        yield from order


def _submit(cluster: Cluster, job: str, depend: str = "", **more: Any) -> None:
    held: dict[str, Any] = {"depend": depend, "state": "H", "holds": "s"} if depend else {}
    cluster.submit(job, **held, **more)


def _live(clusters: list[Cluster], random: Random, steps: int) -> Iterator[None]:
    """Submit, alter, hold, release and delete jobs that wait for each other, and let time pass."""
    number = moment = 0
    for _ in range(steps):
        known = list(clusters[0].server.jobs)
        act = random.choice(["submit", "submit", "submit", "time", "delete", "alter", "release", "node"])
        job = random.choice(known) if known else ""
        state = clusters[0].server.jobs[job].state if job else ""
        if act == "submit":
            number += 1
            word = random.choice(["after", "afterok", "afterany", "afternotok"])
            array = random.choice(["", "", "a[].s", "b[].s"])
            targets = [*known[-6:], "a[].s", "b[].s", f"{number + 1}.s"]
            depend = f"{word}:{random.choice(targets)}" if random.random() < 0.6 else ""
            walltime = random.choice([50, 100, 400])
            run_time = random.choice([20, walltime, 2 * walltime])
            nodes = random.choice(["1:ppn=1", "1:ppn=4", "2:ppn=2"])
            more = {"nodes": nodes, "walltime": walltime, "runtime": run_time, "array": array}
            for cluster in clusters:
                _submit(cluster, f"{number}.s", depend, **more)
        elif act == "time":
            moment += random.choice([1, 20, 60, 200])
            for cluster in clusters:
                cluster.at(moment)
        elif act == "delete" and job:
            for cluster in clusters:
                cluster.send(*cluster.server.delete(job))
        elif act == "alter" and state in ("Q", "H"):
            resources = {"nodes": "1:ppn=2", "walltime": str(random.choice([30, 300]))}
            for cluster in clusters:
                cluster.alter(job, resources=resources)
        elif act == "release" and state == "H":
            for cluster in clusters:
                cluster.send(*cluster.server.release(job))
        elif act == "node":
            node = random.choice(["up", "down", "up"])
            for cluster in clusters:
                cluster.node("n2", state=node)
        yield


@pytest.mark.parametrize("seed", range(examples(8)))
def test_examining_changed_jobs_gives_the_same_plan_as_examining_all(seed: int) -> None:
    clusters = [Cluster(2), Cluster(2)]
    clusters[1].engine.state.dependents = _All()
    for _ in _live(clusters, Random(seed), 150):
        one, other = (cluster.engine.state for cluster in clusters)
        assert clusters[0].decisions == clusters[1].decisions
        assert one.records == other.records
        for columns in ("starts", "ready", "states"):
            assert getattr(one.plan.jobs, columns).tolist() == getattr(other.plan.jobs, columns).tolist()


def _examined(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    follow = placement._follow_dependency

    def counted(state: Any, record: Any, event: str) -> bool:
        found.append(record.id)
        return follow(state, record, event)

    monkeypatch.setattr(placement, "_follow_dependency", counted)
    return found


def test_an_event_of_another_job_has_no_dependent_job_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(8)
    _submit(cluster, "first", walltime=10_000)
    for i in range(20):
        _submit(cluster, f"{i}.s", "afterok:first")
    examined = _examined(cluster, monkeypatch)
    _submit(cluster, "other", walltime=10)
    cluster.at(500)
    assert len(examined) <= 20, "those that were planned last, once"
    examined.clear()
    _submit(cluster, "another", walltime=10)
    cluster.at(600)
    assert examined == []
    cluster.send(*cluster.server.delete("first"))
    assert set(examined) == {f"{i}.s" for i in range(20)}


def test_jobs_that_wait_for_an_array_follow_each_of_its_jobs() -> None:
    cluster = Cluster(2)
    for i in range(2):
        _submit(cluster, f"a[{i}].s", array="a[].s", walltime=100)
    _submit(cluster, "behind", "afterokarray:a[].s", walltime=50)
    assert cluster.start("behind") == 100
    cluster.alter("a[1].s", resources={"nodes": "1:ppn=4", "walltime": "300"})
    assert cluster.start("behind") == 300
    cluster.send(*cluster.server.delete("a[1].s"))
    assert cluster.start("behind") == 100
    assert list(cluster.engine.state.array_members["a[].s"]) == ["a[0].s"]
    cluster.send(*cluster.server.delete("a[0].s"))
    assert not cluster.engine.state.array_members
