"""Events between two states of the server: ends, then changes, then arrivals."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from schedd.wire import (
    SERVER_RESERVATION,
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    Mode,
    NodeChanged,
    QueueChanged,
    Reserve,
    ServerChanged,
    Snapshot,
    Unreserve,
)
from server_adapter.bridge.event_effects import hold, release, start
from server_adapter.bridge.facts import ACTIVE, Ending, job_version
from server_adapter.bridge.state import ServerReservation, ServerState

Ids = Iterator[str]

_START_SETTLES: Final = 5  # maximum correction of a start time by the server, in seconds


def diff(old: ServerState, new: ServerState, *, ids: Ids, now: int, mode: Mode) -> Iterator[Event]:
    """Yield the events that lead from `old` to `new`; `now` dates events without a time of the server.

    `event_effects.apply(old, diff(old, new))` is `new`. No event can report removed nodes or queues, so the
    last event is then a snapshot; the queues of a reservation are removed with it. Ids are taken in the order
    of the events.
    """
    step = _Step(old, new, ids, now)
    yield from step.ends()
    yield from step.surroundings()
    yield from step.changes()
    yield from step.arrivals()
    gone = old.queues.keys() - new.queues.keys() - step.ended_reservation_queues()
    if gone or old.nodes.keys() - new.nodes.keys():
        yield snapshot(new, id=next(ids), now=now, mode=mode)


def with_steady_starts(old: ServerState, new: ServerState) -> ServerState:
    """Return the new state with the old start times of unchanged runs.

    A server first reports when it sent a job to its node, then when the node started it, a second or two
    later. For the plan both are the same start; an alteration would move all
    later jobs.
    """
    moved = {}
    for name, job in new.jobs.items():
        before = old.jobs.get(name)
        if before is None or before is job or job.state not in ACTIVE or before.state not in ACTIVE:
            continue
        if before.started is None or job.started is None or before.started == job.started:
            continue
        near = abs(job.started - before.started) <= _START_SETTLES
        if near and (before.starts, before.shares) == (job.starts, job.shares):
            moved[name] = replace(job, started=before.started)
    return replace(new, jobs={**new.jobs, **moved}) if moved else new


def endings(ended: Mapping[str, Ending], *, ids: Ids, now: int) -> Iterator[JobEnded | JobDeleted]:
    """Yield these ends of complete jobs, for a daemon that may have missed them. A job that held no nodes was
    deleted in its queue, or moved to another server.
    """
    for name, end in ended.items():
        moment = now if end.completed is None else end.completed
        if end.started is None and not end.shares:
            yield JobDeleted(id=next(ids), time=moment, job_id=name, moved_to=end.moved_to)
            continue
        yield JobEnded(id=next(ids), time=moment, job_id=name, exit_status=end.exit_status, used=end.used)


def reserve_event(name: str, held: ServerReservation, *, id: str, now: int) -> Reserve:  # noqa: A002
    return Reserve(
        id=id,
        time=now,
        name=name,
        nodes=held.nodes,
        start=held.start,
        end=held.end,
        reason=SERVER_RESERVATION,
        queues=held.queues,
        shares=held.shares,
    )


def snapshot(
    state: ServerState,
    *,
    id: str,  # noqa: A002
    now: int,
    mode: Mode,
    server_age: int | None = None,
) -> Snapshot:
    """Return the whole state as one event.

    It contains the reservations, which limit the places of its jobs.
    """
    return Snapshot(
        id=id,
        time=now,
        jobs=tuple(state.jobs.values()),
        nodes=tuple(state.nodes.values()),
        queues=tuple(state.queues.values()),
        server=state.server,
        server_age=server_age,
        mode=mode,
        reservations=tuple(
            reserve_event(name, held, id=id, now=now) for name, held in state.reservations.items()
        ),
    )


class _Step:
    def __init__(self, old: ServerState, new: ServerState, ids: Ids, now: int) -> None:
        self._old = old
        self._new = new
        self._ids = ids
        self._now = now
        # Usually few jobs change, so the only pass over all jobs is as short as possible.
        known = old.jobs.get
        fresh = [(known(name), job) for name, job in new.jobs.items() if known(name) is not job]
        self._changed = [(before, after) for before, after in fresh if before is not None]
        self._arrived = [after for before, after in fresh if before is None]

    # -- ended jobs and runs ----------------------------------------------------------------------------

    def ends(self) -> Iterator[Event]:
        """Yield ends of runs and deletions; runs that began and ended since `old`; requeued jobs."""
        new = self._new.jobs
        gone = [job for name, job in self._old.jobs.items() if name not in new]
        unseen: list[tuple[int, JobFacts, Ending]] = []
        for job in gone:
            end = self._new.ended.get(job.id)
            if job.state in ACTIVE:
                yield self._ended(job, end)
            elif end is not None and end.shares and (end.starts > job.starts or not end.starts):
                unseen.append((end.started or self._now, job, end))
            else:
                moment = self._now if end is None or end.completed is None else end.completed
                where = "" if end is None else end.moved_to
                yield JobDeleted(id=next(self._ids), time=moment, job_id=job.id, moved_to=where)
        for moment, job, end in sorted(unseen, key=lambda entry: entry[0]):
            yield JobStarted(id=next(self._ids), time=moment, job_id=job.id, shares=end.shares, by=end.by)
            yield self._ended(job, end)
        for before, after in self._changed:
            if _was_requeued(before, after):
                yield JobQueued(id=next(self._ids), time=self._now, job=_as_queued(after))

    def _ended(self, job: JobFacts, end: Ending | None) -> JobEnded:
        """Return the end of a run; of a job that vanished between readings, nothing else is known."""
        moment = self._now if end is None or end.completed is None else end.completed
        status = None if end is None else end.exit_status
        used = None if end is None else end.used
        return JobEnded(id=next(self._ids), time=moment, job_id=job.id, exit_status=status, used=used)

    # -- nodes, queues and server ------------------------------------------------------------------

    def surroundings(self) -> Iterator[Event]:
        """Yield new and changed nodes, queues, reservations and server settings."""
        old, new, now = self._old, self._new, self._now
        for name, node in new.nodes.items():
            if old.nodes.get(name) != node:
                yield NodeChanged(id=next(self._ids), time=now, node=node)
        for name in sorted(old.reservations.keys() - new.reservations.keys()):
            yield Unreserve(id=next(self._ids), time=now, name=name)
        lifted = self.ended_reservation_queues()
        for name, queue in new.queues.items():
            if old.queues.get(name) != queue or name in lifted:
                yield QueueChanged(id=next(self._ids), time=now, queue=queue)
        for name, held in new.reservations.items():
            if old.reservations.get(name) != held:
                yield reserve_event(name, held, id=next(self._ids), now=now)
        if old.server != new.server:
            yield ServerChanged(id=next(self._ids), time=now, server=new.server)

    def ended_reservation_queues(self) -> set[str]:
        ended = self._old.reservations.keys() - self._new.reservations.keys()
        return {queue for name in ended for queue in self._old.reservations[name].queues}

    # -- known and new jobs ------------------------------------------------------------------------------

    def changes(self) -> Iterator[Event]:
        """Yield changes of known jobs (holds, releases, alterations) in order; then starts by time."""
        started: list[tuple[JobFacts, JobFacts]] = []
        for before, after in self._changed:
            if before == after:
                continue
            queued = _as_queued(after) if _was_requeued(before, after) else before
            if after.state in ACTIVE and queued.state not in ACTIVE:
                started.append((queued, after))
            else:
                yield from self._altered(queued, after)
        yield from self._starts(started)

    def arrivals(self) -> Iterator[Event]:
        """Yield arrivals of new jobs in the server's order; then the starts of running ones."""
        started: list[tuple[JobFacts, JobFacts]] = []
        for after in self._arrived:
            queued = _as_queued(after)
            # By the server's clock, which may be ahead: nothing is reported before it happens.
            moment = min(after.submitted or self._now, self._now)
            yield JobQueued(id=next(self._ids), time=moment, job=queued)
            if after.state in ACTIVE:
                started.append((queued, after))
        yield from self._starts(started)

    def _starts(self, pairs: list[tuple[JobFacts, JobFacts]]) -> Iterator[Event]:
        pairs.sort(key=lambda pair: pair[1].started or self._now)
        for before, after in pairs:
            moment = self._now if after.started is None else after.started
            name = next(self._ids)
            event = JobStarted(id=name, time=moment, job_id=after.id, shares=after.shares, by=after.by)
            yield event
            yield from self._remainder(start(before, event), after)

    def _altered(self, before: JobFacts, after: JobFacts) -> Iterator[Event]:
        """Yield the changes of a job that still waits, or still runs."""
        if after.holds and after.holds != before.holds and after.state == "H":
            yield JobHeld(id=next(self._ids), time=self._now, job_id=after.id, holds=after.holds)
            before = hold(before, after.holds)
        elif after.state == "Q" and not after.holds and (before.holds or before.state in ("H", "W")):
            moment = self._now if after.eligible is None else after.eligible
            yield JobReleased(id=next(self._ids), time=moment, job_id=after.id)
            before = release(before, moment)
        yield from self._remainder(before, after)

    def _remainder(self, reached: JobFacts, after: JobFacts) -> Iterator[Event]:
        """Yield the whole job if the events up to now do not describe its change completely."""
        if reached != after:
            yield JobAltered(id=next(self._ids), time=self._now, job=after)


def _was_requeued(before: JobFacts, after: JobFacts) -> bool:
    """Return whether a run is over and the job exists: requeued, run again, or accepted and returned."""
    if before.state in ACTIVE:
        if after.state not in ACTIVE:
            return True
        later = (after.started or 0) > (before.started or 0)
        return after.starts > before.starts and later
    return after.state not in ACTIVE and after.starts > before.starts


def _as_queued(job: JobFacts) -> JobFacts:
    """Return the job without its current run."""
    if job.state not in ACTIVE:
        return job
    queued = replace(job, state="Q", started=None, shares=(), starts=max(0, job.starts - 1), by="")
    return replace(queued, version=job_version(queued))
