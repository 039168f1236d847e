"""List of all jobs that have not ended: read completely, or only its changes for a long list."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import SelectStatusRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import parse_number
from server_adapter.dis import Attribute, Operation
from server_adapter.openpbs.codes import NO_SUCH_JOB
from server_adapter.openpbs.notation import parent
from server_adapter.servers.openpbs.facts import JOB_ATTRIBUTES, is_over

MANY: Final = 100
"""With this number of jobs or more, each reading requests only states and modification times."""

WHOLE: Final = 300.0  # seconds after which everything is read again

_SLICE: Final = 5_000  # jobs processed in one slice
_SETTLED: Final = 2.0  # seconds after a change until no other change can have the same time
_WANTED: Final = tuple([Attribute(name) for name in JOB_ATTRIBUTES])
_STAMP: Final = (Attribute("job_state"), Attribute("mtime"))

JOBS: Final = SelectStatusRequest(attributes=(*_WANTED, Attribute("mtime")), extension="S")
"""All jobs that have not ended: arrays as parents, and running subjobs."""

STAMPS: Final = SelectStatusRequest(attributes=_STAMP, extension="S")
"""The same jobs with only state and modification time."""

ACTIVE_STAMPS: Final = SelectStatusRequest(
    conditions=(Attribute("job_state", "ERSU", operation=Operation.EQ),), attributes=_STAMP, extension="S"
)
"""Running, exiting and suspended jobs. A condition that begins with `R` omits suspended jobs."""

_ACTIVE: Final = frozenset("ERSU")
_NAMED: Final = 50  # maximum number of jobs described by name in a partial reading

Describe = Callable[[SelectStatusRequest | StatusRequest], Awaitable[list[DescribedObject]]]


def changed_since(moment: int) -> SelectStatusRequest:
    """Request the jobs that were modified since `moment`, with all wanted attributes."""
    condition = Attribute("mtime", str(moment), operation=Operation.GE)
    return SelectStatusRequest(conditions=(condition,), attributes=JOBS.attributes, extension="S")


def ended_since(moment: int) -> SelectStatusRequest:
    """Return the same request including finished jobs (`job_history_enable`). Only ``T`` shows the ends of
    subjobs: it replaces each array by all its subjobs, also waiting ones.
    """
    return replace(changed_since(moment), extension="xTS")


def stamps_since(moment: int) -> SelectStatusRequest:
    """Request states and times of the jobs that were modified since `moment`, including finished jobs."""
    condition = Attribute("mtime", str(moment), operation=Operation.GE)
    return SelectStatusRequest(conditions=(condition,), attributes=_STAMP, extension="xS")


def described_by_name(names: Iterable[str]) -> StatusRequest:
    """Request these jobs with all wanted attributes, including finished jobs."""
    return StatusRequest(
        code=RequestCode.STATUS_JOB, name=",".join(names), attributes=JOBS.attributes, extension="x"
    )


class JobList:
    """Reads the list by `describe`; unchanged jobs are the same objects as before."""

    def __init__(
        self,
        describe: Describe,
        *,
        many: int = MANY,
        whole: float = WHOLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._describe = describe
        self._many = many
        self._whole = whole
        self._clock = clock
        self._known: dict[str, DescribedObject] = {}
        self._read_whole = float("-inf")
        self._latest = 0  # the newest known modification time,
        self._latest_seen = 0.0  # and when it was first
        self._last_read = 0.0
        self._complete = False  # whether the last full reading was completed
        self.changed: Collection[DescribedObject] = ()
        """The jobs that the last partial reading described, including ended ones."""
        self._unsettled: set[str] = set()
        """Jobs described by partial readings, which may have changed again in the same second."""

    async def read(self) -> list[DescribedObject]:
        """Return all current jobs. Raises what `describe` raises; the next reading is then a full one."""
        now = self._clock()
        self._complete = False
        if len(self._known) < self._many or now - self._read_whole >= self._whole:
            self._known = {}
            found = await self._describe(JOBS)
            self._read_whole = now
        else:
            known, self._known = self._known, {}
            found = await self._changed(known)
        await asyncio.sleep(0)
        self._known = {job.name: job for job in found}
        self._unsettled.clear()
        self._complete = True
        await asyncio.sleep(0)
        latest = max((parse_number(job.values.get("mtime")) or 0 for job in found), default=0)
        if latest > self._latest:
            self._latest, self._latest_seen = latest, now
        self._last_read = now
        return found

    async def read_changes(self) -> tuple[list[DescribedObject], list[DescribedObject]] | None:
        """Return all jobs, updated for starts, ends, arrivals and new states, and the jobs that have ended.

        Jobs with other changes stay as in the last reading: the adapter's own writes change hundreds at once.
        Returns None if a full reading is cheaper or is due. Raises what `describe` raises.
        """
        known = self._known
        if not self._complete or not self._latest or self._clock() - self._read_whole >= self._whole:
            return None
        listed, late = await asyncio.gather(
            self._describe(ACTIVE_STAMPS), self._describe(stamps_since(self._latest - 1))
        )
        active = {job.name: job.values for job in listed if job.values.get("job_state") in _ACTIVE}
        recent = {job.name: job.values for job in late}
        latest = max((parse_number(values.get("mtime")) or 0 for values in recent.values()), default=0)
        wanted = _to_describe(known, active, recent)
        if len(wanted) > _NAMED:
            return None
        found: list[DescribedObject] = []
        if wanted:
            try:
                found = await self._describe(described_by_name(wanted))
            except ServerRefusedError as error:
                if error.code not in NO_SUCH_JOB:
                    raise
        self.changed = found
        over = [job for job in found if is_over(job.values)]
        gone = wanted.keys() - {job.name for job in found} | {job.name for job in over}
        fresh = {job.name: job for job in found if job.name not in gone}
        if gone:
            known = {name: job for name, job in known.items() if name not in gone}
        self._known = {**known, **fresh} if fresh else known
        self._unsettled |= fresh.keys()
        if latest > self._latest:
            self._latest, self._latest_seen = latest, self._clock()
        return list(self._known.values()), over

    async def _changed(self, known: dict[str, DescribedObject]) -> list[DescribedObject]:
        # A job may have changed again within the second of its last known change.
        open_second = self._last_read - self._latest_seen < _SETTLED
        listed = await self._describe(STAMPS)
        since: int | None = None
        async for job in _in_slices(listed):
            stamp = job.values
            changed = parse_number(stamp.get("mtime")) or 0
            before = known.get(job.name)
            if (
                before is None
                or job.name in self._unsettled
                or (open_second and changed >= self._latest)
                or before.values.get("mtime") != stamp.get("mtime")
                or before.values.get("job_state") != stamp.get("job_state")
            ):
                since = changed if since is None else min(since, changed)
        if since is None:
            return [known[job.name] for job in listed]
        fresh = {job.name: job for job in await self._describe(changed_since(since))}
        found = []
        async for job in _in_slices(listed):
            # A changed job that is missing here has ended in the meantime.
            one = fresh.pop(job.name, None) or _same(known.get(job.name), job)
            if one is not None:
                found.append(one)
        return [*found, *fresh.values()]


def _to_describe(
    known: Mapping[str, DescribedObject],
    active: Mapping[str, Mapping[str, str]],
    recent: Mapping[str, Mapping[str, str]],
) -> dict[str, None]:
    """Return the jobs that a partial reading must describe again: new jobs, jobs in another state, and arrays
    with a subjob that started or ended. New jobs that have already ended are left out. The server answers in
    the order of the names: new jobs stay in its own, which is that of their arrival.
    """
    ran = (name for name, job in known.items() if job.values.get("job_state") in _ACTIVE)
    wanted = dict.fromkeys(name for name in ran if name not in active)
    for name, values in (*active.items(), *recent.items()):
        before = known.get(name)
        if before is None:
            if not is_over(values):
                wanted[name] = None
        elif (
            before.values.get("job_state") != values.get("job_state") or before.values.get("array") == "True"
        ):
            wanted[name] = None
    arrays = [parent(name) for name in wanted if "[" in name]
    return wanted | dict.fromkeys(name for name in arrays if name in known)


async def _in_slices(jobs: Sequence[DescribedObject]) -> AsyncIterator[DescribedObject]:
    """Yield the jobs in slices, so that other tasks run: 50,000 jobs would block the loop for 50 ms."""
    for start in range(0, len(jobs), _SLICE):
        for job in jobs[start : start + _SLICE]:
            yield job
        await asyncio.sleep(0)


def _same(before: DescribedObject | None, stamp: DescribedObject) -> DescribedObject | None:
    if before is None or any(before.values.get(name) != stamp.values.get(name) for name in stamp.values):
        return None
    return before
