"""A job's predicted run time over HTTP: its source, its value on each type of nodes, past errors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.cli.main import main
from schedd.dashboard import add_dashboard
from schedd.engine import Engine, EngineSettings
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.features.prediction.run_times import PastError, past_error
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.questions.published_start import OWN_FORECAST
from schedd.service.settings.daemon import StoreSettings
from schedd.store.records import JobHistory
from schedd.wire import ExpectedFacts, NodeChanged, NodeFacts, StartsExpected
from tests.api.conftest import EVENTS, token
from tests.api.served_app import serving
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import StillClock, T, job
from tests.waits import WAIT_S, wait_until

RATES = {"x.work_units": "12000", "x.work_rate": "epyc/10+old/2"}
SITE: dict[str, Any] = {"throughput": {"emo": {"epyc": 8.0}}}


def events() -> list[dict[str, Any]]:
    """A fast node and a slow one; jobs 3 to 5 wait: 3 has a throughput, 4 a throughput and a too short
    walltime, and 5 an application for which the site knows only the fast nodes.
    """
    found = [dict(one) for one in EVENTS]
    for event, kind in zip(found, ("epyc", "old"), strict=False):
        event["node"] = {**event["node"], "properties": [kind]}
    more = (RATES, {**RATES, "x.work_units": "120000"}, {"x.work_units": "80", "x.work_app": "emo"})
    for event, resources in zip(found[-3:], more, strict=True):
        event["job"] = {**event["job"], "resources": {**event["job"]["resources"], **resources}}
    return found


@pytest.fixture(params=[False, True], ids=["without a database", "with one"])
def site(the_app: FastAPI, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    kept = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/schedd.sqlite")) if request.param else None
    clusters = Clusters(
        {"main": EngineSettings(site=site_policy(SITE)).with_changes(predict=True)},
        StillClock(),
        durable=kept,
    )
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        wait_until(lambda: client.get("/leadz").status_code == 200)
        assert client.post(f"{MAIN}/events", json={"events": events()}).status_code == 200
        clusters.service("main", ExpectedStartWorker).run_once()
        yield client
    clusters.stop()


def test_a_throughput_gives_run_times_for_each_node_type(
    site: TestClient,
) -> None:
    found = get(site, "/jobs/3/run-time")
    node = get(site, "/jobs/3")["planned_nodes"][0]["node"]
    seconds = {"n1": 1_200, "n2": 6_000}[node]
    assert (found["source"], found["walltime"], found["units"]) == ("throughput", 3_600, 12_000)
    assert found["p50"] == min(3_600, seconds)
    assert found["too_short"] == (node == "n2")
    assert [(one["rate"], one["run_time"], one["nodes"], one["some"]) for one in found["on"]] == [
        (10, 1_200, 1, ["n1"]),
        (2, 6_000, 1, ["n2"]),
    ]
    kept = site.app.state.clusters.durable is not None  # type: ignore[attr-defined]
    assert found["past"] == ({"jobs": 0, "median_error": None, "longer": None} if kept else None)


def test_a_too_short_walltime_is_reported(site: TestClient) -> None:
    found = get(site, "/jobs/4/run-time")
    assert (found["too_short"], found["p50"], found["p90"]) == (True, 3_600, 3_600)


def test_jobs_without_throughput_are_predicted_from_similar_jobs(site: TestClient) -> None:
    plain = get(site, "/jobs/1/run-time")
    assert (plain["source"], plain["units"], plain["on"], plain["past"]) == ("templates", None, [], None)
    assert plain["p50"] <= plain["p90"] <= 3_600
    app = get(site, "/jobs/5/run-time")
    node = get(site, "/jobs/5")["planned_nodes"][0]["node"]
    assert (app["source"], [one["some"] for one in app["on"]]) == (
        "throughput" if node == "n1" else "templates",
        [["n1"]],
    )
    assert site.get(f"{MAIN}/jobs/99/run-time").status_code == 404


def test_what_if_predicts_by_the_throughput_of_its_request(site: TestClient) -> None:
    request = {
        "nodes": "1:ppn=4",
        "walltime": "3600",
        "x.work_units": "12000",
        "x.work_rate": "epyc/10+old/20",
    }
    found = site.post(f"{MAIN}/what-if", json={"resources": request}).json()
    node = found["planned_nodes"][0]["node"]
    assert found["predicted_run_time"] == {"n1": 1_200, "n2": 600}[node]


def test_before_the_first_round_nothing_is_predicted(busy_cluster: TestClient) -> None:
    found = get(busy_cluster, "/jobs/3/run-time")
    assert (found["source"], found["p50"], found["too_short"]) == ("", None, False)


def past_job(owner: str, run: int, node: str, how: str = "ended", **resources: str) -> JobHistory:
    return JobHistory(
        id="9.server",
        owner=owner,
        queue="batch",
        name="",
        resources={"nodes": "1", **resources},
        submitted=T,
        state="C",
        runs=1,
        started=T + 10,
        held=((node, 4),),
        ended=T + 10 + run,
        exit_status=0,
        how=how,
    )


def test_prediction_errors_use_the_owners_jobs_on_their_actual_nodes() -> None:
    engine = Engine(EngineSettings(), T)
    nodes = [
        NodeFacts(name="n1", cpus=4, properties=("epyc",)),
        NodeFacts(name="n2", cpus=4, properties=("old",)),
    ]
    engine.handle([NodeChanged(id=one.name, time=T, node=one) for one in nodes], T)
    published = publish_snapshot(engine.state)
    some = [
        past_job("ann@login", 1_320, "n1", **RATES),  # of 1,200 predicted
        past_job("ann@login", 5_400, "n2", **RATES),  # of 6,000
        past_job("ann@login2", 1_212, "n1", **RATES),  # submitted on another host
        past_job("ann@login", 1, "n1", "deleted", **RATES),
        past_job("bob@login", 1, "n1", **RATES),
        past_job("ann@login", 1, "n1"),
        past_job("ann@login", 1, "n9", **RATES),
    ]
    found = past_error(published, "ann@login", some)
    assert found.jobs == 3
    assert found.median_error == pytest.approx(0.1)
    assert found.longer == pytest.approx(2 / 3)
    assert past_error(published, "eve@login", some) == PastError(0, None, None)


@pytest.fixture
def command(
    the_app: FastAPI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Returns what a command prints after these events, and a round of predictions."""
    clusters = Clusters(
        {"main": EngineSettings(site=site_policy(SITE), publish_starts=False).with_changes(predict=True)},
        StillClock(),
    )
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SCHEDD_TOKEN", token("admin"))
    monkeypatch.setenv("COLUMNS", "100")
    with serving(the_app, clusters) as url:
        monkeypatch.setenv("SCHEDD_URL", url)
        client = TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"})

        def run(words: str, given: list[dict[str, Any]]) -> str:
            assert client.post(f"{MAIN}/events", json={"events": given}).status_code == 200
            clusters.service("main", ExpectedStartWorker).run_once()
            assert main(words.split()) == 0
            return capsys.readouterr().out

        yield run
    clusters.stop()


def test_checkjob_shows_the_run_time(command: Callable[..., str]) -> None:
    shown = command("checkjob 4", events())
    plain = command("checkjob 1", [])
    assert "run time" in shown
    assert "01:00:00 by its throughput where it is planned" in shown
    assert "longer than its walltime: it would be killed there" in shown
    assert "03:20:00 on 1 nodes: n1" in shown
    assert "run time" not in plain


def job_behind_a_wide_one(units: str) -> list[dict[str, Any]]:
    """Job 1 runs on a node for an hour, job 2 takes both after it, and job 3 asks for two hours."""
    *nodes, first, wide, late = events()[:5]
    for event in nodes:
        event["node"] = {**event["node"], "properties": ["epyc"]}
    wide["job"] = {**wide["job"], "resources": {"nodes": "2:ppn=4", "walltime": "3600"}}
    late["job"]["resources"] |= {"walltime": "7200", "x.work_units": units}
    return [*nodes, first, wide, late]


def test_a_shorter_walltime_that_starts_sooner_has_its_risk(
    command: Callable[..., str], the_app: FastAPI
) -> None:
    """The job is predicted to run for 20 minutes, and may have an hour before the wide job."""
    shown = command("showstart 3 --sooner", job_behind_a_wide_one("12000"))
    assert "walltime 01:00:00 (asked: 02:00:00); 2 % of such jobs run longer" in shown
    add_dashboard(the_app)
    page = TestClient(the_app, headers={"Accept": "text/html"})
    page.post("/dashboard/login", data={"token": token("admin")})
    text = page.get("/dashboard/main/what-if?job=3").text
    assert "<code>01:00:00</code>; 2 % of such jobs run longer" in text


@pytest.mark.parametrize(
    ("units", "gain"),
    [("12000", "walltime=00:22:00 would start it 02:00:00 sooner"), ("60000", ""), ("72000", "")],
    ids=["it fits before the wide job", "it does not", "nothing is tighter"],
)
def test_checkjob_shows_the_gain_of_a_tighter_walltime(
    command: Callable[..., str], units: str, gain: str
) -> None:
    shown = command("checkjob 3", job_behind_a_wide_one(units))
    assert ("tighter" in shown, gain in shown) == (bool(gain), True), shown
    assert ("10 % of such jobs run longer" in shown) == bool(gain)


def test_a_smaller_request_is_expected_no_later_than_the_job_was_published(site: TestClient) -> None:
    """The published forecast is older than those of altered requests, and earlier here."""
    loop = site.app.state.clusters["main"]  # type: ignore[attr-defined]
    told = ExpectedFacts("5.server", T + 600, T + 900, T + 7_200, "submission")
    loop.submit([StartsExpected(id="x", time=T, jobs=(told,))]).result(WAIT_S)
    variants = [{"request": f"walltime={seconds}"} for seconds in ("00:59:59", "02:00:00")]
    found = site.post(f"{MAIN}/what-if", json={"job": "5", "variants": variants, "sooner": True}).json()
    smaller, larger = found["variants"]
    promised = get(site, "/jobs/5")["promised_start"]
    assert (found["expected_start"], found["expected_by"]) == (T + 600, T + 900)
    assert (smaller["expected_start"], smaller["expected_by"]) == (T + 600, T + 900)
    assert (smaller["promised_start"], smaller["notes"]) == (promised, [OWN_FORECAST])
    assert larger["expected_start"] > T + 600
    assert OWN_FORECAST not in larger["notes"]


def test_a_change_of_an_unaltered_job_is_expected_no_later_than_the_job_was_published(
    site: TestClient, the_app: FastAPI
) -> None:
    loop = site.app.state.clusters["main"]  # type: ignore[attr-defined]
    wide = {"nodes": "2:ppn=4"}
    loop.submit([job("20.server", **wide, walltime="7200"), job("21.server", **wide)]).result(WAIT_S)
    site.app.state.clusters.service("main", ExpectedStartWorker).run_once()  # type: ignore[attr-defined]
    told = ExpectedFacts("21.server", T + 60, T + 120, T, "submission")
    loop.submit([StartsExpected(id="y", time=T, jobs=(told,))]).result(WAIT_S)
    found = site.post(f"{MAIN}/what-if", json={"job": "21", "sooner": True}).json()
    assert found["expected_start"] == T + 60
    later = [one for one in found["sooner_changes"] if one["planned_start"] > T + 1]
    assert [(one["change"], one["expected_start"]) for one in later] == [("nodes", T + 60)]
    add_dashboard(the_app)
    page = TestClient(the_app, headers={"Accept": "text/html"})
    page.post("/dashboard/login", data={"token": token("admin")})
    assert ", but likely no sooner</td>" in page.get("/dashboard/main/what-if?job=21").text


@pytest.mark.parametrize(
    ("expected", "by", "known"), [(T + 60, T + 600, T + 60), (T - 300, T + 600, T), (T - 900, T - 600, None)]
)
def test_the_next_start_of_a_user_is_never_in_the_past(
    site: TestClient, expected: int, by: int, known: int | None
) -> None:
    """A job after its likely start may start at any time; after its 90 % time, the planned start counts."""
    loop = site.app.state.clusters["main"]  # type: ignore[attr-defined]
    loop.submit([job("20.server", user="our-user", nodes="2:ppn=4")]).result(WAIT_S)
    told = ExpectedFacts("20.server", expected, by, T + 7_200, "submission")
    loop.submit([StartsExpected(id="x", time=T, jobs=(told,))]).result(WAIT_S)
    me = site.get("/v1/me", headers={"Authorization": f"Bearer {token('user')}"}).json()["clusters"][0]
    planned = get(site, "/jobs/20.server")["planned_start"]
    assert (me["next_job"], me["next_start"]) == ("20.server", planned if known is None else known)


@pytest.mark.parametrize("wish", [{"sooner": True}, {"changes": True, "start_by": T + 8_000}])
def test_each_change_has_the_likely_start_of_the_same_request(
    site: TestClient, wish: dict[str, object]
) -> None:
    loop = site.app.state.clusters["main"]  # type: ignore[attr-defined]
    wide = {"nodes": "2:ppn=4"}
    loop.submit([job("20.server", **wide, walltime="7200"), job("21.server", **wide)]).result(WAIT_S)
    site.app.state.clusters.service("main", ExpectedStartWorker).run_once()  # type: ignore[attr-defined]
    found = site.post(f"{MAIN}/what-if", json={"job": "21", **wish}).json()
    changes = [*found["changes"], *found["sooner_changes"]]
    later = [one for one in changes if one["planned_start"] > T + 1]
    assert [one["change"] for one in later] == ["nodes"]
    for one in later:
        assert one["expected_start"] is not None
        assert one["expected_start"] >= T
        assert one["expected_by"] is None or one["expected_start"] <= one["expected_by"]
    texts = {"walltime": "walltime={}", "cpus": "nodes=2:ppn={}", "nodes": "nodes={}:ppn=4"}
    variants = [{"request": texts[one["change"]].format(one["enough"])} for one in changes]
    same = site.post(f"{MAIN}/what-if", json={"job": "21", "variants": variants}).json()["variants"]
    for one, variant in zip(changes, same, strict=True):
        assert (one["planned_start"], one["expected_start"], one["expected_by"]) == (
            variant["planned_start"],
            variant["expected_start"],
            variant["expected_by"],
        )
