"""Licences counted by a program."""

import re
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import Cause
from schedd.features.licences.state import licence_counts
from schedd.policy.site import site_policy
from schedd.wire import ResourceCounted
from tests.engine.cluster import Cluster, T

POLLED: dict[str, Any] = {"licences": {"matlab": {"command": ["/bin/count"]}}}


def submit_count(cluster: Cluster, amount: int, *, free: bool = False) -> None:
    server = cluster.server
    event = ResourceCounted(id=server.event_id(), time=server.now, name="matlab", amount=amount, free=free)
    cluster.send(event)


def submit_jobs(cluster: Cluster, *ids: str) -> None:
    for job in ids:
        cluster.submit(job, "1:ppn=1", walltime=100, resources={"matlab": "1"})


def test_uncounted_licence_has_no_copies() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    submit_jobs(cluster, "1")
    assert cluster.view("1").waiting_for == "limit"
    assert "at most 0 matlab" in cluster.view("1").why
    submit_count(cluster, 1)
    assert cluster.start("1") == 0


def test_jobs_follow_the_counted_copies() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    submit_count(cluster, 2)
    submit_jobs(cluster, "1", "2", "3", "4")
    assert [cluster.start(job) for job in "1234"] == [0, 0, 100, 100]
    submit_count(cluster, 1)
    assert [cluster.start(job) for job in "34"] == [100, 200]
    assert cluster.at_risk("4") == Cause.LICENCE
    submit_count(cluster, 4)
    cluster.at(1)
    assert [cluster.start(job) for job in "34"] == [0, 0]


def test_free_count_is_added_to_copies_held_by_running_jobs() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    submit_count(cluster, 2)
    submit_jobs(cluster, "1", "2")
    submit_count(cluster, 1, free=True)
    assert cluster.engine.state.limits.copies == {"matlab": 3}
    submit_jobs(cluster, "3", "4")
    assert [cluster.start(job) for job in "34"] == [0, 100]


def test_smaller_value_among_configured_and_counted_copies_applies() -> None:
    site = {"licences": {"matlab": {"copies": 2, "command": ["/bin/count"]}, "ansys": {"copies": 1}}}
    cluster = Cluster(nodes=1, site=site)
    submit_count(cluster, 5)
    assert cluster.engine.state.limits.copies == {"matlab": 2, "ansys": 1}


def test_count_survives_a_checkpoint_and_ends_with_its_licence() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    submit_count(cluster, 2)
    again = Engine.restore(cluster.engine.checkpoint())
    assert licence_counts(again.state).counted == {"matlab": (2, T)}
    assert again.state.limits.copies == {"matlab": 2}
    cluster.send(ResourceCounted(id="x:1", time=T, name="told", amount=5))
    more = {"licences": {"ansys": {"command": ["/bin/count"]}}}
    other = Engine.restore(cluster.engine.checkpoint(), EngineSettings(site=site_policy(more)))
    other.handle([], T)
    assert other.state.limits.copies == {"ansys": 0, "told": 5}


def test_outdated_count_opens_a_single_alert_until_the_next_count() -> None:
    cluster = Cluster(site=POLLED)
    cluster.at(61)
    submit_count(cluster, 5)
    for moment in (300, 600, 662, 700, 900):
        cluster.at(moment)
        cluster.send()
    submit_count(cluster, 5)
    cluster.at(1000)
    cluster.send()
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    for moment in range(1100, 2000, 100):
        cluster.at(moment)
        cluster.send()
    never, *old = cluster.alerts("licence")
    assert never == "licence matlab was never counted; it is planned with 0 of it"
    ages = [re.fullmatch(r"licence matlab was last counted (\d+) s ago; .* 5 of it", words) for words in old]
    assert [600 <= int(age[1]) <= 700 for age in ages if age is not None] == [True, True]
