"""A what-if answers as the arrival of the same job: random sites, jobs, reservations and bookings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest

from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import FOREVER, Answer, Never, StartKnown, WaitingFor
from schedd.policy.ranks import encode_rank
from schedd.service.questions.expectations import hypothetical_promise
from schedd.service.questions.plan_fork import fork_plan
from schedd.service.questions.submitted_requests import NotUnderstood
from schedd.wire import AccountSet, Book, Event, JobFacts, NodeFacts, QueueChanged, QueueFacts, Reserve, Run
from tests.engine.chaos.features import _LABELS, _TABLES, random_site
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

_JOBS: Final = 12
_WITHOUT_EFFECT: Final = ("power_saving", "power", "thrift")
"""Tables for emulated meters and switches of nodes."""
_WISHES: Final[tuple[dict[str, str], ...]] = (
    {"place": "group=rack"},
    {"mem": "3gb"},
    {"gpus": "1"},
    {"naccesspolicy": "singlejob"},
    {"advres": "r3"},
    {"max_cost": "0.01"},
)
_ALTERATIONS: Final[tuple[dict[str, str], ...]] = (
    {"walltime": "50"},
    {"walltime": "1500"},
    {"nodes": "1:ppn=4"},
    {"nodes": "1:ppn=1"},
    {"partition": "left"},
    {"qos": "low"},
    {"x.deadline": "+0:20:00"},
)
_FORMS: Final = ("partitions", "normalised_walltimes", "speeds", "limits", "qos", "accounts")
"""Tables that give a job several forms, and tables that make some of these wait."""


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_what_if_answers_as_the_arrival(seed: int) -> None:
    random = Random(seed)
    found = [one for one in _compare(random, random_site(random)) if one[1] != one[2]]
    assert not found


@pytest.mark.parametrize("seed", range(examples(20)))
def test_forms_of_a_request_are_chosen_as_at_the_arrival(seed: int) -> None:
    random = Random(seed)
    site = {name: random.choice(_TABLES[name]) for name in _FORMS}
    found = [one for one in _compare(random, site) if one[1] != one[2]]
    assert not found


def test_the_rank_of_a_job_is_that_of_its_chosen_form() -> None:
    """It was that of the slowest form until all ranks were computed again."""
    site = {
        "formula": {"expression": "-walltime"},
        "normalised_walltimes": {"speed": 1.0},
        "speeds": {"n1": 4.0},
    }
    cluster = Cluster(nodes=2, site=site)
    cluster.reserve("r", "n1", "n2", start=0, end=100)
    cluster.submit("1", walltime=400)
    record = cluster.record("1")
    assert record.understood.walltime == 100
    assert cluster.engine.state.rank[record.slot] == encode_rank(-100.0)


def test_alternatives_of_a_moldable_job_are_not_scaled() -> None:
    """Their walltimes were twice as long, though they run on nodes of the reference speed or faster."""
    cluster = Cluster(nodes=2, site={"normalised_walltimes": {"speed": 1.0}, "speeds": {"n2": 0.5}})
    cluster.submit("1", resources={"trl": "4@100:2@300"})
    assert cluster.record("1").understood.walltime == 100
    assert cluster.planned_node_names("1") == ["n1"]


def test_a_form_within_a_limit_is_planned_if_the_slowest_one_is_beyond_it() -> None:
    used = {"counts": "used", "who": "user", "what": "cpu_seconds", "period": 10_000, "amount": 1000}
    site = {"normalised_walltimes": {"speed": 1.0}, "speeds": {"n1": 4.0}, "limits": [used]}
    cluster = Cluster(nodes=2, site=site)
    cluster.reserve("r", "n1", start=0, end=5000)
    cluster.submit("1", walltime=400)
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (5000, ["n1"])
    cluster = Cluster(nodes=1, site={"limits": [used]})
    cluster.submit("1", walltime=400, resources={"minwclimit": "100"})
    assert (cluster.start("1"), cluster.record("1").understood.walltime // 60) == (0, 4)


def _compare(random: Random, site: dict[str, Any]) -> Iterator[tuple[object, object, object]]:
    """Yield for some arrivals and alterations of jobs the facts, the answer of a what-if, and the start."""
    site = {name: table for name, table in site.items() if name not in _WITHOUT_EFFECT}
    cluster = _random_cluster(random, site)
    moment = 0
    for number in range(_JOBS):
        cluster.at(moment)
        _block_nodes(random, cluster, number, moment, books="bookings" in site)
        _change_server(random, cluster)
        facts = _random_job(random, cluster, f"j{number}")
        walltime = int(facts.resources["walltime"])
        events = cluster.server.submit(facts, random.choice([walltime, walltime // 2 + 1]))
        yield _ask_and_send(cluster, moment, facts, events)
        waiting = [one for one in cluster.server.jobs.values() if one.state == "Q"]
        if waiting and random.random() < 0.3:
            job = random.choice(waiting)
            facts = replace(job, resources={**job.resources, **random.choice(_ALTERATIONS)})
            events = cluster.server.alter(job.id, resources=facts.resources)
            if facts != job:
                yield _ask_and_send(cluster, moment, facts, events, instead_of=job.id)
        decisions = [one for one in cluster.decisions if isinstance(one, Run)]
        jobs = cluster.server.jobs
        for run in [one for one in decisions if one.job_id in jobs and jobs[one.job_id].state == "Q"]:
            cluster.send(*cluster.server.run(run))
        moment += random.choice([0, 0, 20, 100, 300])


def _ask_and_send(
    cluster: Cluster, moment: int, facts: JobFacts, events: Sequence[Event], instead_of: str = ""
) -> tuple[object, object, object]:
    """Return the question, its answer and promise, and those that the engine gives after the events."""
    fork = fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))
    promise = FOREVER
    try:
        found = fork.what_if(facts, cluster.server.now, instead_of=instead_of)
        asked, promise = _meaning(found.answer), hypothetical_promise(fork, found, facts)
    except NotUnderstood:
        asked = "never"
    cluster.obeys = False  # before any decision is carried out
    cluster.send(*events)
    cluster.obeys = True
    record = cluster.record(facts.id)
    start = cluster.start(facts.id) if record.answer is None else _meaning(record.answer)
    promised = (
        FOREVER if start is None or isinstance(start, str) else int(cluster.engine.state.promise[record.slot])
    )
    return (moment, facts), (asked, promise), (start, promised)


def _change_server(random: Random, cluster: Cluster) -> None:
    """Let a node fail or return, a queue stop or start, or a server default change, at times."""
    server, kind = cluster.server, random.random()
    if kind < 0.1:
        name = random.choice(sorted(server.nodes))
        state = "up" if server.nodes[name].state != "up" else random.choice(["down", "offline"])
        cluster.node(name, state=state)
    elif kind < 0.15:
        queue = server.queues["long"]
        queue = replace(queue, started=not queue.started, priority=random.choice([0, 0, 50]))
        server.queues["long"] = queue
        cluster.send(QueueChanged(**_event(cluster), queue=queue))


def _meaning(answer: Answer) -> object:
    """The start in seconds after the beginning, or the kind of the wait."""
    if isinstance(answer, StartKnown):
        return answer.placement.start - T
    assert isinstance(answer, Never | WaitingFor)
    return "never" if isinstance(answer, Never) else answer.kind


def _random_cluster(random: Random, site: dict[str, Any]) -> Cluster:
    cluster = Cluster(nodes=0, site=site, priority_every=86_400)
    for i in range(1, 5):
        name = f"n{i}"
        kind = "big" if i % 2 else "small"
        cluster.server.nodes[name] = NodeFacts(
            name=name, cpus=4, gpus=2 * (i % 2), mem=1 << 22, properties=(kind, f"rack=r{(i + 1) // 2}")
        )
    cluster.server.queues |= {name: QueueFacts(name=name) for name in ("long", "batch")}
    cluster.send(cluster.server.snapshot())
    if "accounts" in site:
        for name in ("ann", "bob", "staff", "phys"):
            amount = random.choice([2000, 20_000])
            cluster.send(AccountSet(**_event(cluster), name=name, amount=amount))
    return cluster


def _event(cluster: Cluster) -> dict[str, Any]:
    return {"id": cluster.server.event_id(), "time": cluster.server.now}


def _block_nodes(random: Random, cluster: Cluster, number: int, moment: int, *, books: bool) -> None:
    """Make a reservation or a booking, at times."""
    if random.random() < 0.15:
        start = T + moment + random.randrange(600)
        node, users = f"n{random.randrange(1, 5)}", random.choice([(), ("ann",)])
        end = start + random.randrange(100, 900)
        cluster.send(
            Reserve(**_event(cluster), name=f"r{number}", nodes=(node,), start=start, end=end, users=users)
        )
    if books and random.random() < 0.15:
        ready = T + moment + random.randrange(500)
        cluster.send(
            Book(
                **_event(cluster),
                name=f"b{number}",
                owner="ann",
                resources={"nodes": "1:ppn=4"},
                duration=200,
                ready=ready,
                deadline=T + moment + 3000,
            )
        )


def _random_job(random: Random, cluster: Cluster, job_id: str) -> JobFacts:
    resources = {
        "nodes": random.choice(["1:ppn=4", "1:ppn=2", "2:ppn=4", "1:ppn=1", "1:ppn=4:big", "3:ppn=2"]),
        "walltime": str(random.choice([50, 100, 300, 700, 1500])),
    }
    for _ in range(random.randrange(3)):
        resources |= random.choice(_LABELS)
    if random.random() < 0.1:
        resources["minwclimit"] = "40"
    if random.random() < 0.1:
        resources["trl"] = "4@100:2@300"
    if random.random() < 0.2:
        resources |= random.choice(_WISHES)
    more: dict[str, Any] = {}
    kind = random.random()
    if kind < 0.1:
        more = {"array": "a[]", "slot_limit": random.choice([1, 2])}
    elif kind < 0.2:
        more = {"not_before": cluster.server.now + random.choice([50, 400])}
    elif kind < 0.25:
        more = {"holds": "u", "state": "H"}
    elif kind < 0.35 and cluster.server.jobs:
        before = random.choice(sorted(cluster.server.jobs))
        more = {"depend": f"{random.choice(['after', 'afterok', 'afterany'])}:{before}"}
    return JobFacts(
        id=job_id,
        owner=random.choice(["ann@l1", "ann@l2", "bob@l1", "eve@l1"]),
        group=random.choice(["", "staff"]),
        account=random.choice(["", "phys"]),
        queue=random.choice(["batch", "long"]),
        submitted=cluster.server.now,
        resources=resources,
        priority=random.choice([0, 0, 5]),
        **more,
    )
