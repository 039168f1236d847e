"""Conversion of records and facts to plain values, column by column, and back.

Columns cost a tenth of the time of small objects. A column of equal values is stored as one value; numbers,
and references to frequent values, are stored in arrays. A missing field takes its default, so fields may be
added without a new format.
"""

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from functools import cache
from itertools import repeat
from operator import attrgetter, is_
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import numpy as np

from schedd.engine.facts.alerts import OpenAlert
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import (
    BackOff,
    Breach,
    Cause,
    CurrentRun,
    DependencyLink,
    EndedPromise,
    JobRecord,
    Phase,
    PlacementChoice,
    Risk,
    StartAttempt,
    UnresolvedStart,
)
from schedd.model import Never, Request, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.requests import load_request, save_request
from schedd.plan.schema import FieldRule, map_in_parts
from schedd.policy.access import Access
from schedd.policy.reliability import Life
from schedd.wire import (
    JobFacts,
    JobQueued,
    NodeFacts,
    PlanningHeld,
    QueueFacts,
    Reserve,
    ResourceFacts,
    ServerFacts,
    ShareFacts,
)

_T = TypeVar("_T")
_Columns = dict[str, Any]
_Arrays = dict[str, Ints]
_Plain = Callable[[Any], Any]
_Bit = Generator[bytes, None, _T]
_OFTEN = {str, int, bool, Phase, type(None)}


class _Table:
    """Values that many share, kept once each; the rest refers to them by number."""

    def __init__(self, save: _Plain) -> None:
        self.rows: list[Any] = []
        self._save = save
        self._ids: dict[object, int] = {}

    def number(self, key: object, value: Any) -> int:
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.rows)
            self.rows.append(self._save(value))
        return found


# ---- columns ------------------------------------------------------------------------------------


def _save_columns(
    prefix: str, objects: Sequence[Any], names: Iterable[str], how: Mapping[str, _Plain], arrays: _Arrays
) -> _Bit[_Columns]:
    """Return the fields ``names`` of ``objects``; columns of numbers go to ``arrays``."""
    columns: _Columns = {}
    for name in names:
        yield b""
        values = list(map(attrgetter(name), objects))
        if name in how:
            # Equal objects may differ in fields that are not compared, such as the notes of requests.
            if all(map(is_, values, repeat(values[0]))):
                columns[name] = {"all": how[name](values[0])}
                continue
            values = yield from map_in_parts(how[name], values)
        if values.count(values[0]) == len(values):
            columns[name] = {"all": values[0]}
            continue
        kinds = set(map(type, values))
        if kinds == {int}:
            arrays[prefix + name] = np.array(values, np.int64)
            columns[name] = {"array": prefix + name}
            continue
        if kinds <= _OFTEN:
            different = dict.fromkeys(values)
            if len(different) < len(values) // 2:
                number = dict(zip(different, range(len(different)), strict=True))
                arrays[prefix + name] = np.array(list(map(number.__getitem__, values)), np.int64)
                columns[name] = {"array": prefix + name, "of": list(different)}
                continue
        columns[name] = values
    return columns


def _load_columns(
    kind: type[_T], n: int, columns: _Columns, how: Mapping[str, _Plain], arrays: _Arrays
) -> list[_T]:
    """Objects of ``kind`` from their columns, as many as ``n``. Raises KeyError, TypeError, ValueError."""
    if kind in _GROUPS.values() and all(isinstance(one, dict) and "all" in one for one in columns.values()):
        # As in most records: one object, since nothing changes it.
        one = kind(**{name: how.get(name, _same)(column["all"]) for name, column in columns.items()})
        return [one] * n
    lists: dict[str, list[Any]] = {}
    for name, column in columns.items():
        load = how.get(name, _same)
        if isinstance(column, list):
            lists[name] = column if load is _same else list(map(load, column))
        elif "all" in column:
            lists[name] = [load(column["all"])] * n
        elif "of" in column:
            of = list(map(load, column["of"]))
            lists[name] = [of[i] for i in arrays[column["array"]].tolist()]
        else:
            numbers: list[int] = arrays[column["array"]].tolist()
            lists[name] = numbers if load is _same else list(map(load, numbers))
    if any(len(values) != n for values in lists.values()):
        raise ValueError(f"columns of {kind.__name__}: not {n} values each")
    in_order = [one.name for one in fields(kind) if one.init and not one.kw_only]  # type: ignore[arg-type]
    if lists and set(lists) == set(in_order[: len(lists)]):
        # Parameters by their place take half of the time of parameters by name.
        return list(map(kind, *map(lists.__getitem__, in_order[: len(lists)])))
    return [kind(**dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True)]


# ---- facts --------------------------------------------------------------------------------------


def _save_shares(shares: tuple[ShareFacts, ...]) -> list[list[Any]]:
    return [[share.node, share.cpus, share.mem, share.gpus] for share in shares]


def _load_shares(saved: list[list[Any]]) -> tuple[ShareFacts, ...]:
    return tuple(ShareFacts(*share) for share in saved)


def _save_mapping(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its values unchanged, but definitions of resources as type and flags."""
    return {
        name: [value.type, value.flags] if isinstance(value, ResourceFacts) else value
        for name, value in resources.items()
    }


def _load_mapping(saved: dict[str, Any]) -> dict[str, Any]:
    return {
        name: ResourceFacts(*value) if isinstance(value, list) else value for name, value in saved.items()
    }


_KINDS: Final = (JobFacts, NodeFacts, QueueFacts, ServerFacts, Reserve, PlanningHeld)
"""Messages that are saved as whole objects. Their fields are saved by type: see ``_codecs``."""


def _codecs(kinds: Iterable[Any]) -> tuple[dict[str, _Plain], dict[str, _Plain]]:
    """How fields are saved and loaded, by name, where JSON does not do it. Raises TypeError.

    A field of a type that is not known here is an error at import: else it would be another after a restart.
    """
    save: dict[str, _Plain] = {}
    load: dict[str, _Plain] = {}
    for one in (one for kind in kinds for one in fields(kind)):
        type_, inner = get_origin(one.type), get_args(one.type)
        if type_ is tuple and inner[0] is ShareFacts:
            save[one.name], load[one.name] = _save_shares, _load_shares
        elif type_ is tuple and inner[0] is str:
            load[one.name] = tuple
        elif type_ is Mapping and {*(get_args(inner[1]) or inner[1:])} <= {*_PLAIN, ResourceFacts}:
            save[one.name], load[one.name] = _save_mapping, _load_mapping
        elif not (
            type_ is Literal or {*(inner if type_ is UnionType else [one.type])} <= {*_PLAIN, NoneType}
        ):
            raise TypeError(f"it is not known how to keep {one.name}: {one.type}")
    return save, load


_PLAIN: Final = (str, int, float, bool)
_SAVE, _LOAD = _codecs(_KINDS)


def save_facts(
    facts: JobFacts | NodeFacts | QueueFacts | ServerFacts | Reserve | PlanningHeld,
) -> dict[str, Any]:
    """One object of facts as plain values."""
    kind: Any = type(facts)
    return {name: save(getattr(facts, name)) for name, save in _saved_fields(kind)}


@cache
def _saved_fields(kind: type[Any]) -> tuple[tuple[str, _Plain], ...]:
    """Return the fields of a class with what saves each: ten thousand nodes are saved one by one."""
    return tuple((one.name, _SAVE.get(one.name, _same)) for one in fields(kind))


def load_facts(kind: type[_T], saved: dict[str, Any]) -> _T:
    """The object that ``save_facts`` saved. Raises TypeError."""
    return kind(**{name: _LOAD.get(name, _same)(value) for name, value in saved.items()})


def known_fields(kind: type[Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of this version's ``kind`` in values that another version may have saved.

    Raises ValueError if there are none.
    """
    names = {one.name for one in fields(kind) if one.init}
    found = {name: value for name, value in saved.items() if name in names}
    if saved and not found:
        raise ValueError(f"nothing of it is a {kind.__name__}'s")
    return found


def _same(value: Any) -> Any:
    return value


# ---- records ------------------------------------------------------------------------------------


def save_records(records: Sequence[JobRecord]) -> _Bit[tuple[dict[str, Any], _Arrays]]:
    """All records as plain values and arrays; yields nothing, often, to be interrupted there."""
    if not records:
        return {"count": 0}, {}
    arrays: _Arrays = {}
    requests = _Table(save_request)
    understood = _Table(_same)
    asked = _Table(dict)
    read = yield from map_in_parts(lambda r: understood.number(id(r.understood), r.understood), records)
    arrays["understood"] = np.array(read, np.int64)
    how: dict[str, _Plain] = {
        **_SAVE,
        **_SAVE_RECORD,
        "resources": lambda r: asked.number(tuple(r.items()), r),
        "request": lambda r: requests.number(id(r), r) if r is not None else -1,
    }
    names = [field.name for field in fields(JobFacts)]
    own = [field.name for field in fields(JobRecord) if field.name not in ("facts", "understood", *_GROUPS)]
    groups: dict[str, _Columns] = {}
    for name, kind in _GROUPS.items():
        parts = list(map(attrgetter(name), records))
        inner = [field.name for field in fields(kind)]
        groups[name] = yield from _save_columns(f"{name}.", parts, inner, how, arrays)
    plain = {
        "count": len(records),
        "facts": (
            yield from _save_columns("facts.", [record.facts for record in records], names, how, arrays)
        ),
        "records": (yield from _save_columns("records.", records, own, how, arrays)),
        "groups": groups,
        "reads": len(understood.rows),
        "read": (
            yield from _save_columns(
                "read.", understood.rows, [field.name for field in fields(ParsedRequest)], how, arrays
            )
        ),
        "requests": requests.rows,
        "resources": asked.rows,
    }
    return plain, arrays


def load_records(saved: dict[str, Any], arrays: _Arrays) -> list[JobRecord]:
    """The records that ``save_records`` saved. Raises IndexError, KeyError, TypeError and ValueError."""
    n: int = saved["count"]
    if not n:
        return []
    asked: list[dict[str, str]] = saved["resources"]
    requests: list[Request | None] = [*map(load_request, saved["requests"]), None]
    how = {
        **_LOAD,
        **_LOAD_RECORD,
        "resources": asked.__getitem__,
        "request": requests.__getitem__,
        **dict.fromkeys(("facts", "understood", *_GROUPS), _same),
    }
    facts = _load_columns(JobFacts, n, saved["facts"], how, arrays)
    read = _load_columns(ParsedRequest, saved["reads"], saved["read"], how, arrays)
    understood = [read[i] for i in arrays["understood"].tolist()]
    groups = {
        name: _load_columns(kind, n, saved["groups"][name], how, arrays) for name, kind in _GROUPS.items()
    }
    columns = {**saved["records"], "facts": facts, "understood": understood, **groups}
    return _load_columns(JobRecord, n, columns, how, arrays)


_GROUPS: Final[dict[str, type[StartAttempt] | type[BackOff] | type[CurrentRun]]] = {
    "attempt": StartAttempt,
    "back_off": BackOff,
    "run": CurrentRun,
}
"""Groups in a record, each saved as columns of its own."""


def _save_answer(answer: WaitingFor | Never | None) -> list[str] | None:
    if answer is None:
        return None
    return [answer.requirement] if isinstance(answer, Never) else [answer.kind, answer.what]


def _load_answer(saved: list[str] | None) -> WaitingFor | Never | None:
    if saved is None:
        return None
    return Never(*saved) if len(saved) == 1 else WaitingFor(*saved)


def _save_breaches(breaches: tuple[Breach, ...]) -> list[list[Any]]:
    return [[b.time, b.event, b.cause.value, b.promised, b.planned] for b in breaches]


def _load_breaches(saved: list[list[Any]]) -> tuple[Breach, ...]:
    return tuple(
        Breach(time, event, Cause(cause), promised, planned)
        for time, event, cause, promised, planned in saved
    )


def _save_ended(ended: EndedPromise | None) -> list[Any] | None:
    return [ended.time, ended.event, ended.words, ended.promised] if ended is not None else None


def _save_risk(risk: Risk | None) -> list[Any] | None:
    return [risk.time, risk.event, risk.cause.value, risk.delay] if risk is not None else None


def _load_risk(saved: list[Any] | None) -> Risk | None:
    return Risk(saved[0], saved[1], Cause(saved[2]), *saved[3:]) if saved is not None else None


def _load_ended(saved: list[Any] | None) -> EndedPromise | None:
    return EndedPromise(*saved) if saved is not None else None


def _save_choice(choice: PlacementChoice | None) -> list[Any] | None:
    return [choice.start, choice.instead, choice.speed] if choice is not None else None


def _load_choice(saved: list[Any] | None) -> PlacementChoice | None:
    return PlacementChoice(*saved) if saved is not None else None


def _load_cause(saved: str | None) -> Cause | None:
    return Cause(saved) if saved is not None else None


_SAVE_RECORD: dict[str, _Plain] = {
    "answer": _save_answer,
    "breaches": _save_breaches,
    "risk": _save_risk,
    "ended": _save_ended,
    "choice": _save_choice,
    "behind": lambda links: [[link.kind, link.job] for link in links],
    "failed_on": list,
}
_LOAD_RECORD: dict[str, _Plain] = {
    "phase": Phase,
    "answer": _load_answer,
    "breaches": _load_breaches,
    "ended": _load_ended,
    "lost": _load_cause,
    "risk": _load_risk,
    "choice": _load_choice,
    "behind": lambda links: tuple(DependencyLink(*link) for link in links),
    "failed_on": tuple,
}


# ---- fields of the state ------------------------------------------------------------------------


def facts_by_name(kind: type[NodeFacts] | type[QueueFacts]) -> FieldRule:
    def load(saved: list[dict[str, Any]]) -> dict[str, Any]:
        return {facts["name"]: load_facts(kind, facts) for facts in saved}

    return FieldRule(dict, lambda facts: list(facts.values()), load, each=save_facts)


def _load_unresolved(saved: list[list[Any]]) -> dict[str, UnresolvedStart]:
    return {
        job: UnresolvedStart(decision, until, _load_shares(shares)) for job, decision, until, shares in saved
    }


UNRESOLVED: Final = FieldRule(
    dict,
    lambda starts: [[job, one.decision, one.until, _save_shares(one.shares)] for job, one in starts.items()],
    _load_unresolved,
)


def _load_ends(saved: list[list[Any]]) -> list[tuple[int, int, str]]:
    ends = [(end, slot, job_id) for end, slot, job_id in saved]
    heapq.heapify(ends)
    return ends


def _load_holds(saved: list[dict[str, Any]]) -> dict[tuple[str, str], PlanningHeld]:
    holds = [load_facts(PlanningHeld, one) for one in saved]
    return {(event.kind, event.name): event for event in holds}


def _save_gate(gate: tuple[str, Access]) -> list[Any]:
    name, access = gate
    return [name, access.shorter, *map(sorted, (access.users, access.groups, access.accounts, access.queues))]


def _load_gates(saved: list[list[Any]]) -> dict[str, Access]:
    found = {}
    for name, *rest in saved:
        shorter, lists = (rest[0], rest[1:]) if isinstance(rest[0], int) else (0, rest)
        users, groups, accounts, queues = map(frozenset, lists)
        found[name] = Access(users, groups, accounts, queues, shorter)
    return found


def _save_arriving(arriving: dict[str, JobQueued]) -> _Bit[tuple[Any, _Arrays]]:
    """Return the jobs of a snapshot that are still to arrive, by columns: they may be all jobs of a site."""
    events = list(arriving.values())
    if not events:
        return [], {}
    arrays: _Arrays = {}
    asked = _Table(dict)
    how: dict[str, _Plain] = {**_SAVE, "resources": lambda r: asked.number(tuple(r.items()), r)}
    jobs, names = [event.job for event in events], [one.name for one in fields(JobFacts)]
    plain = {
        "count": len(events),
        "events": (yield from _save_columns("events.", events, ("id", "time"), {}, arrays)),
        "facts": (yield from _save_columns("facts.", jobs, names, how, arrays)),
        "resources": asked.rows,
    }
    return plain, arrays


def _load_arriving(saved: tuple[Any, _Arrays]) -> dict[str, JobQueued]:
    """Return the jobs of ``_save_arriving``, or of a checkpoint with a list of (event, time, facts)."""
    plain, arrays = saved
    if isinstance(plain, list):
        events = [JobQueued(id=event, time=at, job=load_facts(JobFacts, facts)) for event, at, facts in plain]
    else:
        n = plain["count"]
        how = {**_LOAD, "resources": plain["resources"].__getitem__}
        columns = {**plain["events"], "job": _load_columns(JobFacts, n, plain["facts"], how, arrays)}
        events = _load_columns(JobQueued, n, columns, {"job": _same}, arrays)
    return {event.job.id: event for event in events}


def _load_alerts(saved: list[list[Any]]) -> dict[str, OpenAlert]:
    opened = [OpenAlert(*alert) for alert in saved]
    return {f"{alert.kind} {alert.about}": alert for alert in opened}


def _values(value: dict[Any, Any]) -> list[Any]:
    return list(value.values())


COLUMN: Final = FieldRule(
    lambda column: column.copy(), lambda column: {"": column}, lambda a: a[""], arrays=True
)
LIST: Final = FieldRule(list)
ENDS: Final = FieldRule(list, sorted, _load_ends)
SERVER: Final = FieldRule(save=save_facts, load=lambda saved: load_facts(ServerFacts, saved))
HOLDS: Final = FieldRule(dict, _values, _load_holds, each=save_facts)
GATES: Final = FieldRule(
    dict,
    lambda value: list(value.items()),
    _load_gates,
    each=_save_gate,
)
BLOCKED: Final = FieldRule(
    lambda value: {name: dict(jobs) for name, jobs in value.items()},
    lambda value: {name: list(jobs) for name, jobs in value.items()},
    lambda saved: {name: dict.fromkeys(jobs) for name, jobs in saved.items()},
)


FAILURES: Final = FieldRule(
    lambda value: {name: one.copy() for name, one in value.items()},
    lambda value: {name: list(one) for name, one in value.items()},
    lambda saved: {name: deque(map(tuple, one)) for name, one in saved.items()},
)
ARRIVING: Final = FieldRule(dict, _save_arriving, _load_arriving, mixed=True)
REREADING: Final = FieldRule(
    dict,
    lambda value: {name: list(why) for name, why in value.items()},
    lambda saved: {name: tuple(why) for name, why in saved.items()},
)
DOUBTED: Final = FieldRule(
    save=lambda value: [value[0], sorted(value[1])] if value is not None else None,
    load=lambda saved: (saved[0], frozenset(saved[1])) if saved is not None else None,
)
LIVES: Final = FieldRule(
    dict,
    lambda lives: list(lives.items()),
    lambda saved: {name: Life(*rest) for name, *rest in saved},
    each=lambda pair: [pair[0], *astuple(pair[1])],
)
ALERTS: Final = FieldRule(dict, _values, _load_alerts, each=astuple)
