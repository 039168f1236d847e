"""The landing page of a daemon with several clusters, and the faults that all pages name."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.dashboard.filters import capitalise_first, localise_times
from schedd.engine import EngineSettings
from schedd.engine.facts.alerts import alert_kinds
from schedd.service.access.callers import Callers
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.current_faults import REMEDIES, SEVERE_KINDS, fill_in_remedy
from schedd.service.settings.auth import AuthSettings
from schedd.service.warmup import warm_up
from tests.dashboard.conftest import token, tokens
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    """Three clusters of two nodes; two jobs run and one waits."""
    warm_up()
    clusters = Clusters({name: EngineSettings() for name in ("alpha", "beta", "gamma")}, StillClock())
    clusters.start(warm=False)
    for loop in clusters:
        loop.record_adapter_request()
        loop.submit((node("n1"), node("n2"), *(job(f"{i}.server") for i in range(1, 4)))).result(WAIT_S)
    app = create_app(clusters, Callers(tokens(), AuthSettings(others="none")))
    add_dashboard(app)
    yield app
    clusters.stop()


def landing_page(app: FastAPI, role: str) -> dict[str, str]:
    """The text of each card, by cluster, in the page's order."""
    client = TestClient(app, headers={"Accept": "text/html"})
    client.post("/dashboard/login", data={"token": token(role)})
    page = client.get("/dashboard/").text
    cards = re.findall(r'<li class="card[^"]*" data-key="(\w+)">(.*?)<p class="links">', page, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", " ", text).split()) for name, text in cards}


def silence_adapter(loop: PlanLoop) -> None:
    loop.adapter_contact.record_request(loop.now())
    loop.adapter_contact.last -= 120
    loop.alerts.update()


def test_cards_show_health_jobs_and_free_capacity(app: FastAPI) -> None:
    cards = landing_page(app, "reader")
    assert list(cards) == ["alpha", "beta", "gamma"]
    for text in cards.values():
        assert "Job starts: on Waiting 1 job Running 2 jobs Next free" in text


def test_cards_name_faults_with_the_command_that_helps_and_troubled_clusters_come_first(app: FastAPI) -> None:
    beta, gamma = app.state.clusters["beta"], app.state.clusters["gamma"]
    silence_adapter(beta)
    gamma.pause("cooling fault").result(WAIT_S)
    gamma.settings_problem = "the settings were rejected: log.level"
    gamma.alerts.update()
    try:
        cards = landing_page(app, "operator")
        assert list(cards) == ["beta", "gamma", "alpha"]
        assert cards["beta"].startswith("beta Job starts: stopped, adapter silent")
        assert "No contact with the adapter since" in cards["beta"]
        assert re.search(r"Last known free \d of \d cores .* Numbers of .*; not known since", cards["beta"])
        assert "Last known" not in cards["alpha"]
        assert REMEDIES["adapter"].replace("`", "") in html.unescape(cards["beta"])
        assert re.match(
            r"gamma Job starts: paused: cooling fault since .*\d\d:\d\d.* schedd resume gamma", cards["gamma"]
        )
        assert "The settings were rejected: log.level" in cards["gamma"]
        seen_by_user = landing_page(app, "user")
        assert "No contact with the adapter since" in seen_by_user["beta"]
        assert "systemctl" not in seen_by_user["beta"]
        assert "schedd resume" not in seen_by_user["gamma"]
        assert "log.level" not in seen_by_user["gamma"]
    finally:
        beta.record_adapter_request()
        gamma.settings_problem = ""
        gamma.resume().result(WAIT_S)
        for loop in (beta, gamma):
            loop.alerts.update()


def test_the_admin_page_shows_current_faults_first(app: FastAPI) -> None:
    gamma = app.state.clusters["gamma"]
    client = TestClient(app, headers={"Accept": "text/html"})
    client.post("/dashboard/login", data={"token": token("operator")})
    page = client.get("/dashboard/gamma/admin").text
    assert "Job starts: on, at their planned times." in page
    silence_adapter(gamma)
    try:
        page = client.get("/dashboard/gamma/admin").text
        headings = re.findall(r'<h2 id="h-(\w+)"', page)
        assert headings[:4] == ["now", "holds", "dispatch", "search"]
        assert page.count("Job starts: stopped, adapter silent") == 2
        assert "Job starts: on" not in page
        remedies = [re.sub(r"<[^>]+>", "", one) for one in re.findall(r"<code>.*?</code>", page)]
        assert "systemctl restart pbs-adapter" in remedies, "only the command is set as code"
        assert " on the server&#39;s host" in page
    finally:
        gamma.record_adapter_request()
        gamma.alerts.update()


def test_every_kind_of_alert_has_a_remedy() -> None:
    assert set(REMEDIES) == set(alert_kinds())
    assert set(alert_kinds()) >= SEVERE_KINDS


def test_every_text_of_the_daemon_on_a_page_has_its_times_in_the_zone_of_the_reader() -> None:
    """A text such as ``cluster.stale`` names times in UTC; the filter ``timed`` marks them for the script."""
    names = r"text|cause|stale|halted|paused|trouble|why|words|requirement"
    raw = re.compile(r"(?<![=\"'])>[^<]*?\{\{ *([\w.]+\.(?:" + names + r"))( \| \w+)* *\}\}")
    found = []
    for path in (ROOT / "schedd").rglob("*.html"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [
                (path.name, number, match[0]) for match in raw.finditer(line) if "| timed" not in match[0]
            ]
    assert found == []
    assert capitalise_first("schedd.sqlite: the disk is full") == "schedd.sqlite: the disk is full"
    text = localise_times(capitalise_first("silent since 2026-11-27 03:23:24 UTC"))
    assert text == ('Silent since <time datetime="2026-11-27T03:23:24Z">2026-11-27 03:23:24 UTC</time>')


def test_names_with_the_words_of_a_remedy_are_filled_in_once() -> None:
    assert fill_in_remedy("pbsnodes NODE", "JOBNODE7", "main") == "pbsnodes JOBNODE7"
    assert fill_in_remedy("schedd resume CLUSTER", "n1", "NODES") == "schedd resume NODES"
    assert fill_in_remedy("qdel JOB", "", "main") == "qdel JOB"
    assert fill_in_remedy("hold NODES", "n1", "main") == "hold NODES"


def test_remedies_have_no_other_placeholders_and_those_of_a_job_name_no_node() -> None:
    known = {"CLUSTER", "NODE", "JOB"}
    for kind, remedy in REMEDIES.items():
        words = set(re.findall(r"\b[A-Z]{3,}\b", remedy))
        assert words <= known or kind in ("resource", "promises", "writing"), (
            kind
        )  # USER and FILE are not known here
        assert not {"NODE", "JOB"} <= words, kind  # an alert is about one of them
