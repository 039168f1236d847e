"""Summary of a job array: counts by state, and the spread of the ends."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schedd.engine import JobRecord, PlanSnapshot, hash_array
from schedd.plan.columns import FIXED, PLANNED, VACANT, Ints
from schedd.store.records import JobHistory


class Spread(NamedTuple):
    """Stretch of an array or bag (Netto 2009, 5.2): seconds between the first and the last end of its tasks.

    ``share``: relative to the response time, from submission to the last end.
    """

    seconds: int
    share: float


def compute_spread(submitted: int, first: int | None, last: int | None) -> Spread | None:
    """Return the spread; None if an end is unknown."""
    if first is None or last is None or last < first:
        return None
    return Spread(last - first, (last - first) / max(1, last - submitted))


@dataclass(frozen=True, kw_only=True)  # without slots: the API's view also has another base
class ArraySummary:
    """Number of tasks of a job array by state. Times are seconds since the epoch."""

    array: str
    owner: str
    submitted: int
    waiting: int
    """Those without a planned start."""
    planned: int
    running: int
    ended: int
    failed: int
    """Ended with an exit status other than 0."""
    deleted: int
    first_end: int | None
    """When the first of them ended, or ends as planned, in seconds since the epoch."""
    last_end: int | None
    """When the last ends as planned, or ended; null while one has no planned start."""
    next_job: str
    """The planned job with the earliest start; empty: none is planned."""


def full_array_id(published: PlanSnapshot, wanted: str) -> str:
    """Return the id of an array in the plan for an id without brackets or server name; else add brackets."""
    known = {one.facts.array for one in published.records if one is not None and one.facts.array}
    known |= {one.facts.array for one in published.slotless.values() if one.facts.array}
    return choose_array(known, wanted)


def choose_array(known: Collection[str], wanted: str) -> str:
    """Return the one of these arrays that an id without brackets or server name means; else add brackets."""
    if wanted in known:
        return wanted
    number, _, server = wanted.partition(".")
    like = [name for name in known if _matches(name, number, server)]
    if len(like) == 1:
        return like[0]
    return wanted if "[]" in wanted else wanted.replace(number, f"{number}[]", 1)


def _matches(name: str, number: str, server: str) -> bool:
    its, _, where = name.partition(".")
    return its in (number, f"{number}[]") and (
        not server or where == server or where.startswith(f"{server}.")
    )


def _next_job(published: PlanSnapshot, planned: Ints) -> str:
    if not planned.shape[0]:
        return ""
    record = published.records[int(planned[np.argmin(published.starts[planned])])]
    return record.id if record is not None else ""


def summarise_array(published: PlanSnapshot, array: str, past: Sequence[JobHistory]) -> ArraySummary | None:
    """Return the summary of the array's jobs in the plan and of ``past`` ones; None without jobs."""
    own = published.array_hash == hash_array(array)
    slots = np.flatnonzero(own & (published.states != VACANT))
    starts = published.starts[slots]
    states = published.states[slots]
    ends = (starts + published.durations[slots])[starts >= 0]
    bare = [one for one in published.slotless.values() if one.facts.array == array]
    records: list[JobRecord] = [*bare, *(one for slot in slots.tolist() if (one := published.records[slot]))]
    known = {one.id for one in records}
    over = [one for one in past if one.ended is not None and one.id not in known]
    ran = [one for one in over if one.how == "ended"]
    if not records and not over:
        return None
    without = len(bare) + int((starts < 0).sum())
    all_ends = [*ends.tolist(), *(one.ended for one in ran if one.ended is not None)]
    return ArraySummary(
        array=array,
        owner=records[0].facts.owner if records else over[0].owner,
        submitted=min([*(one.facts.submitted for one in records), *(one.submitted for one in over)]),
        waiting=without,
        planned=int((states == PLANNED).sum()),
        running=int((states == FIXED).sum()),
        ended=len(ran),
        failed=sum(bool(one.exit_status) for one in ran),
        deleted=len(over) - len(ran),
        first_end=min(all_ends, default=None),
        last_end=max(all_ends, default=None) if not without else None,
        next_job=_next_job(published, slots[states == PLANNED]),
    )
