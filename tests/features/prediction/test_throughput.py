"""Run times from a throughput, by the planned nodes, and their effects."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schedd.dialect.throughput import Work
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.prediction.expected_starts import compute_expected_starts, expected_starts_input
from schedd.features.prediction.state import run_time_predictions
from schedd.features.prediction.throughput import (
    measured_run_times,
    rate_on,
    run_time,
    with_measured_run_times,
)
from schedd.predict import LEVELS, Prediction
from schedd.wire import NodeChanged, NodeFacts
from tests.engine.cluster import Cluster, T

FAST, SLOW = ("n1", ("epyc",), 2.0), ("n2", ("old",), 1.0)
APPS = {"emo": {"epyc": 10.0, "*": 3.0}}


@pytest.mark.parametrize(
    ("work", "fast", "slow"),
    [
        (Work(100, 4), 8, 4),
        (Work(100, 4, (("old", 1),)), 8, 1),
        (Work(100, 0, (("epyc", 5),)), 5, None),
        (Work(100, 0, (("epyc", 5), ("n1", 6))), 6, None),
        (Work(100, app="emo"), 10, 3),
        (Work(100, 0, (("epyc", 7),), "emo"), 7, 3),
        (Work(100, 4, app="emo"), 8, 4),
        (Work(100, app="other"), None, None),
    ],
)
def test_rate_of_a_node_is_configured_or_proportional_to_its_speed(
    work: Work, fast: float | None, slow: float | None
) -> None:
    assert (rate_on(work, FAST, APPS), rate_on(work, SLOW, APPS)) == (fast, slow)


def test_run_time_depends_on_the_slowest_node_and_is_unknown_with_an_unknown_node() -> None:
    work = Work(1_000, 0, (("epyc", 10), ("old", 4)))
    assert run_time(work, [FAST], APPS) == 100
    assert run_time(work, [FAST, SLOW], APPS) == 250
    assert run_time(work, [FAST, ("n3", (), 1.0)], APPS) is None
    assert run_time(work, [], APPS) is None
    assert run_time(Work(1, 1e9), [FAST], APPS) == 1


def test_throughput_of_a_running_job_gives_its_total_run_time() -> None:
    width = LEVELS.shape[0]
    ends = np.full(width, 900, np.int64)
    one = Prediction(1_000, ends, np.zeros(width), np.ones(6, np.int64), elapsed=300)
    found = with_measured_run_times({"1": one, "2": one}, {"1": 100})
    assert (found["1"].p50, found["1"].elapsed) == (100, 0)
    assert found["2"] is one


class ThroughputSite(Cluster):
    """A fast node and a slow one, each of four cpus; run times are predicted."""

    def __init__(self, **site: Any) -> None:
        super().__init__(2, predict=True, site=site)
        kinds = (("n1", ("epyc",)), ("n2", ("old",)))
        nodes = [NodeFacts(name=name, cpus=4, properties=of) for name, of in kinds]
        for node in nodes:
            self.server.nodes[node.name] = node
        self.send(*(NodeChanged(id=f"c{one.name}", time=T, node=one) for one in nodes))

    def seconds(self) -> dict[str, int]:
        state = self.engine.state
        return measured_run_times(state.by_slot, state.plan, state.site.throughput)


RATES = {"x.work_units": "1000", "x.work_rate": "epyc/10+old/4"}


def test_prediction_follows_the_planned_nodes_of_a_job() -> None:
    site = ThroughputSite()
    site.submit("1", "1:epyc:ppn=4", 400)
    site.submit("2", "1:ppn=4", 3_600, resources=RATES)
    assert (site.start("2"), site.seconds()) == (0, {"2": 250}), "it runs on the old one at once"
    site.submit("3", "1:epyc:ppn=4", 3_600, resources=RATES)
    site.submit("4", "1:ppn=4", 3_600)
    assert site.seconds()["3"] == 100
    site.submit("5", "1:ppn=4", 3_600, resources=RATES)
    assert site.seconds()["5"] in (100, 250)
    before = site.seconds()["5"]
    lost = "n1" if before == 100 else "n2"
    down = replace(site.server.nodes[lost], state="drain")
    site.send(NodeChanged(id="down", time=T, node=down))
    assert site.seconds()["5"] == 350 - before, "the other kind of node"


def test_expected_starts_behind_it_follow_its_throughput_and_the_plan_its_walltime() -> None:
    site = ThroughputSite()
    site.submit("1", "2:ppn=4", 3_600, resources={"x.work_units": "2000", "x.work_rate": "epyc/10+old/4"})
    site.submit("2", "2:ppn=4", 3_600)
    assert site.start("2") == 3_600
    given = expected_starts_input(site.engine.state)
    assert given is not None
    found = compute_expected_starts(given)
    assert (found.measured, found.predictions["1"].p50, found.predictions["1"].p90) == ({"1": 500}, 500, 550)
    assert 400 <= found.starts["2"].expected.p50 - T <= 600


def test_a_prediction_is_never_longer_than_the_walltime() -> None:
    site = ThroughputSite()
    site.submit("1", "1:old:ppn=4", 100, resources=RATES)
    given = expected_starts_input(site.engine.state)
    assert given is not None
    assert compute_expected_starts(given).measured == {"1": 250}
    assert given.predictions["1"].p90 == 100


def test_unknown_application_rates_fall_back_to_similar_jobs() -> None:
    site = ThroughputSite(throughput={"emo": {"old": 2.0}})
    site.submit("1", "1:old:ppn=4", 3_600, resources={"x.work_units": "100", "x.work_app": "emo"})
    site.submit("2", "1:epyc:ppn=4", 3_600, resources={"x.work_units": "100", "x.work_app": "emo"})
    assert site.seconds() == {"1": 50}
    given = expected_starts_input(site.engine.state)
    assert given is not None
    assert set(given.predictions) == {"1", "2"}


def learn_on_fast_node(**site: Any) -> ThroughputSite:
    """Return a site of a fast and a slow node that has learned from jobs of 400 s on the fast one."""
    cluster = ThroughputSite(**site)
    for i in range(30):
        cluster.submit(f"past{i}", "1:epyc:ppn=4", 10_000, runtime=400)
        cluster.at(500 * (i + 1))
    return cluster


@pytest.mark.parametrize("slow", [0.25, 0.5, 1.0, 4.0])
def test_prediction_from_similar_jobs_follows_the_speed_of_the_planned_nodes(slow: float) -> None:
    site = learn_on_fast_node(speeds={"epyc": 2.0, "old": slow})
    now = site.server.now
    for name, node in (("1", "epyc"), ("2", "old")):  # they run
        site.submit(name, f"1:{node}:ppn=4", 10_000)
    for name, node in (("3", "epyc"), ("4", "old")):  # they wait
        site.submit(name, f"1:{node}:ppn=4", 10_000)
    given = expected_starts_input(site.engine.state)
    assert given is not None
    found = compute_expected_starts(given)
    on_slow = 400 * 2.0 / slow
    for fast, other in (("1", "2"), ("3", "4")):
        assert found.predictions[fast].p50 == pytest.approx(400, rel=0.02)
        assert found.predictions[other].p50 == pytest.approx(on_slow, rel=0.02)
    assert found.starts["3"].expected.p50 - now == pytest.approx(400, rel=0.02)
    assert found.starts["4"].expected.p50 - now == pytest.approx(on_slow, rel=0.02)
    source = run_time_predictions(site.engine.state)
    assert source is not None
    for job in ("3", "4"):
        at_submission = source(job)
        assert at_submission is not None
        assert at_submission.p50 == pytest.approx(found.predictions[job].p50, rel=0.02)


def test_a_job_on_nodes_of_another_speed_says_what_is_scaled() -> None:
    site = ThroughputSite(speeds={"epyc": 4.0, "n2": 1.0})
    for name, node in (("1", "epyc"), ("2", "epyc"), ("3", "old")):
        site.submit(name, f"1:{node}:ppn=4", 600)
    site.submit("4", "2:ppn=4", 600)
    published = publish_snapshot(site.engine.state)
    found = {name: job_view(published, name) for name in "1234"}
    words = "on nodes of speed 4, for which its run time is predicted"
    assert {name: view is not None and words in view.notes for name, view in found.items()} == {
        "1": True, "2": True, "3": False, "4": False,
    }  # fmt: skip


def test_without_speeds_predictions_are_those_of_similar_jobs() -> None:
    site = learn_on_fast_node()
    site.submit("1", "1:old:ppn=4", 10_000)
    given = expected_starts_input(site.engine.state)
    assert given is not None
    assert given.predictions["1"].p50 == pytest.approx(400, rel=0.02)
