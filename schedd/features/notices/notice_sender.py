"""Sends one notice: by mail over the site's relay, or to a command in the site's settings.

No user input is passed in a command's arguments or environment: the notice is JSON on its standard input, and
no shell is used.
"""

import json
import smtplib
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Final

from schedd.deadline_sentence import describe_deadline_forecast
from schedd.dialect import format_walltime
from schedd.error_text import describe_error
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.mail_relay import load_relay
from schedd.features.notices.notice_rule import Notice
from schedd.start_sentence import describe_start, format_utc

_TIMEOUT_S: Final = 20.0
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_SAID: Final = 200


class NoticeSender:
    """Sender of one cluster's notices. Raises SettingsError if the relay's files cannot be read."""

    def __init__(self, settings: NotifySettings, cluster: str) -> None:
        self._settings = settings
        self._cluster = cluster
        self._relay = load_relay(settings)

    def send(self, notice: Notice, now: int) -> str:
        """Send a notice; return why it failed, empty on success."""
        if notice.subscription.channel == "mail":
            return self._mail(notice, now)
        return self._run_command(notice, now)

    def _mail(self, notice: Notice, now: int) -> str:
        known = self._relay
        if known is None:
            return "the settings no longer name a relay"
        letter = self._compose_mail(notice, now)
        try:
            with smtplib.SMTP(known.host, known.port, timeout=_TIMEOUT_S) as relay:
                if known.tls is not None:
                    relay.starttls(context=known.tls)
                if known.user:
                    relay.login(known.user, known.password)
                relay.send_message(letter)
        except (OSError, ValueError, smtplib.SMTPException) as error:
            return f"{self._settings.relay}: {describe_mail_error(error)}"[:_SAID]
        return ""

    def _compose_mail(self, notice: Notice, now: int) -> EmailMessage:
        letter = EmailMessage()
        letter["From"] = self._settings.sender
        letter["To"] = notice.subscription.address
        letter["Subject"] = _single_line(f"[{self._cluster}] job {notice.job}: {_headline(notice, now)}")
        letter["Date"] = formatdate()
        letter["Message-ID"] = make_msgid(domain=self._settings.sender.rpartition("@")[2])
        letter["Auto-Submitted"] = "auto-generated"
        job = _single_line(notice.job)
        lines = [f"Job {job} on {self._cluster}: {_headline(notice, now)}."]
        if notice.kind == "walltime":
            lines.append(f"It ends at {_format_time(notice.end)} at the latest.")
        if notice.kind not in ("soon", "moved") and (sentence := _start_sentence(notice, now, _format_time)):
            lines.append(f"{sentence}.")
        if notice.kind == "moved" and notice.before >= 0:
            lines.append(_planned_move(notice))
        if notice.kind == "lost" and notice.forecast is not None:
            lines.append("This is a forecast, not a guarantee.")
        elif notice.kind == "lost":
            lines.append(_late_end(notice))
        if notice.gain is not None:
            walltime, risk = format_walltime(notice.gain.enough), f"{100 * notice.gain.risk:.0f} %"
            lines.append(f"Of such jobs {risk} run longer than {walltime} and would be killed.")
            lines.append(f"qalter -l walltime={walltime} {job}   changes it.")
        lines += [
            "",
            f"{'checkjob' if notice.kind == 'walltime' else 'showstart'} {job}   says why and where.",
            f"{_unsubscribe_command(notice)}   ends these mails.",
        ]
        letter.set_content("\n".join(lines) + "\n")
        return letter

    def _run_command(self, notice: Notice, now: int) -> str:
        command = self._settings.commands.get(notice.subscription.address)
        if command is None:
            return f"the settings no longer name the command {notice.subscription.address}"
        message = {
            "cluster": self._cluster,
            "user": notice.subscription.user,
            "job": notice.job,
            "kind": notice.kind,
            "start": notice.start if notice.start >= 0 else None,
            "before": notice.before if notice.before >= 0 else None,
            "deadline": notice.deadline if notice.deadline >= 0 else None,
            "end": notice.end if notice.end >= 0 else None,
            "at_risk": notice.at_risk if notice.kind == "lost" else None,
            "walltime": notice.walltime if notice.walltime >= 0 else None,
            "former_walltime": notice.former_walltime if notice.former_walltime >= 0 else None,
            "tighter": asdict(notice.gain) if notice.gain is not None else None,
            "deadline_probability": notice.forecast.probability if notice.forecast is not None else None,
            "headline": _start_sentence(notice, now, format_utc),
            "now": now,
        }
        try:
            done = subprocess.run(
                command,
                input=json.dumps(message).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_TIMEOUT_S,
                env=_ENVIRONMENT,
                cwd="/",
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{command[0]} did not end within {_TIMEOUT_S:.0f} s"[:_SAID]
        except OSError as error:
            return describe_error(error)[:_SAID]
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            return f"{command[0]} ended with {done.returncode}: {said}"[:_SAID]
        return ""


def describe_mail_error(error: Exception) -> str:
    """Return what a mail relay answered, or why it gave no answer."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = [f"{code} {_decode(text)}" for code, text in error.recipients.values()]
        return "; ".join(answers)
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_decode(error.smtp_error)}"
    return describe_error(error)


def _decode(text: bytes | str) -> str:
    return _single_line(text.decode(errors="replace") if isinstance(text, bytes) else text)


def _single_line(text: str) -> str:
    """Replace line ends and unprintable characters, which a mail header cannot hold."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _planned_move(notice: Notice) -> str:
    """Return the sentence about a moved planned start, which is later than a likely one."""
    now = f"now {_format_time(notice.start)}" if notice.start >= 0 else "no longer known"
    return f"Its planned start is {now}; before, it was {_format_time(notice.before)}."


def _late_end(notice: Notice) -> str:
    """Return the sentence about the end of a job whose deadline is lost or at risk."""
    end = f"is planned to end at {_format_time(notice.end)}" if notice.end >= 0 else "has no planned start"
    if notice.at_risk:
        return f"It {end}."
    joint = "; it" if notice.end >= 0 else ", and"
    return f"It can no longer end by then{joint} {end}."


def _headline(notice: Notice, now: int) -> str:
    if notice.kind == "lost" and notice.forecast is not None:
        forecast = describe_deadline_forecast(notice.forecast, _format_time)
        return f"its deadline, {_format_time(notice.deadline)}, is {forecast}"
    if notice.kind == "lost" and notice.at_risk:
        return f"its accepted deadline is at risk, {_format_time(notice.deadline)}"
    if notice.kind == "lost":
        return f"its deadline is lost, {_format_time(notice.deadline)}"
    if notice.gain is not None:
        gain = notice.gain
        sooner = format_walltime(gain.planned_start - gain.sooner_start)
        return f"walltime={format_walltime(gain.enough)} would start it {sooner} sooner as planned now"
    if notice.kind == "walltime":
        new, former = format_walltime(notice.walltime), format_walltime(notice.former_walltime)
        return f"its walltime is now {new}, before {former}"
    if notice.start < 0:
        return "its planned start is no longer known"
    sentence = _start_sentence(notice, now, _format_time)
    start = f"{sentence[:1].lower()}{sentence[1:]}" or f"planned {_format_time(notice.start)}"
    return f"{'starts soon' if notice.kind == 'soon' else 'its start moved'}: {start}"


def _start_sentence(notice: Notice, now: int, time: Callable[[int], str]) -> str:
    """Return the sentence about the start; empty for a job without a known start."""
    if notice.facts is None or notice.start < 0:
        return ""
    return describe_start(notice.facts, now).text(time)


def _format_time(time: int) -> str:
    """Return the time in the time zone of the daemon's host."""
    return f"{datetime.fromtimestamp(time).astimezone():%a %Y-%m-%d %H:%M %Z}"


def _unsubscribe_command(notice: Notice) -> str:
    return f"schedd notify remove {notice.subscription.number}"
