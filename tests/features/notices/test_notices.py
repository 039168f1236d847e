"""Notices to users: selection, real mail, a real command, and delivery at most once."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from pydantic import ValidationError

from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.mail_relay import load_relay
from schedd.features.notices.notice_rule import decide_notice
from schedd.features.notices.notifier import Notifier, TooManySubscriptions
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import Store
from schedd.store.records import LastNotice, NoticeSubscription
from schedd.wire import JobAltered, JobDeleted, JobQueued, JobStarted, ShareFacts
from schedd.wire.toml_files import SettingsError
from tests.cli.test_certificates import certify
from tests.service.planner_harness import StillClock, T, event_id, job, node, planner
from tests.waits import WAIT_S


class MailServer:
    """A mail server that stores its mail; while ``away`` it accepts none."""

    def __init__(self) -> None:
        self.letters: list[Message] = []
        self.away = False

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.away:
            return "451 come back later"
        self.letters.append(message_from_bytes(envelope.content))
        return "250 taken"


@pytest.fixture
def mail_relay() -> Iterator[tuple[MailServer, str]]:
    found = MailServer()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(found, hostname="127.0.0.1", port=port)
    controller.start()
    yield found, f"127.0.0.1:{port}"
    controller.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    yield found
    found.close()


def mail_settings(relay: str, **more: Any) -> NotifySettings:
    return NotifySettings(relay=relay, sender="schedd@example.org", domains=("example.org",), **more)


def subscription(name: str = "", **more: Any) -> NoticeSubscription:
    asked = {"min_move_s": 600, "lead_s": None, "channel": "mail", "address": "ann@example.org", **more}
    return NoticeSubscription("ann", name, created=T, **asked)


@contextmanager
def busy_planner() -> Iterator[PlanLoop]:
    """Run a planner where job 1 runs for an hour, followed by job 3 of bob and job 2 of ann."""
    with planner(publish_threshold=0, end_allowance=0) as loop:
        jobs = [job(name, user=user) for name, user in (("1", "bob"), ("3", "bob"), ("2", "ann"))]
        loop.submit([node("n1"), *jobs]).result(WAIT_S)
        yield loop


def planned_start(loop: PlanLoop, name: str) -> int:
    record = loop.published.ids[name]
    return int(loop.published.starts[record.slot])


def delete_first_job(loop: PlanLoop) -> None:
    """Delete job 1, so that the others start earlier."""
    loop.submit([JobDeleted(id=event_id(), time=loop.now(), job_id="1")]).result(WAIT_S)


# ---- the rule ------------------------------------------------------------------------------------


def test_notices_cover_moves_and_reminders() -> None:
    both = subscription(lead_s=900)
    # First sight: only what comes soon is news.
    assert decide_notice(both, None, "2", T + 5000, T) == (LastNotice(T + 5000), None)
    mark, notice = decide_notice(both, None, "2", T + 900, T)
    assert notice is not None
    assert (mark, notice.kind, notice.start) == (LastNotice(T + 900, T + 900), "soon", T + 900)
    # A small move is none; small moves add up.
    known = LastNotice(T + 5000)
    assert decide_notice(both, known, "2", T + 5600, T) == (known, None)
    mark, notice = decide_notice(both, known, "2", T + 5601, T)
    assert notice is not None
    assert (mark, notice.kind, notice.before) == (LastNotice(T + 5601), "moved", T + 5000)
    # A lost start, and a recovered one.
    mark, notice = decide_notice(both, known, "2", -1, T)
    assert notice is not None
    assert (mark, notice.start) == (LastNotice(-1), -1)
    assert decide_notice(both, LastNotice(-1), "2", T + 9000, T)[1] is not None
    # A reminder is sent once, and again if the start was postponed by more than the lead time.
    soon = LastNotice(T + 900, T + 900)
    assert decide_notice(subscription(min_move_s=None, lead_s=900), soon, "2", T + 1200, T + 400)[1] is None
    assert (
        decide_notice(subscription(min_move_s=None, lead_s=900), soon, "2", T + 1801, T + 1000)[1] is not None
    )
    assert decide_notice(both, LastNotice(T - 10), "2", T - 10, T)[1] is None  # it is over
    # Jobs ahead end early: the likely start is near, the planned one is not.
    planned = T + 9000
    assert decide_notice(both, LastNotice(planned), "2", planned, T, likely=T + 901)[1] is None
    for likely in (T + 900, T - 5):
        mark, notice = decide_notice(both, LastNotice(planned), "2", planned, T, likely=likely)
        assert mark == LastNotice(planned, max(T, likely))
        assert notice is not None
        assert (notice.kind, notice.start) == ("soon", planned)
    assert decide_notice(both, mark, "2", planned, T + 60, likely=T + 800)[1] is None


def test_lost_deadline_is_reported_once_and_first() -> None:
    asked = subscription(min_move_s=600, lead_s=900, on_lost_deadline=True)

    def decide_now(last: LastNotice | None, told: int, lost: int) -> tuple[LastNotice, tuple[Any, ...]]:
        mark, notice = decide_notice(asked, last, "2", told, T, lost=lost, walltime=300)
        return mark, (notice.kind, notice.start, notice.deadline, notice.end) if notice is not None else ()

    mark, said = decide_now(None, T + 500, T + 200)
    assert (mark, said) == (LastNotice(T + 500, -1, T + 200), ("lost", T + 500, T + 200, T + 800))
    mark, said = decide_now(mark, T + 500, T + 200)  # the other due notices follow
    assert (mark, said[0]) == (LastNotice(T + 500, T + 500, T + 200), "soon")
    assert decide_now(mark, T + 500, T + 200) == (mark, ())
    # A held job has no end; its missing start is reported once.
    mark, said = decide_now(LastNotice(T + 500), -1, T + 200)
    assert said == ("lost", -1, T + 200, -1)
    assert decide_now(mark, -1, T + 200) == (mark, ())
    # Another deadline, or the same after it could be met, is another loss.
    assert decide_now(mark, -1, T + 250)[1][:1] == ("lost",)
    mark, said = decide_now(mark, -1, -1)
    assert (mark.lost, said) == (-1, ())
    assert decide_now(mark, -1, T + 200)[1][:1] == ("lost",)
    assert decide_notice(subscription(), LastNotice(T), "2", T, T, lost=T + 200, walltime=300) == (
        LastNotice(T),
        None,
    )


def test_a_deadline_at_risk_is_reported_again_once_it_is_lost() -> None:
    asked = subscription(min_move_s=None, on_lost_deadline=True)

    def decide_now(last: LastNotice | None, lost: int, *, at_risk: bool) -> tuple[LastNotice, Any]:
        mark, notice = decide_notice(asked, last, "2", T, T, lost=lost, at_risk=at_risk, walltime=300)
        return mark, (notice.deadline, notice.at_risk) if notice is not None else None

    mark, said = decide_now(LastNotice(T), T + 200, at_risk=True)
    assert said == (T + 200, True)
    assert decide_now(mark, T + 200, at_risk=True) == (mark, None)
    mark, said = decide_now(mark, T + 200, at_risk=False)
    assert said == (T + 200, False)
    assert decide_now(mark, T + 200, at_risk=False) == (mark, None)


# ---- mail ----------------------------------------------------------------------------------------


def test_moved_start_is_mailed_once_across_restarts(mail_relay: tuple[MailServer, str], store: Store) -> None:
    mail_server, relay = mail_relay
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        kept = notifier.add(subscription("2"))
        notifier.find_notices()
        before = planned_start(loop, "2")
        delete_first_job(loop)
        # Another daemon continues before this one has sent anything: due notices are not lost.
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        assert planned_start(loop, "2") < before - 600
        notifier.find_notices()
        notifier.send()
        (letter,) = mail_server.letters
        assert letter["To"] == "ann@example.org"
        assert letter["From"] == "schedd@example.org"
        assert letter["Auto-Submitted"] == "auto-generated"
        subject = " ".join(letter["Subject"].split())
        assert subject.startswith(f"[{loop.name}] job 2: its start moved: ")
        text = letter.get_payload(decode=True)
        assert isinstance(text, bytes)
        first = text.decode().splitlines()[0]
        assert first == f"Job 2 on {loop.name}: {subject.partition(': ')[2]}.", "both say the same"
        assert f"schedd notify remove {kept.number}" in str(letter.get_payload())
        for _ in range(2):  # not sent again, by this daemon or the next
            notifier.find_notices()
            notifier.send()
            notifier = Notifier(loop, mail_settings(relay), lambda: store)
        assert len(mail_server.letters) == 1


def test_line_feed_in_a_job_id_cannot_inject_headers(
    mail_relay: tuple[MailServer, str], store: Store
) -> None:
    mail_server, relay = mail_relay
    with planner(publish_threshold=0, end_allowance=0) as loop:
        strange = "2\nBcc: all@example.org"
        jobs = [job("1", user="bob"), job("4", user="bob"), job(strange), job("3")]
        loop.submit([node("n1"), *jobs]).result(WAIT_S)
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        notifier.add(subscription())
        notifier.find_notices()
        delete_first_job(loop)
        notifier.find_notices()
        notifier.send()
        told = sorted(str(letter["Subject"]) for letter in mail_server.letters)
        assert [subject.partition(":")[0] for subject in told] == ["[main] job 2?Bcc", "[main] job 3"]
        assert {letter["Bcc"] for letter in mail_server.letters} == {None}


def test_failing_notice_or_job_does_not_delay_others(
    mail_relay: tuple[MailServer, str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail_server, relay = mail_relay
    with planner(publish_threshold=0, end_allowance=0) as loop:
        jobs = [job("1", user="bob"), job("5", user="bob"), job("2"), job("3"), job("4")]
        loop.submit([node("n1"), *jobs]).result(WAIT_S)
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        notifier.add(subscription())
        notifier.find_notices()
        delete_first_job(loop)
        find, write = notifier._decide, notifier._messenger._compose_mail

        def no_finding(published: Any, one: NoticeSubscription, record: Any, *more: Any) -> Any:
            if record.id == "2":
                raise KeyError(record.id)
            return find(published, one, record, *more)

        def no_writing(notice: Any, now: int) -> Any:
            if notice.job == "3":
                raise MemoryError
            return write(notice, now)

        monkeypatch.setattr(notifier, "_decide", no_finding)
        monkeypatch.setattr(notifier._messenger, "_compose_mail", no_writing)
        notifier.find_notices()
        notifier.send()
        assert [letter["Subject"].partition(":")[0] for letter in mail_server.letters] == ["[main] job 4"]
        assert loop.supervisor.record("notices", "main").failures == 2


@pytest.mark.parametrize(
    ("lost", "said"), [("demote", "; it is planned to end at "), ("hold", ", and has no planned start.")]
)
def test_lost_deadline_is_mailed_once_across_restarts(
    mail_relay: tuple[MailServer, str], store: Store, lost: str, said: str
) -> None:
    mail_server, relay = mail_relay
    site = {"priority": {"deadline_lost": lost}}
    with planner(publish_threshold=0, end_allowance=0, site=site) as loop:
        clock = loop._clock
        assert isinstance(clock, StillClock)
        mine = job("2", user="ann", walltime="100", **{"x.deadline": str(T + 200)})
        loop.submit([node("n1"), job("1", user="bob"), mine]).result(WAIT_S)
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        kept = notifier.add(subscription(min_move_s=None, on_lost_deadline=True))
        assert notifier.subscriptions("ann") == [kept]
        notifier.find_notices()
        clock.moment += 101
        loop.submit([job("3", user="bob")]).result(WAIT_S)
        for _ in range(2):  # the next daemon sends due notices, once
            notifier = Notifier(loop, mail_settings(relay), lambda: store)
            notifier.find_notices()
            notifier.find_notices()
            notifier.send()
        (letter,) = mail_server.letters
        assert letter["Subject"].startswith(f"[{loop.name}] job 2: its deadline is lost, ")
        assert said in str(letter.get_payload())


def test_accepted_deadline_at_risk_is_mailed_once(mail_relay: tuple[MailServer, str], store: Store) -> None:
    mail_server, relay = mail_relay
    with planner(publish_threshold=0, end_allowance=0) as loop:
        clock = loop._clock
        assert isinstance(clock, StillClock)
        mine = job("2", user="ann", walltime="100", **{"x.deadline": str(T + 86_400)})
        loop.submit([node("n1"), job("1", user="bob", walltime="100"), mine]).result(WAIT_S)
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        notifier.add(subscription(min_move_s=None, on_lost_deadline=True))
        notifier.find_notices()
        loop.submit([node("n1", state="down")]).result(WAIT_S)
        clock.moment += 400
        loop.submit([job("3", user="bob")]).result(WAIT_S)
        for _ in range(2):
            notifier.find_notices()
            notifier.send()
        (letter,) = mail_server.letters
        assert "job 2: its accepted deadline is at risk, " in letter["Subject"]
        assert "It has no planned start." in str(letter.get_payload())


def test_altered_walltime_of_a_run_is_mailed_once_across_restarts(
    mail_relay: tuple[MailServer, str], store: Store
) -> None:
    mail_server, relay = mail_relay
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store)

        def look(notifier: Notifier, letters: int) -> None:
            for _ in range(2):
                notifier.find_notices()
                notifier.send()
                assert len(mail_server.letters) == letters

        def describe(walltime: str, **more: Any) -> None:
            facts = loop.published.ids["2"].facts
            resources = {**facts.resources, "walltime": walltime}
            changed = replace(facts, resources=resources, **more)
            loop.submit([JobAltered(id=event_id(), time=loop.now(), job=changed)]).result(WAIT_S)

        notifier.add(subscription("2", min_move_s=90_000))
        describe("5400")
        look(notifier, 0)
        shares = (ShareFacts(node="n1", cpus=4),)
        started = JobStarted(id=event_id(), time=loop.now(), job_id="2", shares=shares)
        loop.submit([started]).result(WAIT_S)
        look(notifier, 0)
        describe("7200")
        look(Notifier(loop, mail_settings(relay), lambda: store), 1)
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        look(notifier, 1)
        (letter,) = mail_server.letters
        subject = " ".join(letter["Subject"].split())
        assert subject == f"[{loop.name}] job 2: its walltime is now 02:00:00, before 01:30:00"
        assert "It ends at " in str(letter.get_payload())
        assert "checkjob 2" in str(letter.get_payload())
        # The next run of a job that returned to its queue is another one.
        facts = replace(loop.published.ids["2"].facts, state="Q", shares=(), started=None)
        loop.submit([JobQueued(id=event_id(), time=loop.now(), job=facts)]).result(WAIT_S)
        look(notifier, 1)
        describe("3600")
        look(notifier, 1)


def test_notices_cover_all_own_jobs_only(mail_relay: tuple[MailServer, str], store: Store) -> None:
    mail_server, relay = mail_relay
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        notifier.find_notices()
        notifier.send()
        assert [letter["Subject"].split(":")[0] for letter in mail_server.letters] == [f"[{loop.name}] job 2"]


def test_a_move_is_mailed_once_to_an_address_with_two_subscriptions(
    mail_relay: tuple[MailServer, str], store: Store
) -> None:
    mail_server, relay = mail_relay
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        for one in (subscription(), subscription("2"), subscription(address="b@example.org")):
            notifier.add(one)
        notifier.find_notices()
        delete_first_job(loop)
        for _ in range(2):
            notifier.find_notices()
            notifier.send()
        assert [letter["To"] for letter in mail_server.letters] == ["ann@example.org", "b@example.org"]


def test_unreachable_relay_is_retried(mail_relay: tuple[MailServer, str], store: Store) -> None:
    mail_server, relay = mail_relay
    moment = [0.0]
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store, clock=lambda: moment[0])
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        mail_server.away = True
        notifier.find_notices()
        notifier.send()
        assert mail_server.letters == []
        alert = loop._troubles()["notices"]
        assert alert.startswith(f"notices to users are not sent ({relay}: "), alert
        mail_server.away = False
        moment[0] = 9.0
        notifier.send()
        assert mail_server.letters == []  # not yet
        moment[0] = 10.0
        notifier.send()
        assert len(mail_server.letters) == 1
        assert "notices" not in loop._troubles()


def test_alert_about_a_relay_closes_some_time_after_its_last_failure(store: Store) -> None:
    moment = [0.0]
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings("127.0.0.1:9"), lambda: store, clock=lambda: moment[0])
        notifier.add(subscription("2", lead_s=90_000, min_move_s=None))
        notifier.find_notices()
        for _ in range(6):
            notifier.send()
            moment[0] += 300.0
        words = "notices to users are not sent (127.0.0.1:9: Connection refused)"
        assert loop._troubles()["notices"] == words
        moment[0] += 901.0
        notifier.send()
        assert "notices" not in loop._troubles()


def nonzero_counts(loop: PlanLoop) -> dict[str, float]:
    found = {name: one._value.get() for name, one in loop.metrics._notices.items()}
    return {name: count for name, count in found.items() if count}


def test_hourly_limit_postpones_notices_across_restarts(
    mail_relay: tuple[MailServer, str], store: Store
) -> None:
    mail_server, relay = mail_relay
    moment = [float(T)]

    def make_notifier(loop: PlanLoop) -> Notifier:
        return Notifier(loop, mail_settings(relay, hourly=2), lambda: store, wall=lambda: moment[0])

    with busy_planner() as loop:
        loop.submit([job("4"), job("5")]).result(WAIT_S)
        notifier = make_notifier(loop)
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        for _ in range(3):
            notifier.find_notices()
            notifier.send()
        assert len(mail_server.letters) == 2
        assert nonzero_counts(loop) == {"sent": 2, "limited": 1}
        moment[0] += 3599
        notifier = make_notifier(loop)  # a daemon that goes on
        notifier.find_notices()
        notifier.send()
        assert len(mail_server.letters) == 2
        moment[0] += 1
        notifier.find_notices()
        notifier.send()
        assert len(mail_server.letters) == 3
        assert store.notified_users(store.register_cluster(loop.name, T), 0) == [
            ("ann", T + 3600)
        ]  # older ones are forgotten


def test_clock_set_backwards_does_not_extend_the_hourly_limit(
    mail_relay: tuple[MailServer, str], store: Store
) -> None:
    mail_server, relay = mail_relay
    moment = [float(T)]
    with busy_planner() as loop:
        loop.submit([job("4")]).result(WAIT_S)
        notifier = Notifier(loop, mail_settings(relay, hourly=1), lambda: store, wall=lambda: moment[0])
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        notifier.find_notices()
        moment[0] -= 86_400
        notifier.find_notices()
        notifier.send()
        assert len(mail_server.letters) == 2


def test_failed_and_late_notices_are_counted(store: Store) -> None:
    moment = [0.0]
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings("127.0.0.1:9"), lambda: store, clock=lambda: moment[0])
        notifier.add(subscription("2", lead_s=90_000, min_move_s=None))
        notifier.find_notices()
        for _ in range(6):
            notifier.send()
            moment[0] += 300.0
        assert nonzero_counts(loop) == {"failed": 6, "given_up": 1}
        notifier.add(subscription("3", lead_s=90_000, min_move_s=None, address="bob@example.org"))
        notifier.find_notices()
        clock = loop._clock
        assert isinstance(clock, StillClock)
        clock.moment += 90_000
        notifier.send()
        assert nonzero_counts(loop) == {"failed": 6, "given_up": 1, "late": 1}


# ---- a relay with TLS and login --------------------------------------------------------------------

PASSWORD = "a relay's password"


class RelayLogins:
    """Authenticator of the relay; keeps the accepted logins."""

    def __init__(self) -> None:
        self.known: list[bytes] = []

    def __call__(self, _server: Any, _session: Any, _envelope: Any, _way: str, said: Any) -> AuthResult:
        right = (said.login, said.password) == (b"schedd", PASSWORD.encode())
        self.known += [said.login] if right else []
        return AuthResult(success=right, handled=right)


@pytest.fixture
def guarded_relay(tmp_path: Path) -> Iterator[tuple[MailServer, RelayLogins, dict[str, Any]]]:
    """A relay that requires STARTTLS and a login, and the settings for it."""
    mail_server, logins = MailServer(), RelayLogins()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certify(tmp_path, "relay")
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(
        mail_server,
        hostname="127.0.0.1",
        port=port,
        tls_context=tls,
        require_starttls=True,
        auth_required=True,
        authenticator=logins,
    )
    controller.start()
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "password").chmod(0o600)
    yield (
        mail_server,
        logins,
        {
            "relay": f"127.0.0.1:{port}",
            "starttls": True,
            "ca_file": tmp_path / "cert.pem",
            "user": "schedd",
            "password_file": tmp_path / "password",
        },
    )
    controller.stop()


def send_notice(store: Store, settings: NotifySettings) -> dict[str, float]:
    with busy_planner() as loop:
        notifier = Notifier(loop, settings, lambda: store)
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        notifier.find_notices()
        notifier.send()
        return nonzero_counts(loop)


def test_mail_goes_over_tls_with_a_password(
    guarded_relay: tuple[MailServer, RelayLogins, dict[str, Any]], store: Store
) -> None:
    mail_server, logins, settings = guarded_relay
    assert send_notice(store, mail_settings(**settings)) == {"sent": 1}
    assert (len(mail_server.letters), logins.known) == (1, [b"schedd"])


@pytest.mark.parametrize(
    "other", [{"ca_file": None}, {"starttls": False, "user": "", "password_file": None, "ca_file": None}]
)
def test_no_mail_goes_to_an_untrusted_or_unencrypted_relay(
    guarded_relay: tuple[MailServer, RelayLogins, dict[str, Any]], store: Store, other: dict[str, Any]
) -> None:
    mail_server, logins, settings = guarded_relay
    assert send_notice(store, mail_settings(**settings | other)) == {"failed": 1}
    assert (mail_server.letters, logins.known) == ([], [])


def test_wrong_relay_password_is_logged_and_no_mail_sent(
    guarded_relay: tuple[MailServer, RelayLogins, dict[str, Any]], store: Store, tmp_path: Path
) -> None:
    mail_server, _, settings = guarded_relay
    (tmp_path / "password").write_text("another")
    with structlog.testing.capture_logs() as said:
        assert send_notice(store, mail_settings(**settings)) == {"failed": 1}
    (line,) = [one for one in said if one["event"].startswith("a notice was not taken")]
    assert ": 535 " in line["why"]
    assert "another" not in str(said)
    assert mail_server.letters == []


def test_password_file_must_be_private_and_not_empty(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    about = mail_settings("127.0.0.1:25", starttls=True, user="schedd", password_file=secret)
    for mode, text, said in ((0o640, "x", "chmod 0600"), (0o600, "", "the file has no password")):
        secret.write_text(text)
        secret.chmod(mode)
        with pytest.raises(SettingsError, match=said):
            load_relay(about)
    secret.unlink()
    with pytest.raises(SettingsError, match="cannot read the relay's password"):
        load_relay(about)


# ---- recipients ------------------------------------------------------------------------------------


def test_standby_and_stale_plan_send_no_notices(mail_relay: tuple[MailServer, str], store: Store) -> None:
    mail_server, relay = mail_relay
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings(relay), lambda: store)
        notifier.add(subscription(lead_s=90_000, min_move_s=None))
        loop.on_standby = True
        notifier.find_notices()
        loop.on_standby = False
        loop.adapter_contact.last -= 1_000
        notifier.find_notices()
        notifier.send()
        assert mail_server.letters == []
        loop.record_adapter_request()
        notifier.find_notices()
        notifier.send()
        assert len(mail_server.letters) == 1


# ---- commands and wishes -------------------------------------------------------------------------


def test_command_gets_the_notice_as_json_on_stdin(tmp_path: Path, store: Store) -> None:
    script = tmp_path / "tell"
    script.write_text(f'#!/bin/sh\nprintf "%s|" "$#" "$HOME" > {tmp_path}/args\ncat > {tmp_path}/said\n')
    script.chmod(0o700)
    with busy_planner() as loop:
        notifier = Notifier(loop, NotifySettings(commands={"sms": (str(script),)}), lambda: store)
        notifier.add(subscription("2", lead_s=90_000, channel="command", address="sms"))
        notifier.find_notices()
        notifier.send()
        told = json.loads((tmp_path / "said").read_text())
        assert told == {
            "cluster": loop.name,
            "user": "ann",
            "job": "2",
            "kind": "soon",
            "start": planned_start(loop, "2"),
            "before": None,
            "deadline": None,
            "end": None,
            "at_risk": None,
            "deadline_probability": None,
            "tighter": None,
            "walltime": None,
            "former_walltime": None,
            "headline": "Planned 2023-11-15 00:13:20 UTC, at the latest 2023-11-15 00:13:20 UTC",
            "now": loop.now(),
        }
        assert (tmp_path / "args").read_text() == "0||"


def test_subscriptions_are_stored_counted_and_removed_by_their_user(store: Store) -> None:
    with busy_planner() as loop:
        notifier = Notifier(loop, mail_settings("127.0.0.1:9", most=1), lambda: store)
        kept = notifier.add(subscription("2"))
        assert Notifier(loop, mail_settings("127.0.0.1:9"), lambda: store).subscriptions("ann") == [kept]
        with pytest.raises(TooManySubscriptions):
            notifier.add(subscription())
        notifier.find_notices()
        assert notifier.remove("bob", kept.number) is None
        assert notifier.remove("ann", kept.number) == kept
        assert notifier.subscriptions("ann") == []
        assert store.last_notices(store.register_cluster(loop.name, T)) == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"relay": "mail.example.org"}, "relay"),
        ({"relay": "mail.example.org:25"}, "needs a sender"),
        ({"user": "schedd"}, "belong together"),
        ({"user": "schedd", "password_file": "/x"}, "only over TLS"),
        ({"ca_file": "/x"}, "only with starttls = true"),
        ({"commands": {"sms": ["sms"]}}, "absolute path"),
        ({"commands": {"sms": []}}, "absolute path"),
    ],
)
def test_invalid_notification_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NotifySettings(**wrong)
