"""Usage for fair share, from starts and ends."""

from dataclasses import replace

from schedd.engine import Engine, EngineSettings
from schedd.engine.rank.fair_use import fair_shares
from schedd.wire import JobDeleted, PolicyChanged
from tests.engine.cluster import Cluster, T

SITE = {
    "fair_share": {"levels": ["group", "user"], "shares": {"phys": 3, "bio": 1}, "interval": 3600, "decay": 1}
}


def used(engine: Engine) -> dict[str, float]:
    return {"/".join(row.path): row.used for row in fair_shares(engine.state) if len(row.path) == 2}


def test_usage_includes_ended_and_running_jobs() -> None:
    cluster = Cluster(nodes=2, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", "1:ppn=2", walltime=1000, owner="bob@login", group="bio")
    cluster.at(50)
    assert used(cluster.engine) == {"phys/ann": 4 * 50, "bio/bob": 2 * 50}
    cluster.at(300)
    assert used(cluster.engine) == {"phys/ann": 4 * 100, "bio/bob": 2 * 300}
    cluster.at(1000)
    assert used(cluster.engine) == {"phys/ann": 4 * 100, "bio/bob": 2 * 1000}


def test_a_second_on_a_fast_node_counts_as_many_times_as_it_is_faster() -> None:
    cluster = Cluster(nodes=2, site=SITE | {"speeds": {"new": 2.5, "n1": 2.0, "n2": 0.5}})
    cluster.node("n1", properties=("new",))
    cluster.submit("1", "n1:ppn=4", walltime=100, group="phys")
    cluster.submit("2", "n2:ppn=4", walltime=100, group="bio")
    cluster.at(100)
    assert used(cluster.engine) == {"phys/ann": 4 * 2.5 * 100, "bio/ann": 4 * 0.5 * 100}
    site = SITE | {"speeds": {"n1": 3.0}}
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site))
    assert {name: node.speed for name, node in cluster.engine.state.plan.nodes.items()} == {
        "n1": 3.0,
        "n2": 1.0,
    }


def test_deleted_and_requeued_runs_count() -> None:
    cluster = Cluster(nodes=2, site=SITE)
    cluster.submit("1", walltime=1000, group="phys")
    cluster.submit("2", walltime=1000, group="bio")
    cluster.at(70)
    server = cluster.server
    cluster.send(JobDeleted(id=server.event_id(), time=server.now, job_id="1"))
    back = replace(server.jobs["2"], state="Q", started=None, shares=())
    cluster.obeys = False
    cluster.send(*server.submit(back, 1000))
    assert used(cluster.engine) == {"phys/ann": 4 * 70, "bio/ann": 4 * 70}


def test_usage_outlives_a_checkpoint_and_goes_on() -> None:
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", walltime=100, group="bio")
    cluster.at(130)
    again = Engine.restore(cluster.engine.checkpoint())
    assert used(again) == used(cluster.engine) == {"phys/ann": 400, "bio/ann": 120}
    other = Engine.restore(cluster.engine.checkpoint(), EngineSettings())
    assert other.state.usage is None
    assert fair_shares(other.state) == []


def test_share_rows_have_waits_and_usage() -> None:
    """Job 2 waited 100 s for its 400 cpu-seconds."""
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, group="phys")
    cluster.submit("2", walltime=100, group="bio")
    cluster.at(200)
    waited = {row.path: row.waited for row in fair_shares(cluster.engine.state)}
    assert (waited["phys",], waited["bio",]) == (0.0, 100 / 400)


def test_decayed_usage_is_dropped() -> None:
    site = {"fair_share": {"interval": 3600, "depth": 2}}
    cluster = Cluster(nodes=1, site=site)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(200)
    usage = cluster.engine.state.usage
    assert usage is not None
    assert usage.saved()["leaves"]
    cluster.server.now = T + 10 * 86_400
    cluster.send()
    assert not usage.saved()["leaves"]


def test_without_fair_share_no_usage_is_stored() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=100, group="phys")
    cluster.at(200)
    assert cluster.engine.state.usage is None
