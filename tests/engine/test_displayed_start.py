"""Displayed starts: hysteresis, equal for users and for the server."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schedd.engine import Engine
from schedd.engine.facts.displayed_start import are_outdated, displayed_start, next_job_update, next_update
from schedd.engine.show.job_view import job_history, job_view, published_record
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import NodeChanged, WriteAttributes
from tests.engine.cluster import Cluster, T


def starts(cluster: Cluster, job: str) -> tuple[int | None, int | None]:
    """Return the planned and the published start of a job, after T."""
    view = job_view(publish_snapshot(cluster.engine.state), job)
    assert view is not None
    assert view.planned_start is not None
    assert view.displayed_start is not None
    return view.planned_start - T, view.displayed_start - T


def flickering(**settings: Any) -> Cluster:
    """Job 2 is planned after job 1, which will change its walltime."""
    cluster = Cluster(publish_starts=True, publish_threshold=60, **settings)
    cluster.submit("1", walltime=5000)
    cluster.submit("2", walltime=100)
    assert starts(cluster, "2") == (5000, 5000)
    return cluster


def test_flickering_start_is_displayed_after_the_pause() -> None:
    cluster = flickering(publish_pause=60)
    seen = []
    for second, walltime in enumerate((6300, 5000, 7800, 7000), start=1):
        cluster.at(10 * second)
        cluster.alter_request("1", walltime=str(walltime))
        seen.append(starts(cluster, "2"))
    assert seen == [(6300, 5000), (5000, 5000), (7800, 5000), (7000, 5000)]
    assert [told.planned_start for told in cluster.attribute_writes("2")] == [T + 5000]
    cluster.at(59)
    assert starts(cluster, "2") == (7000, 5000)
    cluster.at(60)
    assert starts(cluster, "2") == (7000, 7000)
    assert [told.planned_start for told in cluster.attribute_writes("2")] == [T + 5000, T + 7000]
    published = publish_snapshot(cluster.engine.state)
    record = published_record(published, "2")
    assert record is not None
    moves = [(move.before, move.after) for move in job_history(published, record)]
    times = [(T + a, T + b) for a, b in ((7800, 7000), (5000, 7800), (6300, 5000), (5000, 6300))]
    assert moves == [*times, (None, T + 5000)]  # the history has all of them


def test_small_move_is_not_displayed_and_the_text_has_the_displayed_start() -> None:
    cluster = flickering(publish_pause=60)
    cluster.at(100)
    cluster.alter_request("1", walltime="5060")
    assert starts(cluster, "2") == (5060, 5000)
    view = job_view(publish_snapshot(cluster.engine.state), "2")
    assert view is not None
    assert view.why.startswith("planned start 2023-11-14 23:36:40 UTC")
    cluster.alter_request("1", walltime="5061")
    assert starts(cluster, "2") == (5061, 5061)


def test_near_start_is_displayed_at_once() -> None:
    cluster = flickering(publish_pause=600)
    cluster.at(10)
    cluster.alter_request("1", walltime="611")
    assert starts(cluster, "2") == (611, 5000)
    cluster.alter_request("1", walltime="610")
    assert starts(cluster, "2") == (610, 610)


def test_displayed_start_works_without_attributes_on_the_server() -> None:
    cluster = flickering(publish_pause=60, silent=True)
    cluster.alter_request("1", walltime="6300")
    assert starts(cluster, "2") == (6300, 5000)
    cluster.at(60)
    assert starts(cluster, "2") == (6300, 6300)
    cluster.submit("bad", "1:ppn=0")  # it has no slot, so nothing is ever published of it
    assert cluster.engine.next_wake is None or cluster.engine.next_wake > T + 61
    assert [one for one in cluster.decisions if isinstance(one, WriteAttributes)] == []


def test_shadow_mode_writes_nothing_to_the_server() -> None:
    cluster = Cluster(publish_starts=True, mode="shadow")
    cluster.submit("1", walltime=5000)
    cluster.submit("2", walltime=100)
    assert starts(cluster, "2") == (5000, 5000)
    assert [one for one in cluster.decisions if isinstance(one, WriteAttributes)] == []


def test_displayed_starts_survive_a_restart() -> None:
    cluster = flickering(publish_pause=60)
    cluster.at(30)
    cluster.alter_request("1", walltime="6300")
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert starts(cluster, "2") == (6300, 5000)
    cluster.at(59)
    assert starts(cluster, "2") == (6300, 5000)
    cluster.at(60)
    assert starts(cluster, "2") == (6300, 6300)


def test_a_job_that_lost_its_start_shows_none_and_the_new_one_at_once() -> None:
    cluster = flickering(publish_pause=600)
    cluster.send(*cluster.server.hold("2"))
    view = job_view(publish_snapshot(cluster.engine.state), "2")
    assert view is not None
    assert (view.planned_start, view.displayed_start) == (None, None)
    cluster.at(5)
    cluster.alter_request("1", walltime="9000")
    cluster.send(*cluster.server.release("2"))
    assert starts(cluster, "2")[0] == 9000


def test_past_starts_are_not_displayed() -> None:
    cases = {(50, 70): 70, (65, 70): 65, (-1, 70): 70, (65, 60): 60, (65, -1): -1}
    assert {case: displayed_start(*case, 60) for case in cases} == cases


def test_the_rule() -> None:
    told, planned = np.array([100, 100, -1, 100, -1]), np.array([160, 161, 5, -1, -1])
    assert are_outdated(told, planned, 60).tolist() == [False, True, True, True, False]
    now = 10_000
    told = np.array([20_000, 20_000, 9_999, -1, 20_000])
    planned = np.array([30_000, 10_600, 30_000, 30_000, -1])
    when = np.full(5, 9_990)
    assert next_update(told, when, planned, now, 60, dispatching=True).tolist() == [
        10_050,
        now,
        now,
        now,
        now,
    ]


@pytest.mark.parametrize("dispatching", [True, False])
@pytest.mark.parametrize("pause", [0, 10, 600])
def test_update_of_one_job_matches_that_of_many(pause: int, dispatching: bool) -> None:
    rng = np.random.default_rng(pause)
    now = 10_000
    near = [-1, *(now + shift for shift in (-700, -6, -5, -4, -1, 0, 1, 5, 6, 7, 599, 600, 601, 602, 5_000))]
    published, planned, at = rng.choice(near, (3, 3_000))
    found = [
        next_job_update(int(one), int(when), int(start), now, pause, dispatching=dispatching)
        for one, when, start in zip(published, at, planned, strict=True)
    ]
    assert found == next_update(published, at, planned, now, pause, dispatching=dispatching).tolist()


def test_job_on_an_offline_node_shows_it_at_once() -> None:
    cluster = Cluster(publish_starts=True, publish_pause=600)
    cluster.submit("1", "n1:ppn=4", 5000)
    cluster.submit("2", "n1:ppn=4", 5000)
    assert starts(cluster, "2") == (5000, 5000)
    cluster.at(10)
    facts = replace(cluster.server.nodes["n1"], state="drain")
    cluster.send(NodeChanged(id="off", time=cluster.server.now, node=facts))
    (_, told) = cluster.attribute_writes("2")
    assert (told.time, told.planned_start) == (T + 10, None)
    assert told.text == "waiting for node n1, which is offline"


def test_near_start_is_rewritten_at_most_twice_a_minute() -> None:
    cluster = Cluster(publish_starts=True, publish_threshold=60, publish_pause=60)
    cluster.submit("1", walltime=300)
    cluster.submit("2", walltime=100)
    for second, walltime in enumerate((500, 300, 550, 400, 520, 380), start=1):
        cluster.at(3 * second)
        cluster.alter_request("1", walltime=str(walltime))
    assert [told.planned_start for told in cluster.attribute_writes("2")] == [T + 300]
    cluster.at(31)
    assert [told.planned_start for told in cluster.attribute_writes("2")] == [T + 300, T + 380]


def test_imminent_start_is_written_only_if_it_does_not_happen() -> None:
    cluster = Cluster(publish_starts=True, publish_threshold=60, publish_pause=60, end_allowance=0)
    cluster.submit("1", walltime=4)
    cluster.obeys = False
    cluster.submit("2", walltime=100)
    cluster.at(3)
    assert cluster.attribute_writes("2") == []
    now = 10_000
    planned = np.array([now - 5, now - 4, now, now + 5, now + 6])
    told = np.full(5, -1)
    updates = next_update(told, told, planned, now, 60, dispatching=True)
    assert updates.tolist() == [now, now + 1, now + 5, now + 10, now]
    assert next_update(told, told, planned, now, 60, dispatching=False).tolist() == [now] * 5
