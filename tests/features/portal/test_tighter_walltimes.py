"""Gains of tighter walltimes for latest waiting jobs: over HTTP, on the page *My jobs*, and in notices."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.notice_rule import Notice
from schedd.features.notices.notice_sender import NoticeSender
from schedd.features.notices.notifier import Notifier
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from schedd.service.questions.tighter_walltimes import TighterWalltime
from schedd.service.warmup import warm_up
from schedd.store import Store
from schedd.store.records import NoticeSubscription
from tests.api.conftest import token, tokens
from tests.api.test_responses import MAIN
from tests.features.prediction.test_api import SITE, job_behind_a_wide_one
from tests.service.planner_harness import StillClock, T

PAGE = "/dashboard/main/my-jobs"


@pytest.fixture
def served() -> Iterator[Callable[..., TestClient]]:
    """Return a function that serves a cluster where job 3, of the caller, waits behind a wide job."""
    warm_up()
    clusters = Clusters(
        {"main": EngineSettings(site=site_policy(SITE)).with_changes(predict=True)}, StillClock()
    )
    clusters.start(warm=False)
    app = create_app(clusters, tokens())
    add_dashboard(app)

    def make(units: str = "12000", *, predicted: bool = True, owner: str = "our-user@login") -> TestClient:
        given = job_behind_a_wide_one(units)
        given[-1]["job"] = {**given[-1]["job"], "owner": owner}
        admin = TestClient(app, headers={"Authorization": f"Bearer {token('admin')}"})
        assert admin.post(f"{MAIN}/events", json={"events": given}).status_code == 200
        if predicted:
            clusters.service("main", ExpectedStartWorker).run_once()
        return TestClient(app, headers={"Authorization": f"Bearer {token('user')}"})

    make.clusters = clusters  # type: ignore[attr-defined]
    yield make
    clusters.stop()


def _gains(client: TestClient) -> Any:
    answer = client.get("/v1/me/walltimes")
    assert answer.status_code == 200, answer.text
    return answer.json()["walltimes"]


def test_the_gain_is_in_the_answer_and_on_the_page(served: Callable[..., TestClient]) -> None:
    client = served()
    (row,) = _gains(client)
    gain = row["gain"]
    assert (row["cluster"], gain["job"].partition(".")[0]) == ("main", "3")
    assert (gain["walltime"], gain["enough"]) == (7200, 22 * 60)
    assert (gain["planned_start"] - gain["sooner_start"], gain["sooner_start"]) == (7200, T)
    assert 0.02 <= gain["risk"] <= 0.1
    page = client.get(PAGE).text
    assert "Would my latest jobs start sooner" in page
    assert '<th scope="col">Risk</th>' not in page, "it is computed on request"
    asked = client.get(PAGE, params={"walltimes": "1"}).text
    row_text = re.search(r"Tighter walltimes</h2>.*?<tbody>(.*?)</tbody>", asked, re.DOTALL)
    assert row_text is not None
    cells = [re.sub("<[^>]*>", "", one) for one in re.findall(r"<td>(.*?)</td>", row_text[1])]
    assert cells[1:4] == ["2 h", "22 min", "2 h"], cells
    assert cells[4] == f"{100 * gain['risk']:.0f} %"


@pytest.mark.parametrize(
    ("units", "predicted", "owner"),
    [("60000", True, "our-user@login"), ("12000", False, "our-user@login"), ("12000", True, "eve@login")],
    ids=["no gain", "no forecast yet", "another user's job"],
)
def test_without_a_gain_nothing_is_shown(
    served: Callable[..., TestClient], units: str, predicted: bool, owner: str
) -> None:
    client = served(units, predicted=predicted, owner=owner)
    assert _gains(client) == []
    asked = client.get(PAGE, params={"walltimes": "1"}).text
    assert ("None of your latest jobs would start" in asked) == predicted


def test_only_the_latest_jobs_are_examined(
    served: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.service.questions.tighter_walltimes.MOST_JOBS", 0)
    assert _gains(served()) == []


def test_a_notice_proposes_a_tighter_walltime_once(served: Callable[..., TestClient], tmp_path: Path) -> None:
    served(owner="ann@login")
    clusters: Clusters = served.clusters  # type: ignore[attr-defined]
    told = tmp_path / "told"
    settings = NotifySettings(commands={"note": ("/bin/sh", "-c", f"cat >> {told}; echo >> {told}")})
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")

    def send_notices(*, predicted: bool = True) -> list[dict[str, Any]]:
        """Find and send the notices of a restarted daemon; return all that were sent."""
        notifier = Notifier(
            clusters["main"],
            settings,
            lambda: store,
            forecast=lambda: clusters.forecast("main") if predicted else None,
        )
        for _ in range(2):
            notifier.find_notices()
            notifier.send()
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    try:
        number = store.register_cluster("main", T)
        ask = NoticeSubscription("ann", "", None, None, "command", "note", T)
        store.add_notice_subscription(number, ask)
        assert send_notices() == [], "it was not asked for"
        store.add_notice_subscription(number, replace(ask, on_tighter_walltime=True))
        assert send_notices(predicted=False) == []
        (notice,) = send_notices()
        assert (notice["kind"], notice["job"].partition(".")[0]) == ("tighter", "3")
        assert (notice["tighter"]["walltime"], notice["tighter"]["enough"]) == (7200, 22 * 60)
        assert send_notices() == [notice], "it is proposed once, also by the next daemon"
    finally:
        store.close()


def test_the_mail_names_walltime_gain_and_risk() -> None:
    gain = TighterWalltime("3.srv", "fold", 7200, 1320, T + 7200, T, 0.098)
    wish = NoticeSubscription("ann", "", None, None, "mail", "ann@x.org", T, 5, on_tighter_walltime=True)
    sender = NoticeSender(NotifySettings(relay="127.0.0.1:9", sender="s@x.org", domains=("x.org",)), "main")
    letter = sender._compose_mail(Notice(wish, "3.srv", "tighter", T + 7200, gain=gain), T)
    subject = "[main] job 3.srv: walltime=00:22:00 would start it 02:00:00 sooner as planned now"
    assert letter["Subject"] == subject
    text = letter.get_content()
    assert "Of such jobs 10 % run longer than 00:22:00 and would be killed." in text
    assert "qalter -l walltime=00:22:00 3.srv" in text
