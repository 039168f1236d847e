"""Queues with their own nodes: by the adapter's property for an OpenPBS vnode's `queue`."""

from schedd.start_sentence import NEVER
from schedd.wire import QueueChanged, QueueFacts
from tests.engine.cluster import Cluster, T

ASKED = {"nodes": "", "select": "1:ncpus=4", "place": "free"}


def test_jobs_keep_to_the_nodes_of_their_queue_and_others_leave_them_alone() -> None:
    cluster = Cluster(nodes=2)
    cluster.node("n2", properties=("of_queue=fast", "of_queue=True"))
    for name, wanted in (("fast", "of_queue=fast"), ("batch", "!of_queue=True")):
        facts = QueueFacts(name=name, defaults={"neednodes": wanted})
        cluster.send(QueueChanged(id=f"q-{name}", time=T, queue=facts))
    for number, queue in enumerate(("fast", "fast", "batch", "batch")):
        cluster.submit(str(number), family="openpbs", queue=queue, resources=ASKED)
    where = [[share.node for share in cluster.view(str(number)).planned_nodes] for number in range(4)]
    assert where == [["n2"], ["n2"], ["n1"], ["n1"]]
    for name, queue in (("5", "fast"), ("6", "batch")):
        cluster.submit(name, family="openpbs", queue=queue, resources={**ASKED, "select": "1:host=n3"})
    assert [cluster.view(name).why for name in "56"] == [f"{NEVER}: no node has n3"] * 2
    for name, queue in (("7", "fast"), ("8", "batch")):
        cluster.submit(name, family="openpbs", queue=queue, resources={**ASKED, "select": "1:ncpus=99"})
    assert [cluster.view(name).why for name in "78"] == [
        f"{NEVER}: 99 cpus on a node with {which}; the largest has 4"
        for which in ("queue fast", "no queue of its own")
    ]

    # The queue returns its node: its waiting jobs are replanned, on either node.
    cluster.node("n2")
    for name in ("fast", "batch"):
        cluster.send(QueueChanged(id=f"r-{name}", time=T, queue=QueueFacts(name=name)))
    cluster.submit("4", family="openpbs", queue="fast", walltime=50, resources=ASKED)
    assert {share.node for number in (1, 3) for share in cluster.view(str(number)).planned_nodes} == {
        "n1",
        "n2",
    }


def test_jobs_follow_a_queue_that_begins_or_ends_to_route_its_jobs() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch", routes=("long",))))
    assert cluster.view("2").why == "waiting for queue batch, which routes its jobs to long"
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch")))
    assert cluster.start("2") == 100
