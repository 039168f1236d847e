"""Webhooks: content, signature, and retries. The receiver is a real server."""

import asyncio
import contextlib
import hashlib
import hmac
import io
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from schedd.engine.show.job_view import job_view
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.logs import configure_logging
from schedd.service.notifications.webhook_secrets import Webhook, load_webhook
from schedd.service.notifications.webhooks import SIGNATURE, run_webhook, signature
from schedd.service.read.current_faults import REMEDIES
from schedd.service.settings.daemon import LogSettings, WebhookSettings
from schedd.wire import JobDeleted, JobHeld, JobReleased
from schedd.wire.toml_files import SettingsError
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.waits import WAIT_S, wait_until

SECRET = b"a-secret-for-the-tests"
DOCS = Path(__file__).parents[2] / "docs"


@dataclass
class WebhookReceiver:
    """A receiver that stores requests; it answers with the given statuses, then with 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    endless: bool = False
    elsewhere: str = ""
    paths: list[str] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    def moves(self, count: int) -> list[dict[str, Any]]:
        """Wait for this many accepted moves and return them."""
        for _ in range(200):
            found = [move for told in self.taken for move in told["moves"]]
            if len(found) >= count:
                return found
            self.came.wait(0.1)
            self.came.clear()
        raise AssertionError(f"only {self.taken} came")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    found = WebhookReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.paths.append(self.path)
            moment, _, digest = self.headers[SIGNATURE].removeprefix("t=").partition(",v1=")
            signed = hmac.new(SECRET, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
            status = found.statuses.pop(0) if found.statuses else 200
            if signed != digest:
                status = 401
            if status == 200:
                found.taken.append(json.loads(body))
            else:
                found.refused += 1
            self.send_response(status)
            if found.elsewhere:
                self.send_header("Location", found.elsewhere)
            if not found.endless:
                self.send_header("Content-Length", "0")
            self.end_headers()
            found.came.set()
            with contextlib.suppress(OSError):
                while found.endless:
                    self.wfile.write(b"x" * 1_000)
                    time.sleep(0.01)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join(WAIT_S)


@contextlib.contextmanager
def running_webhook(loop: PlanLoop, url: str, **settings: Any) -> Iterator[None]:
    """Run the webhook task during the block, after its first check."""
    chosen = WebhookSettings(url=url, secret_file=Path("unused"), **settings)
    first_read_allowed = threading.Event()

    async def deliver() -> None:
        async with httpx2.AsyncClient(trust_env=False) as client:
            await asyncio.gather(
                run_webhook(loop, Webhook(chosen, SECRET), client, pause=0.02, wait=lambda _tries: 0.05),
                allow_first_read(),
            )

    async def allow_first_read() -> None:
        await asyncio.sleep(0.2)
        first_read_allowed.set()

    thread = threading.Thread(target=lambda: asyncio.run(deliver()))
    thread.start()
    assert first_read_allowed.wait(WAIT_S)
    try:
        yield
    finally:
        loop.end_polls()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def loop() -> Iterator[PlanLoop]:
    with planner(publish_starts=False, end_allowance=0) as found:
        found.submit([node("n1"), job("1", walltime="1000"), job("2", user="bob"), job("3")]).result(WAIT_S)
        yield found


def delete(loop: PlanLoop, job_id: str) -> str:
    event = JobDeleted(id=event_id(), time=T, job_id=job_id)
    loop.submit([event]).result(WAIT_S)
    return event.id


def test_moved_start_is_posted_with_cause_and_signature(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    with running_webhook(loop, receiver.url, threshold=60):
        cause = delete(loop, "1")
        moves = {move["job"]: move for move in receiver.moves(2)}
    assert set(moves) == {"2", "3"}
    assert moves["2"] == {
        "job": "2",
        "owner": "bob@login",
        "queue": "batch",
        "before": T + 1000,
        "after": T,
        "cause": "freed",
        "words": "job 1 was deleted",
        "event": cause,
        "time": T,
        "expected_start": None,
        "expected_by": None,
        "promised_start": T + 1000,
        "headline": "Starts now",
        "deadline_state": "",
        "deadline_probability": None,
    }
    assert receiver.taken[0]["type"] == "planned_start_moved"
    assert receiver.taken[0]["cluster"] == "main"
    assert receiver.refused == 0


def test_small_moves_are_posted_once_their_sum_exceeds_the_threshold(
    loop: PlanLoop, receiver: WebhookReceiver
) -> None:
    short = [job(name, walltime="300") for name in ("a", "b")]
    loop.submit([JobDeleted(id=event_id(), time=T, job_id="2"), *short, job("2", user="bob")]).result(WAIT_S)
    with running_webhook(loop, receiver.url, threshold=500, users=("bob",)):
        before = planned_start(loop, "2")
        for name in ("a", "b"):
            assert receiver.taken == []
            delete(loop, name)
            time.sleep(0.3)  # it has first_read_allowed since
        found = receiver.moves(1)
    assert [(one["job"], one["before"], one["after"]) for one in found] == [("2", before, before - 600)]


def planned_start(loop: PlanLoop, job_id: str) -> int:
    view = job_view(loop.published, job_id)
    assert view is not None
    assert view.planned_start is not None
    return view.planned_start


def test_lost_or_regained_start_is_reported(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    with running_webhook(loop, receiver.url, threshold=100_000):
        loop.submit([JobHeld(id=event_id(), time=T, job_id="3", holds="u")]).result(WAIT_S)
        assert [(one["job"], one["after"]) for one in receiver.moves(1)] == [("3", None)]
        loop.submit([JobReleased(id=event_id(), time=T, job_id="3")]).result(WAIT_S)
        third = receiver.moves(2)[1]
    assert (third["job"], third["before"], third["after"]) == ("3", None, T + 4600)


@pytest.mark.parametrize("status", [500, 429])
def test_failed_changes_are_posted_again_merged(
    loop: PlanLoop, receiver: WebhookReceiver, status: int
) -> None:
    receiver.statuses = [status] * 3
    with running_webhook(loop, receiver.url, threshold=60, users=("ann",)):
        delete(loop, "2")
        found = receiver.moves(1)
    assert receiver.refused == 3
    assert [(one["job"], one["before"], one["after"]) for one in found] == [("3", T + 4600, T + 1000)]


def wait_for_log(words: str, log: Callable[[], str]) -> None:
    """Wait until the log contains ``words``."""
    for _ in range(600):
        if words in log():
            return
        time.sleep(0.05)
    raise AssertionError(log())


def test_unreachable_webhook_gets_changes_after_its_return(
    loop: PlanLoop, tmp_path: Path, log: Callable[[], str]
) -> None:
    """The hook is the example of docs/reference/api.md."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # the port is closed after the block
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    command = [sys.executable, str(DOCS / "examples" / "webhook_receiver.py"), str(secret), str(port)]
    with running_webhook(loop, f"http://127.0.0.1:{port}/schedd", threshold=60):
        delete(loop, "2")
        wait_for_log("the webhook is not taking events", log)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout is not None
            try:
                assert receiver.stdout.readline() == f"listening on port {port}\n"
                assert receiver.stdout.readline() == f"3: {T + 4600} -> {T + 1000}: job 2 was deleted\n"
            finally:
                receiver.terminate()
        wait_for_log("the webhook takes events again", log)


def test_a_webhook_that_cannot_be_reached_opens_an_alert_until_it_takes_events(
    loop: PlanLoop, receiver: WebhookReceiver
) -> None:
    requests = loop.metrics._webhooks

    def counted(outcome: str) -> float:
        return float(requests[outcome]._value.get())

    receiver.statuses = [503] * 10_000  # until the alert was seen
    with running_webhook(loop, receiver.url):
        delete(loop, "1")
        wait_until(lambda: bool(loop.webhook_troubles))
        assert loop._troubles()["webhook"] == (
            "the webhook at 127.0.0.1 takes no events, they are sent again: HTTP 503"
        )
        receiver.statuses.clear()
        receiver.moves(1)
        wait_until(lambda: not loop.webhook_troubles)
        assert "webhook" not in loop._troubles()
    assert counted("failed") == receiver.refused >= 3
    assert counted("taken") == len(receiver.taken)


def test_documented_receiver_refuses_unsigned_and_old_requests(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    command = [sys.executable, str(DOCS / "examples" / "webhook_receiver.py"), str(secret), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as receiver:
        assert receiver.stdout is not None
        port = receiver.stdout.readline().split()[-1]

        def status(signed: str, body: bytes) -> int:
            return httpx2.post(
                f"http://127.0.0.1:{port}/", content=body, headers={SIGNATURE: signed}
            ).status_code

        body, now = b'{"moves": []}', int(time.time())
        try:
            assert status(signature(SECRET, now, body), body) == 204
            assert status(signature(SECRET, now, body), b'{"moves": [1]}') == 403
            assert status(signature(b"another-secret-of-tests", now, body), body) == 403
            assert status(signature(SECRET, now - 900, body), body) == 403
            assert status("", body) == 403
        finally:
            receiver.terminate()


@pytest.fixture
def log() -> Iterator[Callable[[], str]]:
    """The log of the daemon and of libraries."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        configure_logging(LogSettings())
    yield said.getvalue
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def test_webhook_address_is_not_logged(
    loop: PlanLoop, receiver: WebhookReceiver, log: Callable[[], str]
) -> None:
    receiver.statuses = [503]
    with running_webhook(loop, f"{receiver.url}/of-ours?token=geheim", threshold=60):
        delete(loop, "1")
        receiver.moves(1)
    said = log()
    assert "the webhook is not taking events" in said
    assert "127.0.0.1" in said
    assert "of-ours" not in said
    assert "geheim" not in said


def test_rejected_changes_are_dropped(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    receiver.statuses = [410]
    with running_webhook(loop, receiver.url, threshold=60):
        delete(loop, "1")
        for _ in range(100):
            if receiver.refused:
                break
            receiver.came.wait(0.1)
        delete(loop, "2")
        assert [one["job"] for one in receiver.moves(1)] == ["3"]
    assert receiver.refused == 1


def test_endless_answer_does_not_delay_later_posts(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    receiver.endless = True
    with running_webhook(loop, receiver.url, threshold=60):
        delete(loop, "1")
        receiver.moves(1)
        delete(loop, "2")
        assert receiver.moves(2)


def test_webhook_redirect_is_not_followed(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    receiver.statuses, receiver.elsewhere = [307, 302], f"{receiver.url}/elsewhere"
    with running_webhook(loop, receiver.url, threshold=60):
        for number in (1, 2):
            delete(loop, str(number))
            until = time.monotonic() + WAIT_S
            while receiver.refused < number and time.monotonic() < until:
                time.sleep(0.05)
    assert receiver.paths == ["/hook", "/hook"]


def test_moves_that_cancel_out_are_not_posted(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    receiver.statuses = [503] * 4
    with running_webhook(loop, receiver.url, threshold=60):
        loop.submit([JobHeld(id=event_id(), time=T, job_id="3", holds="u")]).result(WAIT_S)
        for _ in range(100):
            if receiver.refused:
                break
            receiver.came.wait(0.1)
        loop.submit([JobReleased(id=event_id(), time=T, job_id="3")]).result(WAIT_S)
        delete(loop, "2")
        last = receiver.moves(1)[-1]
    assert (last["job"], last["before"], last["after"]) == ("3", T + 4600, T + 1000)


def webhook_settings(path: Path) -> WebhookSettings:
    return WebhookSettings(url="https://x/hook", secret_file=path)


def test_secret_file_is_read_and_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    check: Callable[[], Webhook] = lambda: load_webhook(webhook_settings(path))  # noqa: E731
    with pytest.raises(SettingsError, match="cannot read the webhook's secret"):
        check()
    path.write_text("0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="others may have access"):
        check()
    path.chmod(0o600)
    assert check().secret == b"0123456789abcdef"
    path.write_text("short\n")
    with pytest.raises(SettingsError, match="at least 16 characters"):
        check()


def wait_for_alerts(receiver: WebhookReceiver, count: int) -> list[dict[str, Any]]:
    """Wait for this many messages about alerts and return them."""
    for _ in range(200):
        found = [told for told in receiver.taken if told["type"] == "alerts"]
        if len(found) >= count:
            return found
        receiver.came.wait(0.1)
        receiver.came.clear()
    raise AssertionError(f"only {receiver.taken} came")


@pytest.mark.parametrize("statuses", [[], [500, 503]])
def test_opened_and_closed_alerts_are_posted(
    loop: PlanLoop, receiver: WebhookReceiver, statuses: list[int]
) -> None:
    receiver.statuses += statuses
    with running_webhook(loop, receiver.url, alerts=True, moves=False):
        loop.adapter_contact.last -= 61
        loop.alerts.update()
        (first,) = wait_for_alerts(receiver, 1)
        assert [(one["kind"], one["remedy"]) for one in first["opened"]] == [("adapter", REMEDIES["adapter"])]
        assert first["closed"] == []
        delete(loop, "1")  # moves are not reported
        loop.record_adapter_request()
        loop.alerts.update()
        second = wait_for_alerts(receiver, 2)[1]
    assert (second["opened"], [one["kind"] for one in second["closed"]]) == ([], ["adapter"])
    assert {told["type"] for told in receiver.taken} == {"alerts"}
    assert receiver.refused == len(statuses)


def test_alerts_are_not_posted_without_the_setting(loop: PlanLoop, receiver: WebhookReceiver) -> None:
    with running_webhook(loop, receiver.url, threshold=60):
        loop.adapter_contact.last -= 61
        loop.alerts.update()
        delete(loop, "1")
        receiver.moves(2)
    assert {told["type"] for told in receiver.taken} == {"planned_start_moved"}
