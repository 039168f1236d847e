"""Polling of licence counts: a configured program is run periodically, and its output becomes an event."""

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Final

import structlog

from schedd.features.licences.settings import LicenceSettings
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.supervision import PeriodicWork
from schedd.wire import ResourceCounted

_log = structlog.get_logger(__name__)
_PATIENCE: Final = 10.0  # time limit of the program, in seconds
_LOOK: Final = 1.0  # seconds between two checks of the settings and of the leadership
_MOST: Final = 1 << 40


class PollError(Exception):
    """A program did not print a count; the message gives the reason."""


def read_count(command: Sequence[str]) -> int:
    """Run ``command`` and return the whole number on the first line of its output. Raises PollError."""
    try:
        done = subprocess.run(  # the site's own command, without a shell
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise PollError(f"{command[0]} did not answer within {_PATIENCE:.0f} s") from None
    except OSError as error:
        raise PollError(f"{command[0]}: {error.strerror or error}") from None
    said = done.stdout.decode("utf-8", "replace").strip().splitlines()[:1]
    if done.returncode:
        why = done.stderr.decode("utf-8", "replace").strip()[:200]
        raise PollError(f"{command[0]} ended with {done.returncode}" + (f": {why}" if why else ""))
    if not said or not said[0].strip().isdecimal() or int(said[0]) > _MOST:
        raise PollError(f"{command[0]} said {''.join(said)[:80]!r}: a whole number is needed")
    return int(said[0])


class LicencePoller(PeriodicWork):
    """Polls the licences of one cluster, in a thread of its own; follows the present settings."""

    def __init__(self, loop: PlanLoop) -> None:
        super().__init__(loop.supervisor, "licences", _LOOK, cluster=loop.name)
        self._loop = loop
        self._next: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self._late: set[str] = set()
        self._number = 0
        self._life = f"{time.time_ns():x}"

    def run_step(self) -> None:
        """Poll the licences that are due now."""
        self.poll_licences(time.monotonic())

    def next_wait_s(self) -> float:
        """Return the seconds until a licence is due, or until the settings are read again."""
        due = min(self._next.values(), default=time.monotonic() + self._period_s)
        return min(self._period_s, max(0.05, due - time.monotonic()))

    def poll_licences(self, now: float) -> None:
        """Poll the licences that are due at ``now`` (monotonic), if this daemon leads."""
        try:
            self._loop.check_leads()
        except PlannerStopped:
            return
        polled = self._polled_licences()
        self._next = {name: due for name, due in self._next.items() if name in polled}
        for name, one in polled.items():
            if self._stopping.is_set() or now < self._next.get(name, now):
                continue
            self._next[name] = now + one.every
            self._answered.setdefault(name, now)
            try:
                amount = read_count(one.command)
                if name in self._polled_licences():  # else a count without settings would stay in force
                    self._submit_count(name, amount, free=one.free)
            except (PollError, PlannerStopped, Overloaded) as error:
                self._record_failure(name, str(error), now, one.stale)
            else:
                self._answered[name] = now
                self._late.discard(name)

    def _polled_licences(self) -> dict[str, LicenceSettings]:
        licences = self._loop.published.settings.site.named_entries(LicenceSettings)
        return {name: one for name, one in licences.items() if one.command}

    def _submit_count(self, name: str, amount: int, *, free: bool) -> None:
        self._number += 1
        event = ResourceCounted(
            id=f"licence:{self._life}:{self._number}",
            time=self._loop.now(),
            name=name,
            amount=amount,
            free=free,
        )
        self._loop.submit([event])

    def _record_failure(self, name: str, why: str, now: float, stale: int) -> None:
        age = int(now - self._answered[name])
        _log.warning("a licence was not counted", cluster=self._loop.name, licence=name, why=why, age=age)
        if age >= stale and name not in self._late:
            self._late.add(name)
            _log.error("the count of a licence is old", cluster=self._loop.name, licence=name, age=age)


def cluster_service(loop: PlanLoop, _: DaemonStore | None) -> LicencePoller:
    return LicencePoller(loop)
