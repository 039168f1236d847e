"""Licences that somebody counts."""

import re
from typing import Any

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.records import Cause
from schedd.features.licences.state import licence_counts
from schedd.wire import ResourceCounted
from tests.engine.cluster import Cluster, T

POLLED: dict[str, Any] = {"licences": {"matlab": {"command": ["/bin/count"]}}}


def count(cluster: Cluster, amount: int, *, free: bool = False) -> None:
    server = cluster.server
    event = ResourceCounted(id=server.event_id(), time=server.now, name="matlab", amount=amount, free=free)
    cluster.tell(event)


def jobs(cluster: Cluster, *ids: str) -> None:
    for job in ids:
        cluster.submit(job, "1:ppn=1", walltime=100, resources={"matlab": "1"})


def test_before_it_is_counted_there_is_nothing_of_a_licence() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    jobs(cluster, "1")
    assert cluster.view("1").waiting_for == "limit"
    assert "at most 0 matlab" in cluster.view("1").why
    count(cluster, 1)
    assert cluster.start("1") == 0


def test_jobs_follow_what_is_counted() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    count(cluster, 2)
    jobs(cluster, "1", "2", "3", "4")
    assert [cluster.start(job) for job in "1234"] == [0, 0, 100, 100]
    count(cluster, 1)
    assert [cluster.start(job) for job in "34"] == [100, 200]
    assert cluster.at_risk("4") == Cause.LICENCE
    count(cluster, 4)
    cluster.at(1)
    assert [cluster.start(job) for job in "34"] == [0, 0]


def test_what_is_free_counts_beside_what_running_jobs_hold() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    count(cluster, 2)
    jobs(cluster, "1", "2")
    count(cluster, 1, free=True)
    assert cluster.engine.state.limits.copies == {"matlab": 3}
    jobs(cluster, "3", "4")
    assert [cluster.start(job) for job in "34"] == [0, 100]


def test_of_copies_and_a_count_the_least_holds() -> None:
    site = {"licences": {"matlab": {"copies": 2, "command": ["/bin/count"]}, "ansys": {"copies": 1}}}
    cluster = Cluster(nodes=1, site=site)
    count(cluster, 5)
    assert cluster.engine.state.limits.copies == {"matlab": 2, "ansys": 1}


def test_a_count_outlives_a_checkpoint_and_goes_with_its_licence() -> None:
    cluster = Cluster(nodes=1, site=POLLED)
    count(cluster, 2)
    again = Engine.restore(cluster.engine.checkpoint())
    assert licence_counts(again.state).counted == {"matlab": (2, T)}
    assert again.state.limits.copies == {"matlab": 2}
    cluster.tell(ResourceCounted(id="x:1", time=T, name="told", amount=5))
    more = {"licences": {"ansys": {"command": ["/bin/count"]}}}
    other = Engine.restore(cluster.engine.checkpoint(), EngineSettings(site=more))
    other.handle([], T)
    assert other.state.limits.copies == {"ansys": 0, "told": 5}


def test_a_count_that_is_old_is_told_once_and_again_after_it_was_counted() -> None:
    cluster = Cluster(site=POLLED)
    cluster.at(61)
    count(cluster, 5)
    for moment in (300, 600, 662, 700, 900):
        cluster.at(moment)
        cluster.tell()
    count(cluster, 5)
    cluster.at(1000)
    cluster.tell()
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    for moment in range(1100, 2000, 100):
        cluster.at(moment)
        cluster.tell()
    never, *old = cluster.alerts("licence")
    assert never == "licence matlab was never counted; it is planned with 0 of it"
    ages = [re.fullmatch(r"licence matlab was last counted (\d+) s ago; .* 5 of it", words) for words in old]
    assert [600 <= int(age[1]) <= 700 for age in ages if age is not None] == [True, True]
