"""Two states of the server to the events between them: ends, then changes, then arrivals."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from schedd.wire import (
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

_START_SETTLES: Final = 5
"""Seconds by which a server may correct when a run began."""


def diff(old: ServerState, new: ServerState, *, ids: Ids, now: int) -> Iterator[Event]:
    """The events that lead from `old` to `new`; `now` stamps what the server gives no time for.

    `changes.apply(old, diff(old, new))` is `new`. Where nodes or queues are gone altogether, which no event
    can say, the last event is a snapshot; the queues of a reservation are gone with it. Ids are taken in the
    order in which events are yielded.
    """
    step = _Step(old, new, ids, now)
    yield from step.ends()
    yield from step.surroundings()
    yield from step.changes()
    yield from step.arrivals()
    gone = old.queues.keys() - new.queues.keys() - step.ended_reservation_queues()
    if gone or old.nodes.keys() - new.nodes.keys():
        yield snapshot(new, id=next(ids), now=now)


def with_steady_starts(old: ServerState, new: ServerState) -> ServerState:
    """The new state, in which jobs that run as before have started when they had before.

    A server first says when it sent a job to its node, then when the node began it: a second or two later.
    To the plan that is one start; told as an alteration it would move everything behind the job.
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


def endings(state: ServerState, *, ids: Ids, now: int) -> Iterator[JobEnded]:
    """The ends of all jobs that are complete but still listed, for one who may not have heard of them."""
    for name, end in state.ended.items():
        moment = now if end.completed is None else end.completed
        status = end.exit_status or 0
        yield JobEnded(id=next(ids), time=moment, job_id=name, exit_status=status, used=end.used)


def reserve_event(name: str, held: ServerReservation, *, id: str, now: int) -> Reserve:  # noqa: A002
    """What the server keeps for itself, as an event."""
    return Reserve(
        id=id,
        time=now,
        name=name,
        nodes=held.nodes,
        start=held.start,
        end=held.end,
        reason="the server's own reservation",
        queues=held.queues,
    )


def snapshot(
    state: ServerState,
    *,
    id: str,  # noqa: A002
    now: int,
    server_age: int | None = None,
    mode: Mode = "scheduler",
) -> Snapshot:
    """The whole state as one event."""
    return Snapshot(
        id=id,
        time=now,
        jobs=tuple(state.jobs.values()),
        nodes=tuple(state.nodes.values()),
        queues=tuple(state.queues.values()),
        server=state.server,
        server_age=server_age,
        mode=mode,
    )


class _Step:
    def __init__(self, old: ServerState, new: ServerState, ids: Ids, now: int) -> None:
        self._old = old
        self._new = new
        self._ids = ids
        self._now = now
        # Mostly hardly any: the one pass over all jobs is as short as it can be.
        known = old.jobs.get
        fresh = [(known(name), job) for name, job in new.jobs.items() if known(name) is not job]
        self._changed = [(before, after) for before, after in fresh if before is not None]
        self._arrived = [after for before, after in fresh if before is None]

    # -- jobs that are gone, and runs that are over -------------------------------------------------

    def ends(self) -> Iterator[Event]:
        """Ends of runs and deletions; then runs that began and ended since `old`; then requeued jobs."""
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
                yield JobDeleted(id=next(self._ids), time=moment, job_id=job.id)
        for moment, job, end in sorted(unseen, key=lambda entry: entry[0]):
            yield JobStarted(id=next(self._ids), time=moment, job_id=job.id, shares=end.shares, by=end.by)
            yield self._ended(job, end)
        for before, after in self._changed:
            if _was_requeued(before, after):
                yield JobQueued(id=next(self._ids), time=self._now, job=_as_queued(after))

    def _ended(self, job: JobFacts, end: Ending | None) -> JobEnded:
        """A run's end. How a job ended that vanished while nobody looked is not known: as a success."""
        moment = self._now if end is None or end.completed is None else end.completed
        status = 0 if end is None or end.exit_status is None else end.exit_status
        used = None if end is None else end.used
        return JobEnded(id=next(self._ids), time=moment, job_id=job.id, exit_status=status, used=used)

    # -- what jobs run on ---------------------------------------------------------------------------

    def surroundings(self) -> Iterator[Event]:
        """Nodes, queues and the server where they are new or changed."""
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
        """The queues that went with a reservation of the server."""
        ended = self._old.reservations.keys() - self._new.reservations.keys()
        return {queue for name in ended for queue in self._old.reservations[name].queues}

    # -- jobs that stay, and jobs that come -----------------------------------------------------------

    def changes(self) -> Iterator[Event]:
        """Known jobs: holds, releases, alterations, in the server's order; then starts by their time."""
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
        """Unknown jobs, in the server's order; then the starts of those that run already."""
        started: list[tuple[JobFacts, JobFacts]] = []
        for after in self._arrived:
            queued = _as_queued(after)
            yield JobQueued(id=next(self._ids), time=after.submitted or self._now, job=queued)
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
        """A job that waits as before, or runs as before."""
        if after.holds and after.holds != before.holds and after.state == "H":
            yield JobHeld(id=next(self._ids), time=self._now, job_id=after.id, holds=after.holds)
            before = hold(before, after.holds)
        elif after.state == "Q" and not after.holds and (before.holds or before.state in ("H", "W")):
            moment = self._now if after.eligible is None else after.eligible
            yield JobReleased(id=next(self._ids), time=moment, job_id=after.id)
            before = release(before, moment)
        yield from self._remainder(before, after)

    def _remainder(self, reached: JobFacts, after: JobFacts) -> Iterator[Event]:
        """What the events so far did not say is told by the whole job."""
        if reached != after:
            yield JobAltered(id=next(self._ids), time=self._now, job=after)


def _was_requeued(before: JobFacts, after: JobFacts) -> bool:
    """Whether a run is over and the job lives: requeued, run again, or accepted and returned."""
    if before.state in ACTIVE:
        if after.state not in ACTIVE:
            return True
        later = (after.started or 0) > (before.started or 0)
        return after.starts > before.starts and later
    return after.state not in ACTIVE and after.starts > before.starts


def _as_queued(job: JobFacts) -> JobFacts:
    """The job as it was before the run it is in now."""
    if job.state not in ACTIVE:
        return job
    queued = replace(job, state="Q", started=None, shares=(), starts=max(0, job.starts - 1), by="")
    return replace(queued, version=job_version(queued))
