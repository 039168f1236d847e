"""Events at a real daemon at a given rate, and their times until they are durable and lead to a start.

Due events are sent as soon as the previous delivery is acknowledged, as an adapter does. Every event has its
own due time; all waits count from it, so they include the wait for the previous delivery.
"""

import contextlib
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter

from research.benchmarks.daemon import BenchDaemon, DaemonConnection, DaemonFailed, Size
from research.benchmarks.site import BenchSite
from research.benchmarks.wait import Wait
from schedd.wire import Decision, Event, Run
from schedd.wire.events import Delivery

_BODY: Final = TypeAdapter(Delivery)
_DECISIONS: Final[TypeAdapter[tuple[Decision, ...]]] = TypeAdapter(tuple[Decision, ...])
_MOST: Final = 2_000  # events in one delivery
_FEW: Final = 20_000
_QUIET_S: Final = 2.0
_PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon's size (MiB) after this number of events of the storm."""

    events: int
    second: float
    rss: float
    database: float
    wal: float


@dataclass(frozen=True, slots=True)
class StormFigures:
    """What a storm found. ``acknowledged``: from when an event was due until the daemon had kept and handled
    it. ``decided``: from when the event was due that begins a batch until the decisions were read to start
    jobs because of that batch.
    """

    seconds: float
    events: int
    events_per_s: float
    kinds: dict[str, int]
    early_ends: float
    """Share of all events."""
    acknowledged: Wait
    decided: Wait
    deliveries: int
    sent_again: int
    processor_us: float
    """Processor time of the daemon, all its threads, for each event of the storm."""
    samples: tuple[Sample, ...]


class Storm:
    """One daemon and one site, from the first snapshot to the last event."""

    def __init__(self, daemon: BenchDaemon, site: BenchSite) -> None:
        self._daemon = daemon
        self._site = site
        self._post = daemon.client()
        self._due: dict[str, float] = {}
        self._came: deque[tuple[float, tuple[Decision, ...]]] = deque()
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read, name="decisions", daemon=True)
        self._acknowledged: list[float] = []
        self._decided: list[float] = []
        self._deliveries = self._again = 0

    # ---- before and after -----------------------------------------------------------------------

    def fill(self) -> float:
        """Send the daemon the whole site, and let it start all jobs that fit; return the seconds of the
        snapshot.
        """
        begun = time.monotonic()
        self._send([(begun, self._site.snapshot(_now()))])
        took = time.monotonic() - begun
        self._reader.start()
        self.settle()
        self._site.begin()
        return took

    def settle(self) -> None:
        """Carry out decisions until no more jobs are started. Raises DaemonFailed when that takes long."""
        until = time.monotonic() + _PATIENCE_S
        quiet = time.monotonic()
        while time.monotonic() - quiet < _QUIET_S:
            outbox = self._outcomes()
            if outbox:
                self._send(outbox)
            if outbox or self._arriving():
                quiet = time.monotonic()
            if quiet > until:
                raise DaemonFailed("jobs are started again and again")
            time.sleep(0.02)

    def refill(self) -> None:
        """Submit jobs in place of started ones, until as many wait as there were. Raises DaemonFailed."""
        while arrived := self._site.arrivals(_now()):
            for first in range(0, len(arrived), _MOST):
                begun = time.monotonic()
                self._send([(begun, one) for one in arrived[first : first + _MOST]])
            self.settle()

    def _arriving(self) -> bool:
        """Whether the planner has not taken in all jobs of the snapshot."""
        return bool(self._post.ask("GET", self._daemon.cluster)["arriving"])

    def close(self) -> None:
        self._stop.set()
        if self._reader.ident is not None:
            self._reader.join()
        self._post.close()

    # ---- the storm ------------------------------------------------------------------------------

    def blow(self, rate: float, seconds: float, events: int = 0, *, warm_up: float = 3.0) -> StormFigures:
        """Send ``rate`` events per second (0: as many as possible) for this time, or up to this number.

        Events of the first ``warm_up`` seconds (at most a quarter) count only for the rate.
        """
        self._acknowledged, self._decided = [], []
        self._site.counts.clear()
        self._deliveries = self._again = 0
        samples: list[Sample] = []
        begun = time.monotonic()
        counted = begun + (min(warm_up, seconds / 4) if seconds else warm_up)
        made, next_sample = 0, begun
        processor_before = self._daemon.processor_s
        while True:
            now = time.monotonic()
            if now - begun >= seconds or (events and made >= events):
                break
            outbox = self._outcomes()
            made += len(outbox)
            more = min(int((now - begun) * rate) + 1 - made, _MOST) if rate else 200 - len(outbox)
            for _ in range(more):
                due = begun + made / rate if rate else now
                outbox.append((min(due, now), self._site.next(_now())))
                made += 1
            if outbox:
                self._send(outbox, counted)
            else:
                time.sleep(0.002)
            if now >= next_sample:
                next_sample += max(1.0, seconds / 200)
                samples.append(self._sample(made, now - begun))
        took = time.monotonic() - begun
        processor_s = self._daemon.processor_s - processor_before
        samples.append(self._sample(made, took))
        kinds = dict(sorted(self._site.counts.items()))
        ends = kinds.get("end", 0)
        return StormFigures(
            seconds=round(took, 1),
            events=made,
            events_per_s=round(made / took, 1),
            kinds=kinds,
            early_ends=round(ends / max(made, 1), 3),
            acknowledged=Wait.of(self._acknowledged),
            decided=Wait.of(self._decided),
            deliveries=self._deliveries,
            sent_again=self._again,
            processor_us=round(processor_s / max(made, 1) * 1e6, 1),
            samples=tuple(samples),
        )

    def _sample(self, made: int, second: float) -> Sample:
        size: Size = self._daemon.size()
        return Sample(made, round(second, 1), *(round(value, 2) for value in asdict(size).values()))

    def _outcomes(self) -> list[tuple[float, Event]]:
        """Carry out the decisions that came."""
        if self._failure is not None:
            raise DaemonFailed("decisions cannot be read any more") from self._failure
        found: list[tuple[float, Event]] = []
        while self._came:
            at, decisions = self._came.popleft()
            for decision in decisions:
                due = self._due.get(decision.cause)
                if isinstance(decision, Run) and due is not None:
                    self._decided.append(at - due)
            found += [(at, event) for event in self._site.carry_out(decisions, _now())]
        return found

    def _send(self, outbox: list[tuple[float, Event]], counted: float = 0.0) -> None:
        """Deliver these until they are acknowledged."""
        for due, event in outbox:
            if due >= counted:
                self._due[event.id] = due
        while len(self._due) > 100_000:
            del self._due[next(iter(self._due))]
        body = _BODY.dump_json(Delivery(events=tuple(event for _, event in outbox)))
        self._deliveries += 1
        while True:
            status, text = self._post.raw("POST", self._daemon.cluster + "/events", body)
            if status == 200:
                break
            if status not in (429, 503):
                raise DaemonFailed(f"events were refused: {status} {text.decode(errors='replace')[:500]}")
            self._again += 1
            time.sleep(0.1)
        now = time.monotonic()
        self._acknowledged += [now - due for due, _ in outbox if due >= counted]

    def _read(self) -> None:
        """In a thread of its own: decisions as they come."""
        client: DaemonConnection = self._daemon.client()
        place = ""
        try:
            while not self._stop.is_set():
                path = f"{self._daemon.cluster}/decisions?after={place}&wait=1&limit=10000"
                found: dict[str, Any] = client.ask("GET", path)
                if found["decisions"]:
                    self._came.append((time.monotonic(), _DECISIONS.validate_python(found["decisions"])))
                place = found["last"]
        except Exception as error:  # set by the other thread
            self._failure = error
        finally:
            with contextlib.suppress(OSError):
                client.close()


def slope_of(samples: tuple[Sample, ...], name: str) -> float | None:
    """Return the growth of a size in MiB per million events, by least squares over the second half.

    None for fewer than 20,000 events: caches that are filled once would count as growth.
    """
    half = samples[len(samples) // 2 :]
    if samples[-1].events < _FEW:
        return None
    events = np.array([sample.events for sample in half]) / 1e6
    return round(float(np.polyfit(events, [getattr(sample, name) for sample in half], 1)[0]), 2)


def _now() -> int:
    return int(time.time())
