"""Probabilities of deadlines in what-ifs, the accuracy report, and notices about a drop."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.deadline_sentence import DeadlineFacts
from schedd.engine import EngineSettings
from schedd.features.notices.notice_rule import Notice
from schedd.features.notices.notice_sender import _headline
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.service.clusters import Clusters
from schedd.store.records import NoticeSubscription
from schedd.wire import DeadlineForecastFacts, DeadlinesForecast
from tests.api.conftest import token, tokens
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S

HOUR = 3_600


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    """One node, and two jobs of an hour each: the first is dispatched, the second has a deadline."""
    clock = StillClock()
    found = Clusters({"main": EngineSettings(publish_starts=False).with_changes(predict=True)}, clock)
    found.start(warm=False)
    loop = found["main"]
    loop.submit([node("n1"), job("0")]).result(WAIT_S)
    loop.submit([job("1", **{"x.deadline": f"{T + 3 * HOUR}@50%"})]).result(WAIT_S)
    assert found.service("main", ExpectedStartWorker).run_once() is not None
    yield found
    found.stop()


@pytest.fixture(scope="module")
def client(clusters: Clusters) -> Iterator[TestClient]:
    with TestClient(
        create_app(clusters, tokens()), headers={"Authorization": f"Bearer {token('admin')}"}
    ) as found:
        yield found


def what_if_by(client: TestClient, deadline: str) -> dict[str, Any]:
    body = {"request": f"nodes=1:ppn=4,walltime=3600,deadline={deadline}"}
    answer = client.post("/v1/clusters/main/what-if", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_what_if_gives_the_probability_of_any_deadline(client: TestClient) -> None:
    found = [what_if_by(client, str(T + seconds)) for seconds in (HOUR, 2 * HOUR, 4 * HOUR, 30 * HOUR)]
    shares = [one["deadline_probability"] for one in found]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert 0.99 < shares[-1] < 1
    assert [one["deadline_state"] for one in found] == ["wished", "wished", "accepted", "accepted"]
    assert what_if_by(client, f"{T + 30 * HOUR}@98%")["deadline_state"] == "accepted"
    refused = what_if_by(client, f"{T + HOUR}@98%")
    assert (refused["deadline_state"], refused["deadline_required"]) == ("wished", 0.98)
    assert what_if_by(client, f"{refused['earliest_deadline']}@98%")["deadline_state"] == "accepted"
    assert what_if_by(client, f"{refused['earliest_deadline'] - 1}@98%")["deadline_state"] == "wished"


def test_what_if_refuses_a_wrong_probability_with_its_place_and_form(client: TestClient) -> None:
    body = {"request": "nodes=1:ppn=4,walltime=3600,deadline=+6:00:00@high%"}
    answer = client.post("/v1/clusters/main/what-if", json=body)
    assert answer.status_code == 422
    assert "in -l deadline: deadline '+6:00:00@high%'" in answer.text
    assert "such as @95%" in answer.text


def test_round_judges_the_queued_job_and_the_report_compares_outcomes(
    clusters: Clusters, client: TestClient
) -> None:
    view = client.get("/v1/clusters/main/jobs/1").json()
    assert (view["deadline_state"], view["deadline_required"]) == ("accepted", 0.5)
    assert 0.5 <= view["deadline_probability"] < 1
    loop = clusters["main"]
    facts = DeadlineForecastFacts(job_id="1", deadline=T, raw=0.9, probability=0.93, counts=True)
    loop.submit([DeadlinesForecast(id=event_id(), time=T, jobs=(facts,))]).result(WAIT_S)
    assert client.get("/v1/clusters/main/accuracy").json()["deadlines"] == []
    clock: Any = loop._clock
    clock.moment = T + 1
    loop.submit([node("n2")]).result(WAIT_S)
    assert client.get("/v1/clusters/main/accuracy").json()["deadlines"] == [
        {"jobs": "waiting", "low": 0.9, "high": 1.0, "count": 1, "predicted": 0.93, "observed": 0.0}
    ]


def test_notice_of_a_drop_says_what_was_accepted_and_what_is_forecast() -> None:
    wish = NoticeSubscription("ann", "", None, None, "mail", "ann@x", T, on_lost_deadline=True)
    notice = Notice(wish, "1", "lost", T, deadline=T, forecast=DeadlineFacts("at_risk", 0.95, 0.8, None))
    assert "is at risk: accepted at 95 %, 80 % now" in _headline(notice, T)
