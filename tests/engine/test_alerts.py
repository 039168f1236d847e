"""Alerts open, are raised again, and close with their cause, or when nothing like it happened for a while."""

import re

from schedd.engine import Engine
from schedd.engine.facts.alerts import FADES, alert_kinds
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.reservations.state import reservation_records
from schedd.wire import JobEnded, JobStarted, NodeChanged, ShareFacts, Snapshot
from schedd.wire.adapter_troubles import ADAPTER_TROUBLES
from tests.conftest import ROOT
from tests.engine.cluster import Cluster, T


def opened(cluster: Cluster) -> list[tuple[str, str]]:
    return [(alert.kind, alert.about) for alert in publish_snapshot(cluster.engine.state).alerts]


def fail_on_n1(cluster: Cluster) -> None:
    for number in range(5):
        cluster.submit(f"{number}", "n1:ppn=4", 1000, owner=f"{'ann' if number else 'bob'}@x")
        cluster.server.now += 5
        cluster.server.jobs.pop(f"{number}", None)
        over = JobEnded(id=f"end:{number}", time=cluster.server.now, job_id=f"{number}", exit_status=1)
        cluster.send(over)


def test_black_hole_alert_stays_open_until_the_node_was_offline() -> None:
    cluster = Cluster(nodes=2)
    fail_on_n1(cluster)
    assert opened(cluster) == [("black_hole", "n1")]
    (alert,) = publish_snapshot(cluster.engine.state).alerts
    assert "n1" in alert.text
    assert (alert.times, alert.since, alert.until) == (1, cluster.server.now, None)
    cluster.at(2 * FADES)
    assert opened(cluster) == [("black_hole", "n1")]
    facts = cluster.server.nodes["n1"]
    for state in ("drain", "up"):
        facts = facts.__class__(name="n1", cpus=4, state=state)
        cluster.send(NodeChanged(id=f"n1:{state}", time=cluster.server.now, node=facts))
    assert opened(cluster) == []


def test_open_alerts_survive_a_checkpoint() -> None:
    cluster = Cluster(nodes=2)
    fail_on_n1(cluster)
    before = publish_snapshot(cluster.engine.state).alerts
    again = Engine.restore(cluster.engine.checkpoint())
    assert publish_snapshot(again.state).alerts == before != ()


def test_an_alert_of_a_moment_is_over_when_it_was_not_raised_for_a_while() -> None:
    cluster = Cluster(nodes=1)

    def stranger(number: int) -> None:
        share = (ShareFacts("n1", 1),)
        cluster.send(JobStarted(id=f"s:{number}", time=cluster.server.now, job_id=f"x{number}", shares=share))

    stranger(1)
    assert opened(cluster) == [("unknown_job", "")]
    cluster.at(FADES - 1)
    stranger(2)
    (alert,) = publish_snapshot(cluster.engine.state).alerts
    assert (alert.since, alert.last, alert.times, alert.until) == (T, T + FADES - 1, 2, T + 2 * FADES - 1)
    cluster.at(2 * FADES)
    cluster.send()
    assert opened(cluster) == []


def test_alert_of_a_rejected_snapshot_stays_open_until_one_is_accepted() -> None:
    cluster = Cluster(nodes=1)
    now = cluster.server.now
    cluster.send(Snapshot(id="cut", time=now, jobs=(), nodes=(), queues=(), complete=False))
    assert opened(cluster) == [("snapshot", "")]
    cluster.send(cluster.server.snapshot())
    assert opened(cluster) == []


def test_every_kind_that_is_raised_is_known_and_documented() -> None:
    folders = (ROOT / "schedd" / "engine", ROOT / "schedd" / "features")
    sources = "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    raised = set(re.findall(r"\.alert\(\s*[\w.]+, \"(\w+)\"", sources))
    shell = {
        *(ADAPTER_TROUBLES.keys() - {"unreadable"}),
        "adapter",
        "background",
        "calls",
        "clock",
        "database",
        "nodes_down",
        "notices",
        "planner",
        "promises",
        "server",
        "settings",
        "webhook",
    }
    assert raised | shell == set(alert_kinds())
    page = (ROOT / "docs" / "reference" / "monitoring.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)) >= set(alert_kinds())


def test_an_alert_about_a_reservation_ends_with_it() -> None:
    cluster = Cluster(nodes=1)
    cluster.reserve("school", "n1", "n9", start=0, end=100)
    assert opened(cluster) == [("reservation", "school")]
    cluster.at(100)
    assert opened(cluster) == []


def test_past_reservation_reported_again_raises_no_alert() -> None:
    cluster = Cluster(nodes=1)
    cluster.reserve("R1.s", "n1", start=0, end=100)
    cluster.at(110)
    cluster.reserve("R1.s", "n1", start=0, end=100)
    assert (opened(cluster), cluster.alerts("reservation")) == ([], [])
    assert not reservation_records(cluster.engine.state)
