"""Gains of tighter walltimes for the caller's latest waiting jobs: over HTTP and on the page *My jobs*."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from tests.api.conftest import token, tokens
from tests.api.test_responses import MAIN
from tests.features.prediction.test_api import SITE, job_behind_a_wide_one
from tests.service.planner_harness import StillClock, T

PAGE = "/dashboard/main/my-jobs"


@pytest.fixture
def served() -> Iterator[Callable[..., TestClient]]:
    """Return a function that serves a cluster in which job 3, of the caller, waits behind a wide job."""
    warm_up()
    clusters = Clusters({"main": EngineSettings(predict=True, site=site_policy(SITE))}, StillClock())
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
    assert cells[1:4] == ["2:00:00", "22:00", "2:00:00"] or cells[1:4] == ["2 h", "22 min", "2 h"], cells
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
