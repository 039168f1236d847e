"""History of fair shares: samples in the database, and what API, command and page show."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import structlog

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.dashboard.mount import add_dashboard
from schedd.engine import EngineSettings
from schedd.features.fair_share.api import ShareCourseView, _fairness, share_courses
from schedd.features.fair_share.background import ShareHistoryWorker, sample_shares
from schedd.features.fair_share.plot import build_share_plot
from schedd.features.fair_share.tree import RatedTree, ShareTree
from schedd.policy.site import site_policy
from schedd.service.access.callers import Callers
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.settings.daemon import StoreSettings
from schedd.store.records import ShareSample, StoredShare
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.engine.cluster import Cluster
from tests.service.planner_harness import StillClock, T, job, node
from tests.waits import WAIT_S

HOUR = 3600
SITE = {
    "fair_share": {
        "levels": ["account", "user"],
        "shares": {"science": 3, "arts": 1, "physics": 1},
        "parents": {"physics": "science"},
    }
}
Run = Callable[..., tuple[int, str, str]]


def sample(at: int, received: float) -> ShareSample:
    return ShareSample(
        at,
        (
            StoredShare("science", "", 0.75, received),
            StoredShare("science/physics/our-user", "our-user", 0.25, received / 2),
            StoredShare("arts/eve", "eve", 0.25, 1 - received),
        ),
    )


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Clusters, StillClock]]:
    """A daemon with a database and fair share, two jobs, and three samples of the last hours."""
    clock = StillClock()
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path_factory.mktemp('d')}/a.sqlite"))
    clusters = Clusters({"main": EngineSettings(site=site_policy(SITE))}, clock, durable=durable)
    clusters.start(warm=False)
    loop = clusters["main"]
    loop.submit([node("n1", 8), job("1.srv", user="our-user"), job("2.srv", user="eve")]).result(WAIT_S)
    history = clusters.service("main", ShareHistoryWorker).history
    for hours, received in ((3, 0.2), (2, 0.4), (1, 0.6)):
        history.add(sample(T - hours * HOUR, received))
    app = create_app(clusters, Callers(tokens()))
    add_dashboard(app)
    with structlog.testing.capture_logs(), serving(app, clusters) as url:
        yield url, clusters, clock
    clusters.stop()


@pytest.fixture
def run(
    daemon: tuple[str, Clusters, StillClock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, value in (("SCHEDD_URL", daemon[0]), ("COLUMNS", "100"), ("TZ", "UTC")):
        monkeypatch.setenv(name, value)
    time.tzset()

    def run(*args: str, role: str = "admin") -> tuple[int, str, str]:
        monkeypatch.setenv("SCHEDD_TOKEN", token(role))
        try:
            code = main(("fair-share", *args))
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_a_sample_has_the_largest_places_with_their_users(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(nodes=1, site=SITE)
    cluster.submit("1", walltime=100, account="physics")
    cluster.at(50)
    found = sample_shares(cluster.engine)
    assert found is not None
    assert found.shares[:3] == (
        StoredShare("science", "", 0.75, 1.0),
        StoredShare("science/physics", "", 0.75, 1.0),
        StoredShare("science/physics/ann", "ann", 0.75, 1.0),
    )
    monkeypatch.setattr("schedd.features.fair_share.background.MAX_PLACES", 1)
    limited = sample_shares(cluster.engine)
    assert limited is not None
    assert len(limited.shares) == 1
    assert sample_shares(Cluster(nodes=1).engine) is None
    cluster.engine.state.stale = (
        "the plan is made anew"  # running jobs are not known before the next snapshot
    )
    assert sample_shares(cluster.engine) is None


def test_history_is_read_over_the_api_within_visibility(daemon: tuple[str, Clusters, StillClock]) -> None:
    url, _, _ = daemon

    def read(role: str, **query: str | int) -> dict[str, list[float]]:
        answer = httpx2.get(
            f"{url}/v1/clusters/main/fair-share/history",
            params={"since": T - 4 * HOUR, "until": T, **query},
            headers={"Authorization": f"Bearer {token(role)}"},
        )
        answer.raise_for_status()
        assert answer.json()["times"] == [T - 3 * HOUR, T - 2 * HOUR, T - HOUR]
        return {one["path"]: one["received"] for one in answer.json()["places"]}

    assert read("admin") == {
        "science": [0.2, 0.4, 0.6],
        "science/physics/our-user": [0.1, 0.2, 0.3],
        "arts/eve": [0.8, 0.6, 0.4],
    }
    assert read("admin", path="arts/eve") == {"arts/eve": [0.8, 0.6, 0.4]}


def test_a_thinned_history_ends_with_the_last_sample(
    daemon: tuple[str, Clusters, StillClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.features.fair_share.api._MAX_SAMPLES", 2)
    clusters = daemon[1]
    found = share_courses(clusters, clusters["main"], JobVisibility(), T - 3 * HOUR, T - HOUR + 1)
    assert found.times[-1] == T - HOUR
    assert len(found.times) <= 2


def test_fairness_is_the_spread_of_normalised_waits() -> None:
    shares = RatedTree(
        ShareTree(levels=("account", "user")),
        0,
        (),
        {
            ("a", "ann"): (50.0, 100.0),
            ("b", "ann"): (50.0, 100.0),
            ("a", "bob"): (10.0, 0.0),
            ("a", "x"): (0.0, 9.0),
        },
    )
    assert _fairness(shares) == (1.0, 2.0)
    assert _fairness(RatedTree(ShareTree(levels=("account",)), 0, (), {("a",): (1.0, 1.0)})) == (None, None)


def test_command_shows_the_tree_and_the_history_of_a_place(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    assert out.splitlines()[0].split() == [
        "ACCOUNT",
        "/",
        "USER",
        "TARGET",
        "RECEIVED",
        "FACTOR",
        "CPU-HOURS",
        "WAIT",
    ]
    assert ["science", "60.0", "%"] in [line.split()[:3] for line in out.splitlines()]
    code, out, _ = run("science", "--days", "1")
    assert code == 0
    assert [line.split()[-5:-1] for line in out.splitlines()[1:4]] == [
        ["75.0", "%", f"{share}.0", "%"] for share in (20, 40, 60)
    ]
    assert run("nowhere")[0] != 0
    assert "there is no place nowhere" in run("nowhere")[2]
    assert "name a place for its history" in run("--days", "1")[2]
    assert "--days 400: from 1 to 366" in run("science", "--days", "400")[2]
    assert run("nowhere", "--days", "1")[1].startswith("no samples of nowhere in this period")


def test_page_draws_target_and_received_share_of_the_chosen_place(
    daemon: tuple[str, Clusters, StillClock],
) -> None:
    html = {"Accept": "text/html"}
    with httpx2.Client(base_url=f"{daemon[0]}/dashboard", headers=html, timeout=WAIT_S) as client:
        client.post("/login", data={"token": token("reader")})
        page = client.get("/main/fair-share", params={"place": "arts/eve", "days": 1}).text
        menu = client.get("/main/queue").text
    assert '<path class="target" d="M' in page
    assert "<option selected>arts/eve</option>" in page
    assert ">14 Nov 19:13</text>" in page
    assert "fair-share" in menu
    assert "&nbsp;%</td>" in page
    assert "<code>-</code> stands for jobs without an account." in page


def test_lines_have_gaps_where_a_place_was_not_recorded() -> None:
    course = ShareCourseView(path="a", user="", target=(0.5, None, 0.5, 0.5), received=(0.0, None, 0.5, 1.0))
    plot = build_share_plot((0, 10, 20, 30), course)
    assert plot is not None
    assert [part[0] for part in plot.received.split() if part[0] in "ML"] == ["M", "M", "L"]
    assert [text for _, _, text in plot.across] == ["01 Jan 00:00"] * 4
    assert [value for _, value in plot.up] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert build_share_plot((0,), ShareCourseView(path="a", user="", target=(0.5,), received=(0.5,))) is None


def test_one_sample_an_hour_is_recorded(daemon: tuple[str, Clusters, StillClock]) -> None:
    _, clusters, clock = daemon
    worker = clusters.service("main", ShareHistoryWorker)

    def recorded() -> list[int]:
        return [one.time // HOUR for one in worker.history.samples(T, 2**62, 99)]

    worker.record_if_due()
    worker.record_if_due()
    before = recorded()
    clock.moment += HOUR
    clusters["main"].submit([]).result(WAIT_S)
    worker.record_if_due()
    clock.moment -= HOUR
    assert recorded() == [T // HOUR, T // HOUR + 1]
    assert before == [T // HOUR]
