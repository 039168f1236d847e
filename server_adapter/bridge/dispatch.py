"""Executes run decisions: check, request, and outcome."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from schedd.wire import Run
from server_adapter.batch.errors import (
    ProtocolError,
    ServerRefusedError,
    ServerUnreachableError,
    StaleConnectionError,
)
from server_adapter.bridge.journal import Journal
from server_adapter.bridge.rate_limits import NodeRateLimiter, RateLimiter
from server_adapter.bridge.run_checks import RunVerdict, check_decision
from server_adapter.bridge.server import RunOutcome, Server

_log = logging.getLogger(__name__)

_FIRST_SHARE = 0.1  # of the longest wait for a busy node
_BURST_PAUSE_S = 0.3  # between two runs of one burst
_SETTLING = 2.0  # seconds until the outcome of a run with a lost answer is checked


@dataclass(frozen=True, slots=True)
class RunRules:
    """Rules for requesting runs; times in seconds, rates per second.

    A busy start is retried up to `busy_retries` times. The waits grow from a tenth of `busy_wait` to
    `busy_wait`: usually a node is free some tenths of a second after an end.
    """

    busy_retries: int = 6
    busy_wait: float = 1.0
    per_second: float = 50.0
    per_node: float = 10.0


class _ExpiredError(Exception):
    """The decision expired before its request: the daemon may have given its nodes to another job."""


class Dispatcher:
    """Executes run decisions, one request at a time; decisions for busy nodes let others go first.

    `barred` returns the reason against any start at present (shadow mode, another scheduler), or an empty
    text.
    """

    def __init__(
        self,
        server: Server,
        journal: Journal,
        barred: Callable[[], str],
        rules: RunRules,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._journal = journal
        self._barred = barred
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._requesting = 0
        self._requested_at = float("-inf")
        self._rate = RateLimiter(rules.per_second, burst=max(1, int(rules.per_second)))
        self._node_rates = NodeRateLimiter(rules.per_node, burst=max(1, int(rules.per_node)))

    @property
    def busy(self) -> bool:
        """Whether runs are requested at present or were a moment ago: in a burst more follow at once."""
        return self._requesting > 0 or time.monotonic() - self._requested_at < _BURST_PAUSE_S

    async def run(self, run: Run) -> RunOutcome:
        """Execute one decision; never raises for errors of the server or the network."""
        if _name(run) in self._journal.requested_before:
            return await self._verify_outcome(run, "it was asked for before the adapter was restarted")
        attempt, error_text = 0, ""
        while True:
            if error_text and self._clock() >= run.expires:
                return _not_reached(error_text)
            barred = self._barred()
            if barred:
                return RunOutcome(False, 0, barred, outage=True)
            check = check_decision(run, now=self._clock(), term=self._journal.term)
            if check.verdict is not RunVerdict.RUN:
                return RunOutcome(False, 0, check.reason, outage=check.expired)
            self._journal.record_term(run.term)
            await self._wait_for_rate(run)
            error_text, tried, requested = "", RunOutcome(False), False

            def on_request() -> None:
                nonlocal requested
                if self._clock() >= run.expires:
                    raise _ExpiredError
                requested = True
                self._journal.record_request(run.job_id, _name(run))

            self._requesting += 1
            try:
                tried = await self._server.run(run, on_request)
            except _ExpiredError:
                text = "the decision expired while it waited for the server"
                tried = RunOutcome(False, 0, text, outage=True)
            except ServerRefusedError as error:
                tried = RunOutcome(False, error.code, error.text or str(error))
            except StaleConnectionError as error:
                # The server has answered without executing the run: the next try has a new connection.
                tried = RunOutcome(False, error.code, str(error), busy=True)
            except (ServerUnreachableError, ProtocolError) as error:
                error_text = str(error)
            finally:
                self._requesting -= 1
                self._requested_at = time.monotonic()
            if error_text and requested:
                return await self._verify_outcome(run, error_text)
            if error_text:  # nothing was requested: the connection may have ended in a restart of the server
                await self._sleep(min(self._rules.busy_wait, max(0.0, run.expires - self._clock())))
                continue
            if not tried.busy or attempt == self._rules.busy_retries:
                return tried
            await self._sleep(self._rules.busy_wait * min(1.0, _FIRST_SHARE * 2**attempt))
            attempt += 1

    async def _wait_for_rate(self, run: Run) -> None:
        nodes = [share.node for share in run.shares]
        while True:
            now = time.monotonic()
            wait = max(self._rate.wait(now), self._node_rates.wait(nodes, now))
            if wait <= 0:
                break
            await self._sleep(wait)
        self._rate.consume(now)
        self._node_rates.consume(nodes, now)

    async def _verify_outcome(self, run: Run, reason: str) -> RunOutcome:
        """Check whether the job runs, since the server may have got the request. It is not sent again."""
        _log.warning("run of %s: %s; looking what became of it", run.job_id, reason)
        while True:
            await self._sleep(_SETTLING)
            try:
                check = await self._server.verify_run(run)
            except (ServerUnreachableError, ProtocolError, ServerRefusedError):
                if self._clock() < run.expires:
                    continue
                return _not_reached(reason)
            if check.verdict is RunVerdict.RUNS:
                return RunOutcome(True, text=check.reason)
            return RunOutcome(False, 0, f"{reason}; {check.reason or 'the job is still queued'}")


def _not_reached(reason: str) -> RunOutcome:
    return RunOutcome(False, 0, f"{reason}; not reached again in time", outage=True)


def _name(run: Run) -> str:
    """Return a key of the decision that stays unique if the daemon loses its state and reuses ids."""
    return f"{run.id}@{run.time}"
