"""Checkpoint: the complete state of an engine as bytes.

Layout: a line ``schedd-engine FORMAT``; the length of the header (8 bytes, little-endian); the CRC-32 of the
header and of the rest (4 bytes each); the header, JSON in UTF-8; its arrays in order, int64 in little-endian.
Nothing is compressed and nothing depends on the process: equal states give equal bytes.
"""

import gc
import json
import struct
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

import numpy as np

from schedd.engine.component.parts import load_parts, save_parts
from schedd.engine.component.ranking_hooks import owner_shares
from schedd.engine.component.registry import component_calls
from schedd.engine.facts.arrays import hash_array
from schedd.engine.facts.encoding import load_records, save_records
from schedd.engine.facts.records import Cause, ChangeSet, RankingProgress
from schedd.engine.facts.state import EngineState
from schedd.engine.lasting_facts import dump_lasting_facts
from schedd.error_text import describe_error
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.plan.schema import arrays_below, load_part, map_in_parts, save_part
from schedd.policy.demand import Demand
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.limits import Limit
from schedd.policy.site import site_policy
from schedd.wire import ResourceTypes

Buffer = bytes | memoryview

FORMAT: Final = 12
_MAGIC: Final = b"schedd-engine "
_SIZES: Final = struct.Struct("<QII")
_CHANGES: Final = 100_000  # of the log of moves, the latest are kept, counted as the engine counts them
_SET_WEIGHT: Final = 20
_PIECE: Final = 500  # elements of a long list that are made JSON at once


class CheckpointError(ValueError):
    """No checkpoint, or not readable by this version; the message says why."""


class FrozenState:
    """State between two batches, for encoding as bytes later and by any thread."""

    def __init__(self, state: EngineState, extra: dict[str, Any]) -> None:
        """``extra`` is JSON-able and goes with it. No more than a fork is made here."""
        self._state = state.fork()
        self._extra = extra

    def parts(self) -> Iterator[Buffer]:
        """The bytes, piece by piece: no piece, and none of the empty ones between, takes long to make."""
        header, arrays = yield from _header(self._state, self._extra)
        text = []
        for piece in _text(header):
            text.append(piece)
            yield b""
        body = [np.ascontiguousarray(array, "<i8").data.cast("B") for array in arrays.values() if array.size]
        sizes = _SIZES.pack(sum(map(len, text)), _crc(text), _crc(body))
        yield b"".join((_MAGIC, str(FORMAT).encode(), b"\n", sizes))
        yield from text
        yield from body

    def facts(self) -> Iterator[Buffer]:
        """The facts of the same state that outlive this format, piece by piece: see ``lasting_facts.py``."""
        return dump_lasting_facts(self._state)

    @property
    def size(self) -> int:
        """Number of jobs and nodes."""
        return len(self._state.records) + len(self._state.arriving) + len(self._state.node_facts)

    def encode(self) -> bytes:
        return b"".join(self.parts())


def save(state: EngineState, extra: dict[str, Any]) -> bytes:
    """The state between two batches; ``extra`` is JSON-able and goes with it."""
    return FrozenState(state, extra).encode()


def _crc(parts: Iterable[Buffer]) -> int:
    return reduce(lambda crc, part: zlib.crc32(part, crc), parts, 0)


def _text(value: Any) -> Iterator[bytes]:
    """JSON in pieces: the encoder lets no other thread run before it is done."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        opening = "{"
        small: dict[str, Any] = {}
        room = _PIECE
        for key, one in value.items():
            weight = _weigh(one)
            if small and weight > room:
                yield (opening + _dumps(small)[1:-1]).encode("utf-8", "surrogatepass")
                opening, small, room = ",", {}, _PIECE
            if weight > _PIECE:
                yield (opening + _dumps(key) + ":").encode("utf-8", "surrogatepass")
                yield from _text(one)
                opening = ","
            else:
                small[key] = one
                room -= weight
        if small:
            yield (opening + _dumps(small)[1:-1]).encode("utf-8", "surrogatepass")
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


def _weigh(value: Any) -> int:
    """Return about how many elements a value has, in all its levels but those of lists."""
    if isinstance(value, dict):
        return 1 + sum(map(_weigh, value.values()))
    return 1 + len(value) if isinstance(value, list) else 1


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable garbage collection: it would take longer than the creation of these objects."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _header(
    state: EngineState, extra: dict[str, Any]
) -> Generator[Buffer, None, tuple[dict[str, Any], dict[str, Ints]]]:
    plain, columns = yield from save_part(state)
    plan, tables = yield from state.plan.save()
    changes = _latest(state.changes)
    moved: dict[str, Ints] = {}
    for name in ("slots", "old", "new"):
        yield b""
        parts = [getattr(change, name) for change in changes]
        moved[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    last_changes = yield from map_in_parts(
        lambda c: [c.number, c.generation, c.time, c.event, c.cause.value, c.words, c.slots.shape[0]], changes
    )
    records, of_records = yield from save_records(list(state.records.values()))
    components, of_components = yield from save_parts(state.parts)
    groups = {
        "plan": tables,
        "state": columns,
        "changes": moved,
        "records": of_records,
        "components": of_components,
    }
    arrays = {f"{group}.{name}": a for group, named in groups.items() for name, a in named.items()}
    header: dict[str, Any] = {
        "settings": state.settings.model_dump(by_alias=True),
        "extra": extra,
        "state": plain,
        "plan": plan,
        "records": records,
        "slotless": list(state.slotless),
        "limits": [limit.model_dump() for limit in state.limits.pools.values()],
        "opened": state.limits.opened,
        "lowered": sorted(state.limits.lowered),
        "ranks": _save_ranks(state.ranking),
        "components": components,
        "changes": last_changes,
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
        raise CheckpointError(f"the checkpoint cannot be read: {describe_error(error)}") from error


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


def _state(header: dict[str, Any], arrays: dict[str, Ints], settings: EngineSettings) -> EngineState:
    saved = header["state"]
    configured = settings.site
    if saved.get("policy_version", 0):
        settings = settings.with_changes(
            site=site_policy(header["settings"]["site"])
        )  # set at run time, it goes before
    new = EngineState.empty(settings, saved["now"])
    state = load_part(
        EngineState,
        saved,
        arrays_below("state", arrays),
        settings=settings,
        plan=Plan.load(header["plan"], arrays_below("plan", arrays)),
        requests=new.requests,
        policy=new.policy,
        site=new.site,
        limits=new.limits,
    )
    state.parts = load_parts(header["components"], arrays_below("components", arrays))
    state.requests.set_nodes(state.plan.nodes, state.uncounted)
    if state.policy_version and configured != settings.site:
        state.configured = configured.plain
    state.fit_columns()
    for record in load_records(header["records"], arrays_below("records", arrays)):
        state.records[record.id] = record
        state.numbers.add(record.id)
        state.note_array(None, record)
        if record.slot >= 0:
            state.by_slot[record.slot] = record
            state.array_hash[record.slot] = hash_array(record.facts.array)  # older ones do not have it
    state.slotless = {job_id: state.records[job_id] for job_id in header["slotless"]}
    state.limits.types = ResourceTypes(state.server.resources)
    state.gather_limits()
    state.note_power()
    state.update_request_reader()
    state.requests.set_types(state.limits.types)
    limits = [Limit(**limit) for limit in header["limits"]]
    state.limits.pools = {limit.pool: limit for limit in limits}
    state.limits.opened = header["opened"]
    state.limits.lowered = set(header.get("lowered", ()))
    state.site_changed = state.site_changed or settings.site.plain != header["settings"]["site"]
    state.ranking = _load_ranks(header["ranks"], state)
    most = 2 * settings.hole_failures
    state.failures = {name: deque(failures, most) for name, failures in state.failures.items()}
    first = 0
    for number, generation, time, event, cause, words, n in header["changes"]:
        part = slice(first, first + n)
        parts = (arrays[f"changes.{name}"][part] for name in ("slots", "old", "new"))
        state.changes.append(ChangeSet(number, generation, time, event, Cause(cause), words, *parts))
        state.changes_kept += n + _SET_WEIGHT
        first += n
    for _, call in component_calls("restored"):
        call(state)
    return state


def _save_ranks(ranks: RankingProgress) -> dict[str, Any]:
    seen = ranks.demand
    return {
        "pressures": dict(seen.pressures),
        "demand": [seen.shares is not None, seen.shortest, seen.relaxed],
        "rest": [ranks.next_at, ranks.has_effect, ranks.slots_to_rank, ranks.slots_to_try, ranks.rerank_all],
    }


def _load_ranks(saved: dict[str, Any], state: EngineState) -> RankingProgress:
    used, shortest, relaxed = saved["demand"]
    shares = owner_shares(state) if used else None
    return RankingProgress(Demand(shares, saved["pressures"], shortest, relaxed), *saved["rest"])
