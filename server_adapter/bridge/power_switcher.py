"""Switches nodes on and off by the site's own commands, several nodes at a time.

The commands run here and not in the daemon, which users can reach over the network: it then needs no secrets
of the nodes' management boards. Repeated decisions are harmless: a running node is switched on again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from schedd.wire import Switch, Switched
from server_adapter.bridge.decision_queue import DecisionOutcomes, DecisionQueue
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.run_checks import describe_old_term
from server_adapter.bridge.state import ServerState
from server_adapter.settings import PowerCommandSettings

_log = logging.getLogger(__name__)

_MOST_OUTPUT: Final = 2_000


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command: exit status (-1 without one), and its output or the reason for its absence."""

    code: int
    text: str


async def run(command: Sequence[str], timeout: float) -> CommandResult:
    """Run the site's command without a shell; it is killed after `timeout` seconds."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except OSError as error:
        return CommandResult(-1, f"{command[0]}: {error.strerror or error}")
    try:
        async with asyncio.timeout(timeout):
            printed, _ = await process.communicate()
    except TimeoutError:
        return CommandResult(-1, f"{command[0]} did not end within {timeout:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text = printed.decode("utf-8", "replace").strip()
    code = process.returncode if process.returncode is not None else -1
    if code and not text:
        text = f"{command[0]} ended with {code}"
    return CommandResult(code, "".join(one if one.isprintable() else " " for one in text[-_MOST_OUTPUT:]))


class PowerSwitcher:
    """Executes power decisions. `barred` returns the reason against any action, or an empty text; `fresh`
    reads the server again; `term` is the highest known leader's term. Events have the time of `clock`,
    decisions expire by `cluster_time` (default: the same).
    """

    def __init__(
        self,
        settings: PowerCommandSettings,
        delivery: DaemonExchange,
        barred: Callable[[], str],
        fresh: Callable[[], Awaitable[ServerState]],
        term: Callable[[], int],
        clock: Callable[[], float] = time.time,
        *,
        cluster_time: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        self._delivery = delivery
        self._barred = barred
        self._fresh = fresh
        self._term = term
        self._clock = clock
        self._cluster_time = cluster_time or clock
        self._waiting: DecisionQueue[Switch] = DecisionQueue()
        self._outcomes: DecisionOutcomes[CommandResult] = DecisionOutcomes()

    def enqueue(self, decision: Switch) -> None:
        """Queue a decision; the newest decision about a node replaces older ones."""
        self._waiting.add(decision.node, decision)

    async def work(self) -> None:
        """Carry out decisions for ever."""
        await self._waiting.work(self.step)

    async def finish(self) -> None:
        """Carry out all waiting decisions."""
        while self._waiting:
            await self.step()

    async def step(self) -> None:
        """Switch all waiting nodes with the same target as the first, by one command."""
        _, first = self._waiting.first()
        on = first.on
        some = [one for one in self._waiting.decisions() if one.on == on][: self._settings.at_once]
        left = await self._permitted(some)
        if left and not on:
            left = await self._permitted(await self._not_in_use(left))  # the reading may have taken long
        if not left:
            return
        command = [*(self._settings.on if on else self._settings.off), *(one.node for one in left)]
        _log.info("%s", " ".join(command))
        ran = await run(command, self._settings.timeout)
        if ran.code:
            _log.warning("%s: %s", command[0], ran.text)
        for one in left:
            await self._report(one, ran)

    async def _permitted(self, some: Sequence[Switch]) -> list[Switch]:
        """Return the decisions that may be executed now, and report the others."""
        left: list[Switch] = []
        for one in some:
            refused = self._outcomes.find(one) or self._refusal(one)
            if refused is not None:
                await self._report(one, refused)
            else:
                left.append(one)
        return left

    def _refusal(self, one: Switch) -> CommandResult | None:
        barred = self._barred()
        if barred:
            return CommandResult(-1, barred)
        if not (self._settings.on and self._settings.off):
            return CommandResult(
                -1, "the adapter's settings have no commands to switch nodes: [power] on and off"
            )
        if one.term < self._term():
            return CommandResult(-1, describe_old_term(one.term, self._term()))
        if self._cluster_time() >= one.expires:
            return CommandResult(-1, f"the decision expired {self._cluster_time() - one.expires:.0f} s ago")
        if one.node.startswith("-"):
            return CommandResult(-1, "its name could be taken for an option")
        return None

    async def _not_in_use(self, some: list[Switch]) -> list[Switch]:
        """Return the nodes without a job on the server: there may have been a manual start."""
        state = await self._fresh()
        holds = {
            share.node: job.id for job in state.jobs.values() if job.state in ACTIVE for share in job.shares
        }
        left: list[Switch] = []
        for one in some:
            if one.node in holds:
                await self._report(one, CommandResult(-1, f"job {holds[one.node]} is on it"))
            else:
                left.append(one)
        return left

    async def _report(self, one: Switch, ran: CommandResult) -> None:
        self._outcomes.record(one, ran)
        self._waiting.settle(one.node, one)
        await self._delivery.enqueue(
            Switched(
                id=next(self._delivery.ids),
                time=int(self._clock()),
                decision_id=one.id,
                node=one.node,
                on=one.on,
                done=ran.code == 0,
                code=ran.code,
                text=ran.text,
            )
        )
