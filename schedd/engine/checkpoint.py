"""The whole state of an engine as bytes, and back.

Layout: a line ``schedd-engine FORMAT``; the length of the header (8 bytes, little-endian) and its CRC-32 and
that of the rest (4 bytes each); the header, JSON in UTF-8; the arrays it names, int64 in little-endian, one
after another. Nothing is compressed and nothing depends on the process: the same state gives the same bytes.
"""

import gc
import heapq
import json
import struct
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, astuple, fields, replace
from functools import reduce
from typing import Any, Final

import numpy as np

from schedd.engine.alerts import OpenAlert
from schedd.engine.pools import LimitBook
from schedd.engine.records import Cause, ChangeSet, HandedOver, Ranks, Reservation
from schedd.engine.saved import (
    load_facts,
    load_records,
    load_reserve,
    save_facts,
    save_records,
    save_reserve,
)
from schedd.engine.settings import EngineSettings
from schedd.engine.state import EngineState
from schedd.engine.walltimes import WalltimeUse
from schedd.plan.columns import Ints
from schedd.plan.saved import FrozenPlan, freeze_plan, load_plan, mapped, save_plan
from schedd.plan.shapes import GATE
from schedd.policy.access import Access
from schedd.policy.demand import Demand
from schedd.policy.fair_share import Usage
from schedd.policy.limits import Limit
from schedd.wire import JobFacts, JobQueued, NodeFacts, PlanningHeld, QueueFacts, ServerFacts

__all__ = ["FORMAT", "CheckpointError", "Frozen", "fork_of", "load", "save", "settings_of"]

Buffer = bytes | memoryview

FORMAT: Final = 4
_MAGIC: Final = b"schedd-engine "
_SIZES: Final = struct.Struct("<QII")
_CHANGES: Final = 100_000
"""Of the log of moves, the latest are kept, counted as the engine counts them."""
_SET_WEIGHT: Final = 20
_PIECE: Final = 500
"""Elements of a long list that are made JSON at once."""
_APART: Final = frozenset(
    {"settings", "plan", "intake", "policy", "site", "applicants", "by_slot", "nevers", "bare"}
)
"""Fields of the state that are not saved as they are."""
_CHANGING: Final = (np.ndarray, dict, list, set, deque, Reservation)
"""Kinds of values that the engine changes in place."""

_COLUMNS: Final = (
    *("promise", "bound", "told", "tell_due", "changed", "last_move", "born", "rank"),
    *("waits_since", "due_by", "owner_of"),
)
_PLAIN: Final = (
    *("now", "paused", "foreign", "stale", "generation", "decision_number", "change_number", "breaches"),
    "lost",
    *("told_at", "told_then", "down_since", "started_at", "started_then", "started_on", "since", "holes"),
    *("adapter_mode", "owners", "policy_version", "configured", "site_changed", "walltime_use"),
    *("aside", "left_out", "kept", "back", "by_hand", "told_halt"),
)
"""Fields of the state that are JSON-able as they are."""


class CheckpointError(ValueError):
    """Bytes that are no checkpoint, or one that this program cannot read; the message says why."""


class Frozen:
    """A state as it was between two batches, to be written as bytes later, and by any thread."""

    def __init__(self, state: EngineState, extra: dict[str, Any]) -> None:
        """``extra`` is JSON-able and goes with it. Little more than copies of columns is made here."""
        self._plan = freeze_plan(state.plan)
        self._state = _detached(state)
        self._extra = extra

    def parts(self) -> Iterator[Buffer]:
        """The bytes, piece by piece: no piece, and none of the empty ones between, takes long to make."""
        header, arrays = yield from _header(self._state, self._plan, self._extra)
        text = []
        for piece in _text(header):
            text.append(piece)
            yield b""
        body = [np.ascontiguousarray(array, "<i8").data.cast("B") for array in arrays.values() if array.size]
        sizes = _SIZES.pack(sum(map(len, text)), _crc(text), _crc(body))
        yield b"".join((_MAGIC, str(FORMAT).encode(), b"\n", sizes))
        yield from text
        yield from body

    def encode(self) -> bytes:
        """All of the bytes."""
        return b"".join(self.parts())


def save(state: EngineState, extra: dict[str, Any]) -> bytes:
    """The state between two batches; ``extra`` is JSON-able and goes with it."""
    return Frozen(state, extra).encode()


def fork_of(state: EngineState) -> EngineState:
    """A state of its own that goes on as this one would: to try something and drop it.

    Frozen values are shared; to be called between two batches.
    """
    return replace(
        _detached(state),
        plan=state.plan.fork(),
        intake=state.intake.copy(),
        numbers=state.numbers.copy(),
        by_slot=list(state.by_slot),
        applicants=dict(state.applicants),
        decisions=[],
        nevers={},
        bare=None,
    )


def _detached(state: EngineState) -> EngineState:
    """The state without its plan, in containers of its own; what stands in them never changes."""
    names = (field.name for field in fields(state) if field.name not in _APART)
    return replace(state, **{name: _copied(getattr(state, name)) for name in names}, by_slot=[], nevers={})


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        if isinstance(first, _CHANGING):
            return {key: _copied(one) for key, one in value.items()}
        return dict(value)
    if isinstance(value, list | set | deque):
        return copy(value)
    if isinstance(value, Reservation):
        return replace(value)
    if isinstance(value, Usage):
        return value.copy()
    if isinstance(value, LimitBook | Ranks):
        return value.copy()
    return value


def _crc(parts: Iterable[Buffer]) -> int:
    return reduce(lambda crc, part: zlib.crc32(part, crc), parts, 0)


def _text(value: Any) -> Iterator[bytes]:
    """JSON in pieces: the encoder lets no other thread run before it is done."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        opening = "{"
        for key, one in value.items():
            yield (opening + _dumps(key) + ":").encode("utf-8", "surrogatepass")
            yield from _text(one)
            opening = ","
        yield b"}" if value else b"{}"
    elif isinstance(value, list) and len(value) > _PIECE:
        opening = "["
        for at in range(0, len(value), _PIECE):
            inner = _dumps(value[at : at + _PIECE])[1:-1]
            yield (opening + inner).encode("utf-8", "surrogatepass")
            opening = ","
        yield b"]"
    else:
        yield _dumps(value).encode("utf-8", "surrogatepass")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Looking for garbage among so many new objects would cost more than making them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _header(
    state: EngineState, plan: FrozenPlan, extra: dict[str, Any]
) -> Generator[Buffer, None, tuple[dict[str, Any], dict[str, Ints]]]:
    arrays = {f"plan.{name}": array for name, array in plan.arrays.items()}
    arrays |= {name: getattr(state, name) for name in _COLUMNS}
    changes = _latest(state.changes)
    for name in ("slots", "old", "new"):
        yield b""
        parts = [getattr(change, name) for change in changes]
        arrays[f"changes.{name}"] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    records, columns = yield from save_records(list(state.records.values()))
    arrays |= {f"records.{name}": array for name, array in columns.items()}
    told = yield from mapped(
        lambda c: [c.number, c.generation, c.time, c.event, c.cause.value, c.words, c.slots.shape[0]], changes
    )
    arriving = yield from mapped(
        lambda event: [event.id, event.time, save_facts(event.job)], list(state.arriving.values())
    )
    saved_plan = yield from save_plan(plan)
    header: dict[str, Any] = {
        "settings": asdict(state.settings),
        "extra": extra,
        "state": {name: getattr(state, name) for name in _PLAIN},
        "records": records,
        "arriving": arriving,
        "rereading": {name: list(why) for name, why in state.rereading.items()},
        "counted_on_nodes": list(state.counted),
        "uncounted": list(state.uncounted),
        "slotless": list(state.slotless),
        "unheard": list(state.unheard),
        "homeless": list(state.homeless),
        "chained": list(state.chained),
        "queue": list(state.queue),
        "assumed": sorted(state.assumed),
        "out": list(state.out),
        "ends": sorted(state.ends),
        "nodes": [save_facts(facts) for facts in state.node_facts.values()],
        "queues": [save_facts(facts) for facts in state.queues.values()],
        "server": save_facts(state.server),
        "limits": [asdict(limit) for limit in state.limits.pools.values()],
        "opened": state.limits.opened,
        "counted": state.limits.counted,
        "polled": dict(sorted(state.limits.polled.items())),
        "old": sorted(state.limits.old),
        "usage": state.usage.saved() if state.usage is not None else None,
        "reservations": [
            [save_reserve(r.event), r.slot, r.nodes, r.gate] for r in state.reservations.values()
        ],
        "holds": [save_facts(event) for event in state.holds.values()],
        "handovers": [asdict(one) for one in state.handovers.values()],
        "ranks": _save_ranks(state.ranks),
        "gates": [
            [gate, *(sorted(getattr(access, field.name)) for field in fields(access))]
            for gate, access in state.gates.items()
        ],
        "blocked": {name: list(jobs) for name, jobs in state.blocked.items()},
        "failures": {name: list(failures) for name, failures in state.failures.items()},
        "doubted": [state.doubted[0], sorted(state.doubted[1])] if state.doubted is not None else None,
        "freed_by": state.freed_by,
        "alerts": [astuple(alert) for alert in state.alerts.values()],
        "changes": told,
        "plan": saved_plan,
        "arrays": [[name, array.shape] for name, array in arrays.items()],
    }
    return header, arrays


def _latest(changes: deque[ChangeSet]) -> list[ChangeSet]:
    kept: list[ChangeSet] = []
    weight = 0
    for change in reversed(changes):
        weight += change.slots.shape[0] + _SET_WEIGHT
        if weight > _CHANGES:
            break
        kept.append(change)
    return kept[::-1]


def settings_of(checkpoint: bytes) -> EngineSettings:
    """The settings under which the checkpoint was taken. Raises CheckpointError."""
    return EngineSettings(**_opened(checkpoint)[0]["settings"])


def load(checkpoint: bytes, settings: EngineSettings | None) -> tuple[EngineState, dict[str, Any]]:
    """The state, under ``settings`` (None: its own), and what went with it. Raises CheckpointError."""
    try:
        with _no_collections():
            header, arrays = _opened(checkpoint)
            if settings is None:
                settings = EngineSettings(**header["settings"])
            return _state(header, arrays, settings), header["extra"]
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint does not hold what it should: {error!r}") from error


def _opened(checkpoint: bytes) -> tuple[dict[str, Any], dict[str, Ints]]:
    line, newline, _ = checkpoint[:64].partition(b"\n")
    if not newline or not line.startswith(_MAGIC):
        raise CheckpointError("this is no checkpoint of an engine")
    number = line.removeprefix(_MAGIC)
    if number != str(FORMAT).encode():
        raise CheckpointError(
            f"the checkpoint has format {number.decode(errors='replace')}, this program reads {FORMAT}"
        )
    at = len(line) + 1 + _SIZES.size
    if len(checkpoint) < at:
        raise CheckpointError("the checkpoint is cut short")
    length, text_crc, body_crc = _SIZES.unpack_from(checkpoint, len(line) + 1)
    text, body = checkpoint[at : at + length], memoryview(checkpoint)[at + length :]
    if zlib.crc32(text) != text_crc or zlib.crc32(body) != body_crc:
        raise CheckpointError("the checkpoint is damaged")
    header = json.loads(text.decode("utf-8", "surrogatepass"))
    arrays: dict[str, Ints] = {}
    first = 0
    for name, shape in header["arrays"]:
        size = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(body, "<i8", size, 8 * first).reshape(shape)
        arrays[name] = array.astype(np.int64)
        first += size
    return header, arrays


def _of(prefix: str, arrays: dict[str, Ints]) -> dict[str, Ints]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _state(header: dict[str, Any], arrays: dict[str, Ints], settings: EngineSettings) -> EngineState:
    configured = settings.site
    if header["state"].get("policy_version", 0):
        settings = replace(settings, site=header["settings"]["site"])  # set at run time, it goes before
    state = EngineState.empty(settings, header["state"]["now"])
    state.plan = load_plan(header["plan"], _of("plan.", arrays))
    generic = (name for node in state.plan.nodes.values() for name, _ in node.resources)
    before = [name for name in generic if not name.startswith(GATE)]
    state.counted = dict.fromkeys(header.get("counted_on_nodes", before))
    state.uncounted = dict.fromkeys(header.get("uncounted", ()))
    state.intake.set_nodes(state.plan.nodes, state.uncounted)
    for name in _PLAIN:
        if name in header["state"]:  # else it is younger than the checkpoint
            setattr(state, name, header["state"][name])
    state.walltime_use = WalltimeUse(*state.walltime_use)
    if state.policy_version and configured != settings.site:
        state.configured = configured
    for name in _COLUMNS:
        # One that is younger than the checkpoint begins as the promises do.
        setattr(state, name, arrays[name] if name in arrays else arrays["promise"].copy())
    state.by_slot = [None] * state.promise.shape[0]
    for record in load_records(header["records"], _of("records.", arrays)):
        state.records[record.id] = record
        state.numbers.add(record.id)
        if record.slot >= 0:
            state.by_slot[record.slot] = record
        if record.risk is not None:
            state.risks[record.id] = None
    arriving = [
        JobQueued(id=event, time=at, job=load_facts(JobFacts, facts))
        for event, at, facts in header.get("arriving", ())
    ]
    state.arriving = {event.job.id: event for event in arriving}
    state.rereading = {name: tuple(why) for name, why in header.get("rereading", {}).items()}
    state.slotless = {job_id: state.records[job_id] for job_id in header["slotless"]}
    state.unheard = dict.fromkeys(header.get("unheard", ()))
    state.homeless = dict.fromkeys(header["homeless"])
    state.chained = dict.fromkeys(header["chained"])
    state.queue = dict.fromkeys(header["queue"])
    state.assumed = set(header["assumed"])
    state.out = dict.fromkeys(header["out"])
    state.ends = [(end, slot, job_id) for end, slot, job_id in header["ends"]]
    heapq.heapify(state.ends)
    state.node_facts = {facts["name"]: load_facts(NodeFacts, facts) for facts in header["nodes"]}
    state.queues = {facts["name"]: load_facts(QueueFacts, facts) for facts in header["queues"]}
    state.server = load_facts(ServerFacts, header["server"])
    state.limits.polled = dict(header["polled"])
    state.limits.old = set(header["old"])
    state.limits.counted |= {name: (amount, at) for name, (amount, at) in header["counted"].items()}
    state.limits.read_server(state.server)
    for queue in state.queues.values():
        state.limits.read_queue(queue)
    state.intake.set_shared(state.limits.shared)
    limits = [Limit(**limit) for limit in header["limits"]]
    state.limits.pools = {limit.pool: limit for limit in limits}
    state.limits.opened = header["opened"]
    state.site_changed = state.site_changed or settings.site != header["settings"]["site"]
    if state.site.fair_share is not None and header["usage"]:
        state.usage = Usage.load(header["usage"], state.site.fair_share)
    state.reservations = {
        event["name"]: Reservation(load_reserve(event), slot, tuple(nodes), gate)
        for event, slot, nodes, gate in header["reservations"]
    }
    holds = [load_facts(PlanningHeld, saved) for saved in header.get("holds", ())]
    state.holds = {(event.kind, event.name): event for event in holds}
    handed = [HandedOver(**saved) for saved in header.get("handovers", ())]
    state.handovers = {one.handover: one for one in handed}
    state.handed = {one.server_job: one.handover for one in handed if one.server_job}
    state.ranks = _load_ranks(header["ranks"], state)
    state.gates = {gate: Access(*map(frozenset, lists)) for gate, *lists in header["gates"]}
    state.blocked = {name: dict.fromkeys(jobs) for name, jobs in header["blocked"].items()}
    state.failures = {
        name: deque(((job_id, owner) for job_id, owner in failures), 2 * settings.hole_failures)
        for name, failures in header["failures"].items()
    }
    doubted = header["doubted"]
    state.doubted = (doubted[0], frozenset(doubted[1])) if doubted is not None else None
    state.freed_by = tuple(header["freed_by"])
    opened = [OpenAlert(*alert) for alert in header.get("alerts", ())]
    state.alerts = {f"{alert.kind} {alert.about}": alert for alert in opened}
    first = 0
    for number, generation, time, event, cause, words, n in header["changes"]:
        part = slice(first, first + n)
        parts = (arrays[f"changes.{name}"][part] for name in ("slots", "old", "new"))
        state.changes.append(ChangeSet(number, generation, time, event, Cause(cause), words, *parts))
        state.changes_kept += n + _SET_WEIGHT
        first += n
    return state


def _save_ranks(ranks: Ranks) -> dict[str, Any]:
    seen = ranks.demand
    return {
        "factors": [[list(path), factor] for path, factor in seen.factors.items()],
        "pressures": dict(seen.pressures),
        "demand": [seen.tree is not None, seen.shortest, seen.relaxed],
        "rest": [ranks.again, ranks.matter, ranks.left, ranks.tries],
    }


def _load_ranks(saved: dict[str, Any], state: EngineState) -> Ranks:
    used, shortest, relaxed = saved["demand"]
    factors = {tuple(path): factor for path, factor in saved["factors"]}
    tree = state.site.fair_share if used else None
    return Ranks(Demand(tree, factors, saved["pressures"], shortest, relaxed), *saved["rest"])
