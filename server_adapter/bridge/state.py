"""State of the server as one immutable value, built in slices from status replies."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from schedd.wire import JobFacts, NodeFacts, QueueFacts, ServerFacts, ShareFacts
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import ACTIVE, Ending, Values
from server_adapter.bridge.lost_runs import LostRuns, NodeReport
from server_adapter.bridge.slot_limits import SlotLimits


@dataclass(frozen=True, slots=True)
class WrittenAttributes:
    """Attributes on a job for people: its comment, and a written planned start."""

    comment: str = ""
    start_time: int | None = None
    planned_start: int | None = None
    planned_nodes: str = ""
    length: bool = False  # a run time written by the adapter, for the planning of other schedulers


@dataclass(frozen=True, slots=True)
class ServerReservation:
    """Nodes, or only their `shares`, reserved by the server for the jobs of `queues` over `[start, end)`."""

    start: int
    end: int
    nodes: tuple[str, ...]
    queues: tuple[str, ...]
    shares: tuple[ShareFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservationOccurrence:
    """One occurrence of a reservation: from `start` on the `resources`, in the notation of a job.

    `select` is the server's own text of the request. `where` is the server's text for nodes that the
    reservation has and retains; without resources it needs no change.
    """

    start: int
    resources: Mapping[str, str] = field(default_factory=dict)
    select: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class PendingReservation:
    """A reservation that waits for nodes, for each of its occurrences.

    `begin` is the start that is sent to the server, 0 to leave it unchanged; None: as soon as possible.
    `queue` is the queue of its own jobs, for which its nodes already count as free; empty if they do not. It
    is not settled before `since` (seconds since the epoch). `problem` is the reason against it, usually
    empty. `standing`: a recurring reservation, even with a single remaining occurrence.
    """

    slots: tuple[ReservationOccurrence, ...]
    standing: bool = False
    begin: int | None = 0
    queue: str = ""
    since: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """State of the server in one cycle.

    `jobs` are active and waiting jobs; `ended` are complete jobs that are still listed. `writings` has only
    jobs with written attributes.
    """

    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    ended: Mapping[str, Ending] = field(default_factory=dict)
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    queues: Mapping[str, QueueFacts] = field(default_factory=dict)
    server: ServerFacts = ServerFacts()
    reservations: Mapping[str, ServerReservation] = field(default_factory=dict)
    pending_reservations: Mapping[str, PendingReservation] = field(default_factory=dict)
    writings: Mapping[str, WrittenAttributes] = field(default_factory=dict)


EMPTY_STATE = ServerState()
NOTHING_WRITTEN = WrittenAttributes()  # a job without written attributes


@dataclass(frozen=True, slots=True)
class FactParsers:
    """Parsers of one family of servers: a pure function for each type of object.

    `is_over` returns whether a listed job is complete. For a job without written attributes, `writing` must
    return the object `NOTHING_WRITTEN` itself. `report` returns a node's own list of its jobs,
    or None.
    """

    job: Callable[[str, Values], JobFacts]
    is_over: Callable[[Values], bool]
    ending: Callable[[Values], Ending]
    writing: Callable[[Values], WrittenAttributes]
    node: Callable[[str, Values, NodeFacts | None], NodeFacts]
    queue: Callable[[str, Values], QueueFacts]
    server: Callable[[Values], ServerFacts]
    report: Callable[[Values], NodeReport | None] = lambda _: None


class StateBuilder:
    """Builds consecutive states, and reuses the facts of unchanged values.

    In a cycle with few changes the cost of a job is one comparison of dictionaries, and unchanged facts are
    the same objects as before. `by_hand` returns the user of a job's manual start; it is called when a job
    first holds nodes, or has changed since.
    """

    def __init__(self, words: FactParsers, by_hand: Callable[[str], str] = lambda _: "") -> None:
        self._words = words
        self._by_hand = by_hand
        self.slot_limits = SlotLimits()
        self.lost_runs = LostRuns()
        self._jobs: dict[str, tuple[Values, JobFacts, WrittenAttributes]] = {}
        self._endings: dict[str, tuple[Values, Ending]] = {}
        self._nodes: Mapping[str, NodeFacts] = {}

    @property
    def living(self) -> Collection[str]:
        """Names of the jobs in the last state."""
        return self._jobs.keys()

    def build(
        self,
        *,
        server: Values,
        queues: Iterable[DescribedObject],
        nodes: Iterable[DescribedObject],
        jobs: Iterable[DescribedObject],
        slice_length: int = 200,
    ) -> Iterator[ServerState | None]:
        """Yield None after every `slice_length` nodes or jobs for other tasks; last, the state."""
        known: dict[str, NodeFacts] = {}
        reports: dict[str, NodeReport] = {}
        for count, node in enumerate(nodes, start=1):
            known[node.name] = self._words.node(node.name, node.values, self._nodes.get(node.name))
            if (report := self._words.report(node.values)) is not None:
                reports[node.name] = report
            if count % slice_length == 0:
                yield None
        self.lost_runs.begin_reading(reports)
        living: dict[str, tuple[Values, JobFacts, WrittenAttributes]] = {}
        endings: dict[str, tuple[Values, Ending]] = {}
        # Filled during the pass, since another pass over all jobs would block the loop.
        facts: dict[str, JobFacts] = {}
        writings: dict[str, WrittenAttributes] = {}
        self.slot_limits.begin_reading()
        for count, job in enumerate(jobs, start=1):
            name, values = job.name, job.values
            if self._words.is_over(values):
                seen = self._endings.get(name)
                fresh = seen if seen is not None and seen[0] == values else (values, self._ending(job))
                endings[name] = fresh
            else:
                entry = self._jobs.get(name)
                if entry is None or (entry[0] is not values and entry[0] != values):
                    entry = (values, _reuse(entry, self._facts(job)), self._words.writing(values))
                if entry[1].shares and (lost := self.lost_runs.is_lost(entry[1])) != entry[1].run_lost:
                    entry = (entry[0], replace(entry[1], run_lost=lost), entry[2])
                living[name] = entry
                facts[name] = entry[1]
                if entry[1].array:
                    self.slot_limits.count_subjob(entry[1])
                if entry[2] is not NOTHING_WRITTEN:
                    writings[name] = entry[2]
            if count % slice_length == 0:
                yield None
        for count, name in enumerate(self.slot_limits.finish_reading(), start=1):
            read, before, text = living[name]
            facts[name] = self._limited(replace(before, slot_limit=self._words.job(name, read).slot_limit))
            living[name] = (read, facts[name], text)
            if count % slice_length == 0:
                yield None
        self.lost_runs.finish_reading()
        self._jobs, self._endings, self._nodes = living, endings, known
        yield ServerState(
            jobs=facts,
            ended={name: entry[1] for name, entry in endings.items()},
            nodes=known,
            queues={queue.name: self._words.queue(queue.name, queue.values) for queue in queues},
            server=self._words.server(server),
            writings=writings,
        )

    def _facts(self, job: DescribedObject) -> JobFacts:
        facts = self._limited(self._words.job(job.name, job.values))
        by = self._by_hand(job.name) if facts.state in ACTIVE else ""
        return replace(facts, by=by) if by else facts

    def _limited(self, facts: JobFacts) -> JobFacts:
        limit = self.slot_limits.limit_of(facts.array) if facts.array else None
        return facts if limit is None else replace(facts, slot_limit=limit)

    def _ending(self, job: DescribedObject) -> Ending:
        end = self._words.ending(job.values)
        by = self._by_hand(job.name) if end.shares else ""
        return replace(end, by=by) if by else end


def _reuse(before: tuple[Values, JobFacts, WrittenAttributes] | None, facts: JobFacts) -> JobFacts:
    return before[1] if before is not None and before[1] == facts else facts
