"""All interfaces say the same about the start of one job: one daemon, one job, one sentence."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import httpx2
import pytest
from fastapi import FastAPI

from schedd.api.app import create_app
from schedd.cli.main import main
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.features.notices.notifier import Notifier
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.service.access.callers import Callers
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.store import Store
from schedd.wire import ExpectedFacts, JobDeleted, JobStarted, ShareFacts, StartsExpected, WriteAttributes
from server_adapter.bridge.job_comments import comment
from tests.api.conftest import token, tokens
from tests.features.notices.test_notices import MailServer, mail_relay, mail_settings, store, subscription
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.service.test_webhooks import WebhookReceiver, receiver, running_webhook
from tests.waits import WAIT_S

__all__ = ["mail_relay", "receiver", "store"]
JOB = "2.srv.site"
LIKELY, BY, PLANNED, LATEST = T + 14_400, T + 21_600, T + 30_000, T + 60_000
Sentence = tuple[int, int, int]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    warm_up()
    found = create_app(Clusters({}, StillClock()), Callers(tokens()))
    add_dashboard(found)
    return found


@pytest.fixture
def clusters(clock: StillClock) -> Iterator[Clusters]:
    settings = EngineSettings(end_allowance=0, publish_pause=0).with_changes(predict=True)
    found = Clusters({"main": settings}, clock)
    found.start(warm=False)
    found.service("main", ExpectedStartWorker).stop()
    yield found
    found.stop()


TIME = (
    r"((?:today |[A-Z][a-z]{2} )?(?:\d{1,2} [A-Z][a-z]{2} )?(?:\d{4} )?(?:\d{4}-\d\d-\d\d )?"
    r"\d\d:\d\d(?::\d\d)?(?: UTC)?)"
)
SENTENCE = re.compile(rf"[Ll]ikely {TIME} \(90 % by {TIME}\), at the latest {TIME}")


def read_sentence(text: str) -> Sentence:
    """Return the times of the sentence about a start, which a page may repeat, in minutes since the epoch."""
    plain = " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())
    (found,) = set(SENTENCE.findall(plain))
    likely, by, latest = map(read_minute, found)
    return likely, by, latest


def read_minute(text: str) -> int:
    """Return a time, which lies within six days after T, in minutes since the epoch."""
    clock = re.search(r"(\d\d):(\d\d)", text)
    assert clock is not None
    for days in range(7):
        at = datetime.fromtimestamp(T + 86_400 * days, UTC).replace(
            hour=int(clock[1]), minute=int(clock[2]), second=0
        )
        names = {f"{at:%a}", f"{at:%-d %b}", f"{at:%Y-%m-%d}", *(["today"] if not days else [])}
        if any(name in text for name in names) or (clock.start() == 0 and not days):
            return int(at.timestamp()) // 60
    raise AssertionError(f"no time: {text}")


@pytest.fixture
def waiting_job(url: str, clusters: Clusters, loop: PlanLoop) -> str:
    """Job 2 waits for two nodes; the promise is its first planned start."""
    loop.submit([node("n1", 8), node("n2", 8)]).result(WAIT_S)
    runs = [
        job("1.srv.site", nodes="1:ppn=8", walltime="30000"),
        job("5.srv.site", nodes="1:ppn=8", walltime="60000"),
    ]
    loop.submit([*runs, job(JOB, user="bob", nodes="2:ppn=8")]).result(WAIT_S)
    loop.submit(
        [
            JobStarted(id=event_id(), time=T, job_id=one.job.id, shares=(ShareFacts(name, 8),))
            for one, name in zip(runs, ("n1", "n2"), strict=True)
        ]
    ).result(WAIT_S)
    forecast = ExpectedFacts(JOB, LIKELY, BY, PLANNED, "submission")
    loop.submit([StartsExpected(id=event_id(), time=T, jobs=(forecast,))]).result(WAIT_S)
    return url


def test_all_interfaces_say_the_same_about_a_start(
    waiting_job: str,
    loop: PlanLoop,
    capsys: pytest.CaptureFixture[str],
    receiver: WebhookReceiver,
    mail_relay: tuple[MailServer, str],
    store: Store,
) -> None:
    mails, relay = mail_relay
    notifier = Notifier(loop, mail_settings(relay), lambda: store)
    notifier.add(replace(subscription(), user="bob", address="bob@example.org"))
    notifier.find_notices()
    with running_webhook(loop, receiver.url, threshold=60):
        loop.submit([JobDeleted(id=event_id(), time=T, job_id="5.srv.site")]).result(WAIT_S)
        (move,) = receiver.moves(1)
    notifier.find_notices()
    notifier.send()
    (mail,) = mails.letters

    def command(*args: str) -> str:
        assert main(args) == 0
        return capsys.readouterr().out

    decisions = loop.decisions.page_after("").decisions
    written = [one for one in decisions if isinstance(one, WriteAttributes) and one.job_id == JOB]
    said = {
        "showstart": command("showstart", JOB),
        "checkjob": command("checkjob", JOB),
        "comment": comment(written[-1]),
        "webhook": move["headline"],
        "mail": str(mail.get_payload()).replace("=\r\n", ""),
    }
    headers = {"Authorization": f"Bearer {token('admin')}"}
    with (
        httpx2.Client(base_url=f"{waiting_job}/v1/clusters/main", headers=headers, timeout=WAIT_S) as api,
        httpx2.Client(
            base_url=f"{waiting_job}/dashboard/main", follow_redirects=True, timeout=WAIT_S
        ) as pages,
    ):
        view = api.get(f"/jobs/{JOB}").json()
        what_if = api.post("/what-if", json={"job": JOB}).json()
        assert pages.post(f"{waiting_job}/dashboard/login", data={"token": token("admin")}).is_success
        said |= {
            "API": view["headline"],
            "what-if": what_if["headline"],
            "job page": pages.get(f"/jobs/{JOB}").text,
            "my jobs": pages.get("/my-jobs?user=bob").text,
            "queue page": pages.get("/queue?state=planned").text,
            "plan page": pages.get("/plan").text,
            "what-if page": pages.get(f"/what-if?job={JOB}").text,
        }
    (queue_line,) = [line for line in command("showq", "-i").splitlines() if line.startswith(JOB)]
    assert (view["planned_start"], view["promised_start"]) == (PLANNED, LATEST)
    expected = (LIKELY // 60, BY // 60, LATEST // 60)
    assert {name: read_sentence(text) for name, text in said.items()} == dict.fromkeys(said, expected)
    assert BY < PLANNED
    for name in ("showstart", "job page", "what-if page"):
        assert "if the jobs ahead use their full walltimes" in " ".join(said[name].split()), name
    cells = re.split(" {2,}", queue_line)[-3:]
    assert tuple(map(read_minute, cells)) == expected, "column LIKELY and those after it"
    same = ("planned_start", "expected_start", "expected_by", "promised_start", "headline")
    assert {name: what_if[name] for name in same} == {name: view[name] for name in same}


def test_an_old_forecast_is_not_shown(
    waiting_job: str, clock: StillClock, capsys: pytest.CaptureFixture[str]
) -> None:
    def show_start() -> str:
        assert main(["showstart", JOB]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert "forecast calculated" not in show_start()
    clock.moment = T + 3600  # a quarter of the wait that it forecast
    assert "start Likely Wed 02:13 (90 % by Wed 04:13), at the latest Wed 14:53" in show_start()
    assert "forecast calculated Tue 14 Nov 22:13:20 01:00:00 ago" in show_start()
    clock.moment += 1
    assert "start No current forecast; planned Wed 14:53, at the latest Wed 14:53" in show_start()
