"""Dependent jobs (``-W depend=``): planned after the jobs they wait for, moved with them, started after
release.

The server holds a dependent job and releases it itself; until then its plan is conditional and it gets no
promise. Plannable are ``after``, ``afterok`` and ``afterany`` on jobs (and arrays) that have a start.
``afternotok`` depends on a failure, which is not planned.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from schedd.dialect import Hold, Until, conditions, holds_in, own_conditions
from schedd.engine.facts.records import DependencyLink, JobRecord, Phase
from schedd.model import WaitingFor
from schedd.plan.columns import PLANNED, Ints

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_PLANNED = frozenset({Until.STARTED, Until.SUCCEEDED, Until.ENDED})
_DEEPEST = 10_000


def find_dependencies(state: "EngineState", record: JobRecord) -> tuple[DependencyLink, ...] | WaitingFor:
    """Return the links that hold the job, or why it cannot be planned; empty: nothing holds it."""
    facts = record.facts
    if not facts.depend or facts.state != "H" or set(holds_in(facts.holds)) - {Hold.SYSTEM}:
        return ()
    for condition in conditions(facts.depend):
        if condition.until is Until.UNSUPPORTED:
            return WaitingFor("dependency", f"its dependency {condition.word}, which is not supported")
        if condition.until not in _PLANNED:
            return WaitingFor("dependency", f"its dependency {own_conditions(facts.depend)}")
    links = tuple(parse_dependencies(facts.depend))
    circle = _circle(state, record.id, links)
    if circle:
        return WaitingFor("dependency", f"a circle of dependencies: {' -> '.join(circle)}")
    for link in links:
        found = _jobs(state, link)
        if not found:
            which = f"its dependency {own_conditions(facts.depend)}"
            return WaitingFor("dependency", f"{which}; job {link.job} is over or not of this cluster")
        for one in found:
            if met_at(state, link.kind, one) is None:
                waits = one.answer.what if isinstance(one.answer, WaitingFor) else ""
                tail = f", which waits for {waits}" if waits else ", which has no start"
                return WaitingFor("dependency", f"job {one.id} ({link.kind}){tail}")
    return links


def may_be_planned(record: JobRecord) -> bool:
    """Return whether all dependencies are planned as soon as the other jobs have a start."""
    return all(link.kind in _PLANNED for link in parse_dependencies(record.facts.depend))


def parse_dependencies(depend: str) -> Iterator[DependencyLink]:
    """Yield the links of a ``depend`` attribute."""
    for condition in conditions(depend):
        yield DependencyLink(condition.until, condition.job)


def met_at(state: "EngineState", kind: str, record: JobRecord) -> int | None:
    """Return when this job meets the dependency in the current plan; None: unknown."""
    start = state.plan.start(record.slot) if record.slot >= 0 else -1
    if start < 0:
        return None
    if kind == Until.STARTED:
        return record.run.started if record.phase is Phase.RUNNING else start
    end = record.end_from(start, state.now)
    return end if end > state.now else max(state.now + 1, state.plan.end(record.slot))


def ready_after(state: "EngineState", links: tuple[DependencyLink, ...]) -> int:
    """Return when the last of these links is met in the current plan; links to removed jobs are met."""
    moments = [met_at(state, link.kind, one) for link in links for one in _jobs(state, link)]
    return max((moment for moment in moments if moment is not None), default=0)


def again_at(state: "EngineState", links: tuple[DependencyLink, ...]) -> int | None:
    """Return when ``ready_after`` changes by time: jobs run past their walltimes. None: never."""
    ends = [
        one.end_from(state.plan.start(one.slot), state.now)
        for link in links
        if link.kind != Until.STARTED
        for one in _jobs(state, link)
        if one.slot >= 0
    ]
    return min((max(end, state.now + 1) for end in ends), default=None)


def without_start(state: "EngineState", links: tuple[DependencyLink, ...]) -> bool:
    """Return whether a prerequisite has no planned start, so that the time of its link is unknown."""
    return any(met_at(state, link.kind, one) is None for link in links for one in _jobs(state, link))


def find_left_prerequisite(state: "EngineState", links: tuple[DependencyLink, ...]) -> str:
    """Return which prerequisite was deleted or moved away in this batch, as a sentence; empty: none.

    If the server still holds the dependent job then, its release is not a matter of seconds: it may wait for
    a job on another server.
    """
    for link in links:
        how = state.dependents.how_it_left(link.job)
        if how and not _jobs(state, link):
            return f"job {link.job}, which it waits for, {how}"
    return ""


def last_prerequisite(state: "EngineState", links: tuple[DependencyLink, ...]) -> str:
    """Return the name of the job that meets its link last, or without a planned start: a clause begins so."""
    moments = [(met_at(state, link.kind, one), one.id) for link in links for one in _jobs(state, link)]
    _, job = max(moments, key=lambda met: (met[0] is None, met[0] or 0), default=(0, ""))
    return f"job {job}, which it waits for," if job else "its dependency"


def last_starts(state: "EngineState") -> Ints:
    """Return by slot the last start that a search may give to each job: it keeps promises, and lets no
    dependent start later than planned.

    Dependent jobs start no earlier than the ends of the live plan (see ``ready_after``). So any result of a
    search within these bounds respects all dependencies.
    """
    latest: Ints = state.bound.copy()
    plan = state.plan
    for name in state.chained:
        record = state.records[name]
        if record.slot < 0 or plan.state(record.slot) != PLANNED:
            continue
        ready = plan.ready(record.slot)
        for link in record.behind:
            for one in _jobs(state, link):
                if one.slot < 0 or plan.state(one.slot) != PLANNED:
                    continue
                last = ready - (0 if link.kind == Until.STARTED else one.understood.walltime)
                latest[one.slot] = min(int(latest[one.slot]), max(last, plan.start(one.slot)))
    return latest


def _jobs(state: "EngineState", link: DependencyLink) -> list[JobRecord]:
    """Return the known jobs that a link names: one job, or all jobs of an array."""
    return _named_jobs(state, link.job)


def _named_jobs(state: "EngineState", name: str) -> list[JobRecord]:
    one = state.records.get(name)
    if one is not None:
        return [one]
    if "[]" in name:
        return [state.records[member] for member in state.array_members.get(name, ())]
    return []


def _circle(state: "EngineState", job: str, links: tuple[DependencyLink, ...]) -> list[str]:
    """Return a cycle of dependent jobs, first job repeated at the end; empty if there is none."""
    came: dict[str, str] = {}
    todo = [(link.job, job) for link in links]
    own = state.records.get(job)
    names = {job, own.facts.array or job} if own is not None else {job}
    while todo and len(came) < _DEEPEST:
        one, by = todo.pop()
        if one in names:
            found = [job]
            while by != job:
                found.append(by)
                by = came[by]
            return [job, *reversed(found)]
        if one in came:
            continue
        came[one] = by
        held = {found.facts.depend: None for found in _named_jobs(state, one) if found.facts.state == "H"}
        todo += [(link.job, one) for depend in held if depend for link in parse_dependencies(depend)]
    return []
