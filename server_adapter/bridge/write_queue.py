"""Queue of plans to write on jobs: only moves beyond a threshold, earliest starts and new jobs first."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from schedd.wire import JobFacts, WriteAttributes
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.job_comments import (
    NODES_SHOWN,
    CommentContent,
    comment_content,
    is_foreign,
    read_comment,
)
from server_adapter.bridge.state import ServerState, WrittenAttributes

_NEVER = 1 << 62
_SLICE = 200  # jobs
_BLANK = WrittenAttributes()
_Queue = list[tuple[int, int, WriteAttributes]]


@dataclass(frozen=True, slots=True)
class AttributeWrite:
    """A plan to write; `comment_free` is False if the job has a foreign comment."""

    decision: WriteAttributes
    comment_free: bool


class AttributeWriteQueue:
    """The newest plan of each job, and the content already written on it.

    `threshold` is in seconds: smaller moves of a start are not written.
    """

    def __init__(self, threshold: int = 60) -> None:
        self._threshold = threshold
        self._wanted: dict[str, WriteAttributes] = {}
        self._written: dict[str, CommentContent] = {}
        self._last: dict[
            str, WriteAttributes
        ] = {}  # the last decision of each job that its comment agrees with
        # Jobs without a comment, and jobs with an old one. The queues alternate, so that neither many new
        # jobs nor a constantly moving plan delays the others.
        self._queues: tuple[_Queue, _Queue] = ([], [])
        self._turn = 0
        self._early: list[WriteAttributes] = []  # jobs missing in the last reading
        self._missing: set[str] = set()  # jobs without the comment that was written
        self._count = count()

    def __len__(self) -> int:
        return len(self._wanted)

    def enqueue(self, decision: WriteAttributes) -> None:
        """Queue a decision; it replaces older ones for the same job."""
        self._wanted[decision.job_id] = decision
        queue = self._queues[decision.job_id in self._written]
        heappush(queue, (_urgency(decision), next(self._count), decision))

    def planned_start(self, job: str) -> int | None:
        """Return the last published start of the job."""
        decision = self._wanted.get(job)
        if decision is not None:
            return decision.planned_start
        written = self._written.get(job)
        return None if written is None else written.planned_start

    def mark_written(self, decision: WriteAttributes) -> None:
        """Record that the content of `decision` is written on the job."""
        self._written[decision.job_id] = comment_content(decision)
        self._last[decision.job_id] = decision
        if self._wanted.get(decision.job_id) is decision:
            del self._wanted[decision.job_id]

    def drop(self, job: str) -> None:
        """Forget a job that is gone, runs, or cannot be written on."""
        self._wanted.pop(job, None)
        self._written.pop(job, None)
        self._last.pop(job, None)

    def rewrite_lost(self, state: ServerState) -> Iterator[None]:
        """Queue again the comments that are missing in two full readings in a row: servers remove them when
        a hold is released. The first reading may be older than the write.

        Yields after every few jobs, so that other tasks run.
        """
        before, self._missing = self._missing, set()
        for number, (name, decision) in enumerate(list(self._last.items())):
            if number % _SLICE == _SLICE - 1:
                yield
            if name in self._wanted or not _waits(state.jobs.get(name)) or comment_content(decision).empty:
                continue
            if state.writings.get(name, _BLANK).comment:
                continue
            if name in before:
                self._written.pop(name, None)
                self.enqueue(decision)
            else:
                self._missing.add(name)

    def rewrite_all(self) -> None:
        """Queue all plans again: a part of them was not written for lack of a right, which is there now."""
        for name, decision in list(self._last.items()):
            self._requeue(name, decision)

    def rewrite_one(self) -> None:
        """Queue a written plan again if nothing is queued, to find out whether it may be written."""
        if not self._wanted and self._last:
            name = next(reversed(self._last))
            self._requeue(name, self._last[name])

    def _requeue(self, name: str, decision: WriteAttributes) -> None:
        if name not in self._wanted:
            self._written.pop(name, None)
            self.enqueue(decision)

    def restore(self, state: ServerState) -> Iterator[None]:
        """Queue again what a restarted server has lost, by its first full reading: a server that was killed
        may not have saved the last comments.

        Yields after every few jobs, so that other tasks run.
        """
        for number, (name, decision) in enumerate(list(self._last.items())):
            if number % _SLICE == _SLICE - 1:
                yield
            writing = state.writings.get(name, _BLANK)
            if name in self._wanted or not _waits(state.jobs.get(name)) or is_foreign(writing.comment):
                continue
            present = read_comment(writing.comment) or _planned(writing)
            if present is None:
                self._written.pop(name, None)
            else:
                self._written[name] = present
            self.enqueue(decision)  # dropped if nothing differs

    def refresh(self, state: ServerState) -> Iterator[None]:
        """Forget jobs that do not wait, and read back comments written before a restart.

        Yields after every few jobs, so that other tasks run.
        """
        for number, name in enumerate([*self._wanted, *self._written]):
            if not _waits(state.jobs.get(name)):
                self.drop(name)
            if number % _SLICE == _SLICE - 1:
                yield
        early, self._early = self._early, []
        for decision in early:
            if self._wanted.get(decision.job_id) is decision:
                self.enqueue(decision)
        for number, (name, writing) in enumerate(state.writings.items()):
            if number % _SLICE == _SLICE - 1:
                yield
            if name not in self._written and _waits(state.jobs.get(name)):
                present = read_comment(writing.comment) or _planned(writing)
                if present is not None:
                    self._written[name] = present

    def next(self, state: ServerState) -> AttributeWrite | None:
        """Remove and return the most urgent write; unnecessary ones are dropped.

        Call `mark_written` after the write, or `enqueue` if it could not be tried.
        """
        while self._queues[0] or self._queues[1]:
            _, _, decision = heappop(self._queues[self._turn] or self._queues[1 - self._turn])
            if self._wanted.get(decision.job_id) is not decision:
                continue  # a newer one is in the queue
            if decision.job_id not in state.jobs:
                self._early.append(decision)
                continue
            if not self._differs(decision):
                del self._wanted[decision.job_id]
                if comment_content(decision).empty:  # the decision that was written before is out of date
                    self._last.pop(decision.job_id, None)
                else:  # perhaps written before a restart of the adapter; the server may still lose it
                    self._last[decision.job_id] = decision
                continue
            self._turn = 1 - self._turn
            writing = state.writings.get(decision.job_id, _BLANK)
            return AttributeWrite(decision, comment_free=not is_foreign(writing.comment))
        return None

    def _differs(self, decision: WriteAttributes) -> bool:
        new, old = comment_content(decision), self._written.get(decision.job_id)
        if old is None:
            return not new.empty
        if new.planned_start is None or old.planned_start is None:
            return new != old
        moved = abs(new.planned_start - old.planned_start)
        # A comment that was cut at its maximum length is still correct.
        told_else = new.text != old.text and not (old.text and new.text.startswith(old.text))
        return moved > self._threshold or new.nodes != old.nodes or told_else


def _planned(writing: WrittenAttributes) -> CommentContent | None:
    """Return the plan in separate attributes, for a job without a comment."""
    if writing.planned_start is None:
        return None
    return CommentContent(writing.planned_start, tuple(writing.planned_nodes.split(",")[:NODES_SHOWN]))


def _urgency(decision: WriteAttributes) -> int:
    return _NEVER if decision.planned_start is None else decision.planned_start


def _waits(job: JobFacts | None) -> bool:
    return job is not None and job.state not in ACTIVE
