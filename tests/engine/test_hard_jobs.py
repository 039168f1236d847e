"""Jobs that are too hard to plan are quarantined and delay other jobs only briefly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import JobRecord, Phase
from schedd.model import WaitingFor
from schedd.plan.slabs import MOST_WORK
from schedd.wire import (
    Alert,
    Decision,
    Event,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    ShareFacts,
)
from tests.property_examples import examples

T = 1_700_000_000
GIB = 1 << 20


class CrowdedCluster:
    """Engine with numbered events, all at one moment."""

    def __init__(self, nodes: int, cpus: int, **settings: str) -> None:
        self.engine = Engine(EngineSettings(publish_starts=False, end_allowance=0, **settings), T)  # type: ignore[arg-type]
        self.engine.handle(
            [
                NodeChanged(id=f"n:{i}", time=T, node=NodeFacts(name=f"n{i}", cpus=cpus, mem=512 * GIB))
                for i in range(nodes)
            ],
            T,
        )

    def queue(self, *jobs: tuple[str, str, int]) -> tuple[Decision, ...]:
        """(id, request, walltime) of each."""
        return self.send(
            *(
                JobQueued(
                    id=f"q:{job_id}",
                    time=T,
                    job=JobFacts(
                        id=job_id,
                        owner="ann@login",
                        queue="batch",
                        family="openpbs",
                        submitted=T,
                        resources={"select": select, "walltime": str(walltime)},
                    ),
                )
                for job_id, select, walltime in jobs
            )
        )

    def send(self, *events: Event) -> tuple[Decision, ...]:
        return self.engine.handle(events, T).decisions

    def record(self, job_id: str) -> JobRecord:
        return self.engine.state.records[job_id]

    def start(self, job_id: str) -> int:
        return self.engine.state.plan.start(self.record(job_id).slot) - T


def kinds(n: int, cpus: int = 1, first: int = 100) -> str:
    """Return this number of kinds of chunks, which differ in memory."""
    return "+".join(f"1:ncpus={cpus}:mem={first + i}mb" for i in range(n))


@pytest.mark.parametrize(("n", "nodes"), [(16, 1), (40, 4), (64, 8)])
def test_a_job_of_many_kinds_of_chunks_is_planned(n: int, nodes: int) -> None:
    cluster = CrowdedCluster(nodes, 64)
    cluster.queue(("many", kinds(n), 100), ("other", "1:ncpus=64", 100))
    assert cluster.record("many").phase is not Phase.BLOCKED
    assert (cluster.start("many"), cluster.start("other")) == (0, 0 if nodes > 1 else 100)


@settings(max_examples=examples(40))
@given(st.integers(1, 80), st.integers(1, 5), st.booleans())
def test_a_job_that_runs_on_one_node_in_many_shares_holds_their_sum(n: int, cpus: int, whole: bool) -> None:
    cluster = CrowdedCluster(1, 400)
    select = "1:ncpus=1"
    cluster.queue(("1", select, 100), ("2", "1:ncpus=400", 100))
    slot = cluster.record("1").slot
    cluster.send(JobStarted(id="s", time=T, job_id="1", shares=(ShareFacts("n0", cpus),) * n))
    takes = cluster.engine.state.plan.takes(slot)
    assert [take.amounts[0] for take in takes] == [n * cpus]
    assert cluster.start("2") == 100


def crowded(**settings: str) -> CrowdedCluster:
    """Short jobs of all lengths everywhere, and one node that is taken for months."""
    cluster = CrowdedCluster(100, 32, **settings)
    jobs = [(f"s{i}", f"1:ncpus={1 + i * 7 % 29}", 400 + 71 * i % 5333) for i in range(4000)]
    cluster.queue(*jobs, ("long", "1:ncpus=32", 10**7))
    return cluster


def hard(i: int) -> tuple[str, str, int]:
    """A chunk for every node: each by itself fits at nearly every moment, all of them only after months."""
    select = "+".join(f"1:ncpus={1 + j % 3}:mem={100 + i + j}mb" for j in range(100))
    return f"hard{i}", select, 300


def alerts(decisions: tuple[Decision, ...]) -> list[str]:
    return [one.text for one in decisions if isinstance(one, Alert) and one.kind == "quarantine"]


def test_job_beyond_the_work_limit_is_quarantined_with_the_reason() -> None:
    cluster = crowded()
    plan = cluster.engine.state.plan
    before = plan.work
    # Nodes of its own for each chunk.
    name, select, walltime = hard(0)
    facts = JobFacts(
        id=name,
        owner="ann@login",
        queue="batch",
        family="openpbs",
        submitted=T,
        resources={"select": select, "place": "scatter", "walltime": str(walltime)},
    )
    said = cluster.send(JobQueued(id="q:hard", time=T, job=facts))
    answer = cluster.record(name).answer
    assert isinstance(answer, WaitingFor)
    assert answer.kind == "quarantine"
    assert "too hard to plan" in answer.what
    assert len(alerts(said)) == 1
    assert plan.work - before < 2 * MOST_WORK
    cluster.queue(("after", "1:ncpus=1", 10))
    assert cluster.record("after").phase is not Phase.BLOCKED


def test_thousands_of_jobs_that_are_too_hard_cost_little_more_than_one() -> None:
    cluster = crowded()
    plan = cluster.engine.state.plan
    before = plan.work
    events = []
    for i in range(40):
        name, select, walltime = hard(i)
        resources = {"select": select, "place": "scatter", "walltime": str(walltime)}
        facts = JobFacts(
            id=name, owner="ann@login", queue="batch", family="openpbs", submitted=T, resources=resources
        )
        events.append(JobQueued(id=f"q:{name}", time=T, job=facts))
    assert len(alerts(cluster.send(*events))) == 40
    assert plan.work - before < 2 * MOST_WORK + 40 * MOST_WORK // 50
