"""Webhooks: signed POST requests about moved starts and alerts, with retries.

Each webhook has its own task, so that a hanging one does not delay others. Pending moves are merged by job: a
request reports the total move since the last request. An alert that opened and closed while the webhook was
unreachable is not reported.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import structlog

from schedd.engine import (
    JobRecord,
    OpenAlert,
    PlanSnapshot,
    last_change,
    render_job,
)
from schedd.error_text import describe_error
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.notifications.webhook_secrets import Webhook
from schedd.service.read.current_faults import alert_view
from schedd.service.read.plan_lists import matches_owner
from schedd.service.settings.daemon import WebhookSettings
from schedd.service.settings.targets import RequestTarget, TargetRefused, resolve_targets

SIGNATURE: Final = "Schedd-Signature"
_log = structlog.get_logger(__name__)
_TIMEOUT_S: Final = 10.0
_WHOLE_S: Final = 30.0  # timeout until the answer begins; each step has `_TIMEOUT_S`
_PAUSE_S: Final = 1.0
"""Minimum time between two requests to one webhook; changes in between are sent together."""
_MOST: Final = 1_000  # maximum number of changes in a request
_LONGEST_WAIT_S: Final = 300.0
_AGAIN: Final = frozenset({408, 425, 429})
_ALERT_TRIES: Final = 3  # failed requests in a row before an alert opens
_RENDERED: Final = frozenset({"expected_start", "expected_by", "promised_start", "headline"})


@dataclass(frozen=True, slots=True)
class StartMoved:
    """A planned start that moved; null: not known. Times are seconds since the epoch (UTC)."""

    job: str
    owner: str
    queue: str
    before: int | None
    after: int | None
    cause: str
    words: str
    event: str
    time: int  # when it was decided
    expected_start: int | None = None  # P50 by real run times, as published now; null: no estimate
    expected_by: int | None = None  # P90
    promised_start: int | None = None  # it starts at the latest then, as promised; null: nothing is promised
    headline: str = ""  # its start in one sentence, as published now; times in UTC
    deadline_state: str = ""  # `accepted`, `wished`, `at_risk` or `missed`; empty without a deadline
    deadline_probability: float | None = None
    """Of a deadline with a probability: the probability that the job ends in time, by the latest forecast."""


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the signature header: the time, and HMAC-SHA256 of `time.body` in hexadecimal."""
    digest = hmac.new(secret, b"%d." % moment + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class _StartTracker:
    """The last reported start of each job, for one webhook."""

    def __init__(self, loop: PlanLoop, settings: WebhookSettings) -> None:
        self._loop = loop
        self._settings = settings
        self._told: dict[str, int | None] = {}
        self._generation: int | None = None

    def moved(self) -> dict[str, StartMoved]:
        """Return the starts that moved by more than the threshold since reported; no new jobs."""
        published = self._loop.published
        found: dict[str, StartMoved] = {}
        for record in self._changed(published):
            start = int(published.starts[record.slot]) if record.slot >= 0 else -1
            after = start if start >= 0 else None
            if record.id not in self._told:
                self._told[record.id] = after
                continue
            before = self._told[record.id]
            if before == after or (
                before is not None and after is not None and abs(after - before) <= self._settings.threshold
            ):
                continue
            found[record.id] = self._describe_move(published, record, before, after)
            self._told[record.id] = after
        self._generation = published.generation
        return found

    def _changed(self, published: PlanSnapshot) -> Iterable[JobRecord]:
        settings = self._settings

        def has_webhook_user(_job: str, owner: str) -> bool:
            return not settings.users or any(matches_owner(owner, user) for user in settings.users)

        found = None
        if self._generation is not None:
            found = self._loop.feed.changes_since(published, self._generation, has_webhook_user)
        if found is None:  # the first check, or too many changes since the last one
            records = [r for r in (*published.records, *published.slotless.values()) if r is not None]
            there = {record.id for record in records}
            self._told = {job: start for job, start in self._told.items() if job in there}
            return [record for record in records if has_webhook_user(record.id, record.facts.owner)]
        changed, gone = found
        for job in gone:
            self._told.pop(job, None)
        return changed

    @staticmethod
    def _describe_move(
        published: PlanSnapshot, record: JobRecord, before: int | None, after: int | None
    ) -> StartMoved:
        change = last_change(published, record.slot) if record.slot >= 0 else None
        view = render_job(published, record, _RENDERED)
        return StartMoved(
            job=record.id,
            owner=record.facts.owner,
            queue=record.facts.queue,
            before=before,
            after=after,
            cause=change.cause if change is not None else "",
            words=change.words if change is not None else "",
            event=change.event if change is not None else "",
            time=change.time if change is not None else published.as_of,
            expected_start=view.expected_start,
            expected_by=view.expected_by,
            promised_start=view.promised_start,
            headline=view.headline,
            deadline_state=view.deadline_state,
            deadline_probability=view.deadline_probability,
        )


class _AlertTracker:
    """The open alerts that were reported to one webhook."""

    def __init__(self, loop: PlanLoop) -> None:
        self._loop = loop
        self.reported: dict[tuple[str, str], OpenAlert] = {}

    def changes(self) -> tuple[list[OpenAlert], list[OpenAlert]]:
        """Return the opened and the closed alerts since the last report."""
        found = {(one.kind, one.about): one for one in self._loop.alerts.current}
        opened = [one for key, one in found.items() if key not in self.reported]
        return opened, [one for key, one in self.reported.items() if key not in found]

    def mark_reported(self, opened: Iterable[OpenAlert], closed: Iterable[OpenAlert]) -> None:
        """Record that these were reported."""
        for one in closed:
            self.reported.pop((one.kind, one.about))
        self.reported |= {(one.kind, one.about): one for one in opened}


async def run_webhook(
    loop: PlanLoop,
    hook: Webhook,
    client: httpx2.AsyncClient,
    *,
    pause: float = _PAUSE_S,
    wait: Callable[[int], float] = lambda tries: min(2.0**tries, _LONGEST_WAIT_S),
) -> None:
    """Report the moves and alerts of one cluster until the planner stops; nothing on standby."""
    try:
        await _report_changes(loop, hook, client, pause, wait)
    finally:
        loop.webhook_troubles.pop(hook.settings.url, None)


async def _report_changes(
    loop: PlanLoop, hook: Webhook, client: httpx2.AsyncClient, pause: float, wait: Callable[[int], float]
) -> None:
    watch, alerts = _StartTracker(loop, hook.settings), _AlertTracker(loop)
    waiting: dict[str, StartMoved] = {}
    tries, not_before = 0, 0.0
    with loop.feed.signal.subscribe() as signalled:
        while not loop.feed.signal.closed:
            signalled.clear()
            moved = await asyncio.to_thread(watch.moved) if hook.settings.moves else {}
            for job, move in moved.items():
                earlier = waiting.pop(job, None)
                merged = move if earlier is None else _merge(earlier, move)
                if merged is not None:
                    waiting[job] = merged
            if loop.on_standby:  # the leader reports
                waiting.clear()
                alerts.reported.clear()
            news = hook.settings.alerts and not loop.on_standby and bool(any(alerts.changes()))
            if not (waiting or news):
                loop.webhook_troubles.pop(hook.settings.url, None)
            elif time.monotonic() >= not_before:
                batch = list(waiting.values())[:_MOST]
                opened, closed = alerts.changes() if news else ([], [])
                failure = ""
                if news:
                    message = {
                        name: [asdict(alert_view(one, loop.name)) for one in some]
                        for name, some in (("opened", opened), ("closed", closed))
                    }
                    failure = await _post(loop, hook, client, "alerts", message, tries)
                if news and not failure:
                    alerts.mark_reported(opened, closed)
                if batch and not failure:
                    message = {"moves": [*map(asdict, batch)]}
                    failure = await _post(loop, hook, client, "planned_start_moved", message, tries)
                    for move in batch if not failure else ():
                        waiting.pop(move.job)
                tries = tries + 1 if failure else 0
                if failure:
                    not_before = time.monotonic() + wait(tries)
                _note_trouble(loop, hook, failure, tries)
            await asyncio.sleep(pause)
            left = max(0.0, not_before - time.monotonic()) if waiting or tries else None
            if left != 0.0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await signalled.wait()


def _merge(earlier: StartMoved, later: StartMoved) -> StartMoved | None:
    """Merge two moves; None if the start is back at its reported time."""
    if earlier.before == later.after:
        return None
    return StartMoved(**{**asdict(later), "before": earlier.before})


def _note_trouble(loop: PlanLoop, hook: Webhook, failure: str, tries: int) -> None:
    """Name the failure in an alert if requests fail again and again; end it after a success."""
    url = hook.settings.url
    if not failure:
        loop.webhook_troubles.pop(url, None)
    elif tries >= _ALERT_TRIES:
        where = urlsplit(url).hostname or ""
        loop.webhook_troubles[url] = f"the webhook at {where} takes no events, they are sent again: {failure}"


async def _post(
    loop: PlanLoop,
    hook: Webhook,
    client: httpx2.AsyncClient,
    kind: str,
    what: Mapping[str, list[Any]],
    tries: int,
) -> str:
    """Send a request; return why it must be sent again, empty if it was accepted or rejected for good."""
    settings = hook.settings
    where = urlsplit(settings.url).hostname or ""  # the rest may be a secret
    message = {
        "type": kind,
        "id": secrets.token_hex(8),
        "cluster": loop.name,
        **what,
    }
    body = json.dumps(message, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        SIGNATURE: signature(hook.secret, int(time.time()), body),
    }
    try:
        async with asyncio.timeout(_WHOLE_S):
            answer = await _send(await resolve_targets(settings.url, settings.allow), client, body, headers)
    except TargetRefused as refused:
        return _note_failure(loop, where, tries, str(refused))
    except (httpx2.HTTPError, OSError) as error:  # TimeoutError is an OSError
        return _note_failure(loop, where, tries, describe_error(error))
    if answer.is_success:
        if tries:
            _log.info("the webhook takes events again", hook=where)
        loop.metrics.count_webhook("taken")
        return ""
    if answer.status_code >= 500 or answer.status_code in _AGAIN:
        return _note_failure(loop, where, tries, f"HTTP {answer.status_code}")
    _log.error(
        "the webhook refuses", hook=where, status=answer.status_code, dropped=sum(map(len, what.values()))
    )
    loop.metrics.count_webhook("refused")
    return ""


async def _send(
    targets: Sequence[RequestTarget], client: httpx2.AsyncClient, body: bytes, headers: Mapping[str, str]
) -> httpx2.Response:
    """Return the answer of the first target that accepts a connection. Raises httpx2.HTTPError."""
    for place, target in enumerate(targets, start=1):
        sending = client.stream(
            "POST",
            target.url,
            content=body,
            headers={**headers, **target.headers},
            extensions=target.extensions,
            timeout=_TIMEOUT_S,
            follow_redirects=False,
        )
        try:
            # The answer's body, possibly endless, is not read; redirects are not followed.
            async with sending as answer:
                return answer
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if place == len(targets):
                raise
    raise AssertionError("there is a target")


def _note_failure(loop: PlanLoop, where: str, tries: int, why: str) -> str:
    """Count a failed request, log the first of several; return the reason."""
    loop.metrics.count_webhook("failed")
    if not tries:
        _log.warning("the webhook is not taking events; it is tried again", hook=where, why=why)
    return why
