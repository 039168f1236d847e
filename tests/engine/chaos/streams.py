"""Long random streams of events; the engine is compared with restored ones at each step."""

import json
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from schedd.engine import Engine, EngineSettings, Outcome
from schedd.engine.checkpoint import _MAGIC, _SIZES, FORMAT, FrozenState, _header, _opened
from schedd.plan.compaction import Compaction
from schedd.plan.kernels import layout
from schedd.plan.plan import Plan
from schedd.policy.site import site_policy
from schedd.wire import (
    AccountMoved,
    AccountSet,
    Alert,
    BatchSkipped,
    ClockSet,
    Decision,
    Event,
    JobFacts,
    PowerRequested,
    ResourceCounted,
    Run,
    SubmissionFacts,
    Switch,
    Switched,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStepDone,
    TransferWithdrawal,
    WattsRead,
)
from schedd.wire.facts import NodeStateName
from tests.engine.chaos.lives import Chaos, Placed, Ranked, Shortest, Strict, acts
from tests.engine.chaos.promise_log import PromiseLog
from tests.engine.chaos.values import JOBS, NODES

__all__ = ["KINDS", "QUEUE_KINDS", "Stream", "fill_allocations", "packed", "stream"]

_COMPARED = 300
"""Steps of a restored engine in parallel with the first one, before it is replaced."""
_STEPS = [
    *(
        "reservations",
        "bookings",
        "overruns",
        "lost nodes",
        "outcomes",
        "deadlines",
        "dependencies",
        "accounts",
        "node_trials",
    ),
    *("dispatch", "limits of cost", "late starts", "promises", "backfill", "repair", "priorities", "power"),
    *("published starts", "what is past", "the site's policy", "limits"),
    "requests that read differently",
]
_ERRORS = ("error", "quarantine", "bookkeeping")
_ACCOUNTS = ["ann", "bob", "free"]


def encoded(engine: Engine) -> bytes:
    """Return the engine's state, without the side effects of a checkpoint.

    The bytes equal those of a checkpoint, but they are made without a copy of the state and in one call of
    the JSON encoder; a checkpoint is made in pieces, so that other threads may run.
    """
    return packed(*_returned(_header(engine.state, {"forgotten": engine.forgotten})))


def packed(header: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """Return a checkpoint with this header and these arrays."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    body = b"".join(np.ascontiguousarray(array, "<i8").tobytes() for array in arrays.values())
    sizes = _SIZES.pack(len(text), zlib.crc32(text), zlib.crc32(body))
    return b"".join((_MAGIC, str(FORMAT).encode(), b"\n", sizes, text, body))


def _returned(pieces: Generator[Any, None, Any]) -> Any:
    """What a generator returns at its end."""
    try:
        while True:
            next(pieces)
    except StopIteration as end:
        return end.value


class Compared:
    """An engine, one that is restored regularly, and one that continues from an earlier checkpoint.

    All three must make the same decisions and moves and reach the same state. The first one is used.
    """

    def __init__(self, engine: Engine, every_call: bool) -> None:
        """``every_call``: an engine is restored before each call, and the states are compared after it; else
        before the first call of a step, and the states are compared at the end of the step.
        """
        self.engine = engine
        self.other = Engine.restore(encoded(engine))
        self.promises = PromiseLog(engine)
        self.every_call = every_call
        self.fresh: Engine | None = None
        self._state = b""
        """The encoded state since the last comparison; empty after a change."""
        self.calls = 0
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def handle(self, events: Iterable[Event], now: int) -> Outcome:
        batch = tuple(events)
        if self.fresh is None:
            self.fresh = Engine.restore(self._state or encoded(self.engine))
            fill_allocations(self.fresh.state.plan)
        self._state = b""
        outcome = self.engine.handle(batch, now)
        errors = [one.text for one in outcome.decisions if isinstance(one, Alert) and one.kind in _ERRORS]
        assert not self.engine.diverged, f"an error was kept: {errors}"
        self.promises.check_call(self.engine)
        for name, one in (("restored earlier", self.other), ("restored just before", self.fresh)):
            found = one.handle(batch, now)
            assert found.decisions == outcome.decisions, _difference(name, outcome.decisions, found.decisions)
            assert found.taken == outcome.taken, name
            assert list(map(_plain, found.moves)) == list(map(_plain, outcome.moves)), name
            assert one.next_wake == self.engine.next_wake, name
        self.calls += 1
        if self.every_call:
            self._compare_states()
        return outcome

    def end_step(self) -> None:
        """Compare the states, and let the next step begin with an engine that is restored."""
        self.steps += 1
        if self.fresh is not None:
            self._compare_states()

    def _compare_states(self) -> None:
        """What differs in the engine that was restored earlier stays different: it is compared less often."""
        compared = [("restored just before", self.fresh)]
        if self.calls % 10 == 0:
            compared.append(("restored earlier", self.other))
        state = encoded(self.engine)
        for name, one in compared:
            if one is not None and encoded(one) != state:
                different = differences(self.engine, one)
                assert not different, f"{name}: another state: {different}"
        if self.calls % 100 == 0:
            assert FrozenState(self.engine.state, {"forgotten": self.engine.forgotten}).encode() == state
        self.fresh, self._state = None, state
        if self.calls - self._restored >= _COMPARED:
            self.other, self._restored = Engine.restore(state), self.calls

    _restored = 0

    def pause(self, why: str) -> None:
        self._state = b""
        for one in self._all():
            one.pause(why)

    def resume(self) -> None:
        self._state = b""
        for one in self._all():
            one.resume()

    def restart(self, settings: EngineSettings) -> None:
        """Continue all engines from checkpoints under other settings."""
        self._state = b""
        self.engine = Engine.restore(encoded(self.engine), settings)
        self.other = Engine.restore(encoded(self.other), settings)
        if self.fresh is not None:
            self.fresh = Engine.restore(encoded(self.fresh), settings)

    def _all(self) -> list[Engine]:
        return [self.engine, self.other, *([self.fresh] if self.fresh is not None else [])]

    def skip(self, events: Sequence[Event], now: int) -> tuple[Run, ...]:
        """Simulate a call that fails at its end: all engines continue from the former state, as the daemon
        does.

        Returns its run decisions, which were not sent.
        """
        before = self._state or encoded(self.engine)
        lost = self.engine.handle(events, now).decisions
        self.engine = Engine.restore(before)
        return tuple(one for one in lost if isinstance(one, Run))


def fill_allocations(plan: Plan) -> None:
    """Leave no unused entry of a plan's allocations: their size must have no effect, as it is not saved."""
    slabs = plan.slabs
    held = int(slabs.tb.jobs[layout.ALLOCS].sum())
    slabs.tb = slabs.tb._replace(alloc=Compaction.compact_now(slabs.tb, held))


def _plain(change: Any) -> list[Any]:
    arrays = (change.slots.tolist(), change.old.tolist(), change.new.tolist())
    return [change.number, change.generation, change.time, change.event, change.cause, change.words, *arrays]


def _difference(name: str, ours: Sequence[Decision], theirs: Sequence[Decision]) -> str:
    pairs = zip([*ours, None], [*theirs, None], strict=False)
    first = next(((a, b) for a, b in pairs if a != b), (len(ours), len(theirs)))
    return f"{name}: decided otherwise: {first[0]} but {first[1]}"


def differences(one: Engine, other: Engine) -> list[str]:
    """The saved parts of two states that differ, each in short.

    Records are compared as such: which of them share a request is not a difference.
    """
    headers = [_opened(encoded(engine)) for engine in (one, other)]
    found: list[str] = []
    for name, array in headers[0][1].items():
        theirs = headers[1][1].get(name)
        if name.startswith("records."):
            continue
        if theirs is None or array.tobytes() != theirs.tobytes():
            a, b = ([] if x is None else x.ravel()[:20].tolist() for x in (array, theirs))
            found.append(f"{name}: {a} {b}")
    for header, _ in headers:
        del header["records"], header["arrays"]
    _compare("", headers[0][0], headers[1][0], found)
    ours, others = one.state.records, other.state.records
    if list(ours) != list(others):
        found.append(f"records {list(ours)} {list(others)}")
    found += [f"{ours[job]} {others[job]}" for job in ours if job in others and ours[job] != others[job]]
    return [text[:1500] for text in found[:12]]


def _compare(path: str, one: Any, other: Any, found: list[str]) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            found.append(f"{path}: keys {list(one)} {list(other)}")
        for name in one:
            if name in other:
                _compare(f"{path}.{name}", one[name], other[name], found)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            _compare(f"{path}[{i}]", a, b, found)
    elif one != other:
        found.append(f"{path}: {one} {other}")


def _with(one: EngineSettings, other: EngineSettings) -> EngineSettings:
    """The settings of ``other``, with the site's rules of both."""
    return other.with_changes(site=site_policy({**one.site.plain, **other.site.plain}))


class Stream(Chaos):
    """A random life with accounts, licences, power, transfers, skipped batches and clocks that are set."""

    settings: EngineSettings = Chaos.settings.with_changes(
        site=site_policy(
            {
                "bookings": {"most": 3, "cost": 0.5},
                "fair_share": {},
                "accounts": {"by": "user", "unknown": "run"},
                "power_saving": {"mode": "on", "idle": 100, "min_up": 100, "min_off": 200, "boot_time": 80},
                "power": {"*": {"idle": 100.0, "off": 10.0}},
            }
        ),
    )

    def __init__(self, random: Random, every_call: bool = True) -> None:
        super().__init__()
        self.random = random
        self.compared = Compared(self.engine, every_call)
        self.engine = self.compared  # type: ignore[assignment]
        self.batches = 0
        self.switches: list[Switch] = []
        self.steps: list[TransferDecision] = []
        self.transfers = 0

    def _take(self, decisions: tuple[Decision, ...]) -> None:
        self.switches += [one for one in decisions if isinstance(one, Switch)]
        self.steps += [one for one in decisions if isinstance(one, TransferDecision)]
        super()._take(decisions)

    def _id(self) -> dict[str, Any]:
        return {"id": self.server.event_id(), "time": self.server.now}

    def _tell(self, *events: Event) -> None:
        self.line += events
        self._deliver()

    # ---- acts -----------------------------------------------------------------------------------

    def more_acts(self) -> list[tuple[int, Callable[[], None]]]:
        """Return the acts of streams in addition to the acts of all random lives, with their weights."""
        return [
            (1, self.set_account),
            (1, self.move_amount),
            (1, self.count_licence),
            (1, self.use_licence),
            (1, self.wish_power),
            (1, self.read_watts),
            (2, self.obey_switch),
            (1, self.submit_held),
            (1, self.act_on_transfer),
            (2, self.do_transfer_step),
            (1, self.skip_batch),
            (1, self.set_clock_back),
            (1, self.clock_jumps),
        ]

    def set_account(self) -> None:
        choice = self.random.choice
        self._tell(
            AccountSet(
                **self._id(),
                name=choice(_ACCOUNTS),
                unit=choice(["core_hours", "money"]),
                amount=choice([0, 100, 5000, 10**6]),
                period=choice(["", "", "month"]),
                closed=choice([False, False, False, True]),
                users=choice([(), (), ("ann",)]),
            )
        )

    def move_amount(self) -> None:
        source, target = (self.random.choice([*_ACCOUNTS, ""]) for _ in "12")
        self._tell(
            AccountMoved(**self._id(), source=source, target=target, amount=self.random.randint(0, 500))
        )

    def count_licence(self) -> None:
        amount, free = self.random.randint(0, 4), self.random.random() < 0.3
        self._tell(ResourceCounted(**self._id(), name="sw", amount=amount, free=free))

    def use_licence(self) -> None:
        job = self.server.jobs.get(self.random.choice(JOBS))
        if job is not None and job.state in ("Q", "H"):
            self._tell(*self.server.alter(job.id, resources={**job.resources, "sw": "1"}))

    def wish_power(self) -> None:
        wish: Any = self.random.choice(["on", "off", "hold", "auto", "auto"])
        self._tell(PowerRequested(**self._id(), node=self.random.choice(NODES), wish=wish))

    def read_watts(self) -> None:
        watts = tuple(float(self.random.randint(0, 400)) for _ in NODES)
        self._tell(WattsRead(**self._id(), nodes=tuple(NODES), watts=watts))

    def obey_switch(self) -> None:
        """An order to switch a node is carried out, or fails, or is never answered."""
        if not self.switches:
            return
        one, done = self.switches.pop(0), self.random.random() < 0.7
        told: dict[str, Any] = {"decision_id": one.id, "node": one.node, "on": one.on, "done": done}
        self._tell(Switched(**self._id(), **told, code=0 if done else 1, text="" if done else "no"))
        if done and one.node in self.server.nodes and self.random.random() < 0.8:
            state: NodeStateName = "up" if one.on else "down"
            self._tell(*self.server.change_node(replace(self.server.nodes[one.node], state=state)))

    def submit_held(self) -> None:
        self.transfers += 1
        asked = self.random.choice([{"nodes": "1:ppn=1"}, {"nodes": "1:ppn=2", "walltime": "300"}])
        keep = self.server.now + self.random.choice([0, 100, 3000])
        self._tell(
            TransferRequest(
                **self._id(),
                transfer=f"h{self.transfers}",
                submission=SubmissionFacts("ann", "true", queue="batch", resources=asked),
                by="fed",
                keep_until=keep,
            )
        )

    def act_on_transfer(self) -> None:
        if self.transfers:
            name = f"h{self.random.randint(1, self.transfers)}"
            kind = self.random.choice([TransferRelease, TransferRelease, TransferWithdrawal])
            self._tell(kind(**self._id(), transfer=name))

    def do_transfer_step(self) -> None:
        """A step of a transfer is carried out at the server, or refused, or never answered."""
        if not self.steps:
            return
        one = self.steps.pop(0)
        if self.random.random() < 0.2:
            return
        job, done = f"{100 + int(one.transfer[1:])}.s", self.random.random() < 0.9
        told: dict[str, Any] = {"decision_id": one.id, "transfer": one.transfer, "step": one.step}
        events: list[Event] = [
            TransferStepDone(**self._id(), **told, done=done, server_job=job if done else "", text="")
        ]
        if done and one.step == "submit" and job not in self.server.jobs:
            submitted = self.server.submit(_handed(self, job, one), self.random.randint(0, 600))
            events = [*submitted, *events] if self.random.random() < 0.5 else [*events, *submitted]
        elif done and one.step == "release" and job in self.server.jobs:
            events += self.server.release(job) if self.server.jobs[job].state == "H" else []
        elif done and job in self.server.jobs and self.server.jobs[job].state != "R":
            events += self.server.delete(job)
        self._tell(*events)

    def skip_batch(self) -> None:
        """Simulate a failure in a batch: the engine continues from the former state and gets the skip
        event.
        """
        random = self.random
        self.batches += 1
        events, self.line = self.line, []
        lost = self.compared.skip(events, self.server.now)
        self.past += events
        for run in lost:
            if random.random() < 0.5:  # its decisions had been written down: they may be carried out
                self.open[run.id] = run
                self.offered.append(run)
        now = self.server.now
        out = {run.job_id: run.expires for run in self.open.values() if run.expires >= now}
        self._handle(
            [
                BatchSkipped(
                    **self._id(),
                    batch=self.batches,
                    why="a test",
                    jobs=tuple(random.sample(JOBS, random.choice([0, 0, 1]))),
                    steps=tuple(random.sample(_STEPS, random.choice([0, 0, 1, 2]))),
                    out=out,
                    decided=max([int(run.id[1:]) for run in lost], default=0) + random.choice([0, 3]),
                    anew=random.random() < 0.2,
                )
            ]
        )
        if random.random() < 0.9:
            self.line = []
            self._handle([self.server.snapshot()])
        self._deliver()

    def set_clock_back(self) -> None:
        """Set back a fast clock of the daemon, possibly with the server's clock."""
        back = self.random.choice([61, 300, 5000])
        self.server.now -= back
        if self.random.random() < 0.7:
            for job in list(self.server.jobs.values()):
                if job.started is not None:
                    self.server.jobs[job.id] = replace(job, started=job.started - back)
        self.open = {name: replace(run, expires=run.expires - back) for name, run in self.open.items()}
        self._handle([ClockSet(**self._id())])
        if self.random.random() < 0.9:
            self.snapshot(True, None)

    def clock_jumps(self) -> None:
        self._at(self.server.now + self.random.choice([20_000, 400_000]))


class RankedStream(Stream):
    """The same with priorities, a class of jobs that may break promises, and site limits."""

    settings = _with(Stream.settings, Ranked.settings)


class PlacedStream(Stream):
    """The same with nodes of different speed and deadlines that go first."""

    settings = _with(Stream.settings, Placed.settings)


class ShortestStream(Stream):
    """The same where free room goes to the shortest job."""

    settings = _with(Stream.settings, Shortest.settings)


class StrictStream(Stream):
    """The same with priorities and no slack."""

    settings = _with(Stream.settings, Strict.settings)


class FcfsStream(Stream):
    """A strict queue in the order of arrival instead of a plan of all jobs."""

    settings = Stream.settings.with_changes(policy="fcfs")


class EasyStream(Stream):
    """EASY backfilling in the order of arrival, with limits of the site, fair share and priorities."""

    settings = RankedStream.settings.with_changes(policy="easy")


class SortedStream(Stream):
    """EASY backfilling of a queue that is sorted by area; jobs that waited for 12 hours go first."""

    settings = Stream.settings.with_changes(policy="easy-area-12h")


class FlexibleStream(Stream):
    """EASY backfilling of a queue that is sorted by age, deadline and length."""

    settings = PlacedStream.settings.with_changes(policy="flexible")


class AggressiveStream(Stream):
    """Whatever fits starts, in the order of arrival."""

    settings = StrictStream.settings.with_changes(policy="aggressive")


KINDS: list[type[Stream]] = [Stream, RankedStream, PlacedStream, ShortestStream, StrictStream]
QUEUE_KINDS: list[type[Stream]] = [FcfsStream, EasyStream, SortedStream, FlexibleStream, AggressiveStream]
"""Streams under queue policies, which plan only starting jobs."""


def _handed(world: Stream, job: str, step: TransferDecision) -> Any:
    return JobFacts(
        id=job,
        owner="ann@login",
        queue="batch",
        submitted=world.server.now,
        resources=dict(step.submission.resources) if step.submission is not None else {"nodes": "1"},
        state="H",
        holds="o",
    )


def stream(world: Stream, steps: int) -> None:
    """Let any of it happen, many times, with all that must hold looked at after each step."""
    random = world.random
    world.begin(random.randint(0, 1 << 30))
    for _ in range(steps):
        possible = acts(world, random) + world.more_acts()
        random.choices([act for _, act in possible], [weight for weight, _ in possible])[0]()
        world.every_job_has_an_answer()
        world.what_is_told_is_of_jobs_that_wait()
        world.compared.end_step()
