"""Admission check: would the server accept a hypothetical job? It also finds the job's execution queue.

Follows both server families at submission (``chk_resc_limits``, ``svr_chkque`` and ``default_router``): a
limit of the queue overrides the server's; a routing queue passes the job to the first destination that
accepts it. All reasons for a refusal are reported, not only the first.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from schedd.dialect import RequestError, parse_size, parse_walltime
from schedd.dialect.selectspec import parse_select
from schedd.dialect.span import Span
from schedd.dialect.units import TIME_RESOURCES, format_size, resembles_amount
from schedd.model import Request
from schedd.service.questions.submission_checks import (
    Submission,
    access_refusals,
    array_refusals,
    queued_limit_refusals,
    server_refusals,
    uncertain_access,
    walltime_range_refusals,
)
from schedd.wire import JobFacts, QueueFacts, ServerFacts

_DEEP: Final = 5  # maximum depth of nested routing queues


@dataclass(frozen=True, slots=True)
class RouteDestination:
    """A destination of a routing queue, and why it does not accept the job; empty: it does."""

    queue: str
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """The job in its execution queue, or all ``refusals`` of the server; with ``notes``.

    ``destinations`` are those of a routing queue, in its order.
    """

    facts: JobFacts
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    destinations: tuple[RouteDestination, ...] = ()
    command: str = "qsub"

    @property
    def refusal(self) -> str:
        """All refusals in one sentence; empty: the server accepts the job."""
        return f"{self.command} refuses it: {'; '.join(self.refusals)}" if self.refusals else ""


def admit(submission: Submission, queues: Mapping[str, QueueFacts], server: ServerFacts) -> Admission:
    """Follow the routes of a new job, and check access, limits of queue and server, and queued jobs.

    A job without a queue gets the server's default queue. A job without a walltime gets the
    ``resources_max`` walltime, as on the server. Without known queues, only the server's limits apply.
    """
    facts = submission.facts
    notes: list[str] = []
    name = facts.queue.partition("@")[0]
    default = server.attributes.get("default_queue", "").partition("@")[0]
    if not name and default in queues:
        name = default
        facts = replace(facts, queue=name)
        notes.append(f"no queue is named: the server puts it into {name}")
    elif not name and queues and default:
        notes.append(f"the server's default queue {default} is not known here")
    refused = [*server_refusals(submission, server), *walltime_range_refusals(submission, server)]
    if not name or not queues:
        refused += _limit_refusals(submission, None, server)
        return Admission(facts, tuple(refused), tuple(notes))
    route = _Route(submission, queues, server)
    taker, refusals = route.follow(name, _DEEP, routed=False)
    destinations = tuple(route.destinations)
    refused += refusals
    if refused:
        return Admission(facts, tuple(refused), tuple(notes), destinations)
    if taker != name:
        notes.append(f"queue {name} routes it to queue {taker}")
        facts = replace(facts, queue=taker)
    notes += uncertain_access(submission, queues[taker], server)
    longest = _limit("resources_max.walltime", queues.get(taker), server)
    defaults = {**server.defaults, **queues[taker].defaults}
    if longest is not None and not facts.resources.get("walltime") and "walltime" not in defaults:
        whose, text = longest
        notes.append(f"it requests no walltime: the server sets {text} (resources_max of {whose})")
        facts = replace(facts, resources={**facts.resources, "walltime": text})
    return Admission(facts, (), tuple(notes), destinations)


def exceeded_limits(
    resources: Mapping[str, str], request: Request | None, queue: QueueFacts | None, server: ServerFacts
) -> Iterator[str]:
    """Yield each resource beyond a limit of queue or server, as a sentence.

    Values that cannot be compared are skipped.
    """
    asked = {**_counts(request, resources), **{name.lower(): value for name, value in resources.items()}}
    for name, text in sorted(asked.items()):
        most = _limit(f"resources_max.{name}", queue, server)
        least = _limit(f"resources_min.{name}", queue, None)
        for limit, word, sign in ((most, "max", 1), (least, "min", -1)):
            if limit is None:
                continue
            difference = _difference(name, text, limit[1])
            if difference is not None and difference * sign > 0:
                yield f"{name}={text}, and {limit[0]} has resources_{word}.{name} = {limit[1]}"


def _limit_refusals(submission: Submission, queue: QueueFacts | None, server: ServerFacts) -> Iterator[str]:
    """Yield the limits of the queue and the server that the submission exceeds."""
    yield from exceeded_limits(submission.facts.resources, submission.understood.request, queue, server)
    yield from array_refusals(submission, queue, server)
    yield from queued_limit_refusals(submission, queue, server)


@dataclass(frozen=True, slots=True)
class _Route:
    """Route of a submission through the queues; ``destinations`` are those of the first routing queue."""

    submission: Submission
    queues: Mapping[str, QueueFacts]
    server: ServerFacts
    destinations: list[RouteDestination] = field(default_factory=list)

    def follow(self, name: str, deep: int, *, routed: bool) -> tuple[str, list[str]]:
        """Return (execution queue, no reasons), or ("", all reasons of the refusal)."""
        queue = self.queues.get(name)
        if queue is None:
            names = sorted(self.queues)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return "", [f"the server has no queue {name}; it has {', '.join(names[:3])}{more}"]
        reasons = [] if queue.enabled else [f"queue {name} takes no jobs (enabled = False)"]
        reasons += access_refusals(self.submission, queue, self.server, routed=routed)
        reasons += _limit_refusals(self.submission, queue, self.server)
        if not queue.routes:
            return ("", reasons) if reasons else (name, [])
        if deep == 0:
            return "", [*reasons, f"queue {name} routes in a circle"]
        taker = ""
        refusals = []
        for route in queue.routes:
            its, why = self._try(route, deep)
            if not routed:
                self.destinations.append(RouteDestination(its or route, tuple(why)))
            taker = taker or its
            refusals.append(f"{route}: {'; '.join(why)}")
            if taker and routed:
                break
        if not taker:
            reasons.append(f"no destination of routing queue {name} takes it ({'; '.join(refusals)})")
        return ("", reasons) if reasons else (taker, [])

    def _try(self, route: str, deep: int) -> tuple[str, list[str]]:
        if "@" in route:
            return "", ["another server, which is not known here"]
        return self.follow(route, deep - 1, routed=True)


def _limit(name: str, queue: QueueFacts | None, server: ServerFacts | None) -> tuple[str, str] | None:
    """Return the owner and the value of the limit: the queue's, else the server's."""
    if queue is not None and name in queue.limits:
        return f"queue {queue.name}", queue.limits[name]
    if server is not None and name in server.limits:
        return "the server", server.limits[name]
    return None


def _counts(request: Request | None, resources: Mapping[str, str]) -> dict[str, str]:
    """Return the resources that the server derives from a request."""
    if request is None:
        return {}
    chunks = request.chunks
    found = {"nodect": str(sum(chunk.count for chunk in chunks))}
    cores = str(sum(chunk.count * chunk.cpus for chunk in chunks))
    select = resources.get("select") or resources.get("schedselect")
    if select is None:
        return {**found, "procct": cores}
    gpus = str(sum(chunk.count * chunk.gpus for chunk in chunks))
    return {**_chunk_sums(select), **found, "ncpus": cores, "ngpus": gpus}


def _chunk_sums(select: str) -> dict[str, str]:
    """Return the sums of the numbers and sizes that all chunks request."""
    sizes: dict[str, int] = {}
    numbers: dict[str, int] = {}
    with suppress(RequestError):
        for chunk in parse_select(Span.from_text(select)):
            for name, value in chunk.resources:
                text = str(value)
                if text.isdecimal():
                    numbers[name] = numbers.get(name, 0) + chunk.count * int(text)
                elif resembles_amount(text):
                    sizes[name] = sizes.get(name, 0) + chunk.count * parse_size(text)
    return {
        **{name: str(number) for name, number in numbers.items()},
        **{name: format_size(size) for name, size in sizes.items()},
    }


def _difference(name: str, text: str, limit: str) -> float | None:
    """Return value minus limit; None if they cannot be compared."""
    try:
        if name in TIME_RESOURCES:
            return parse_walltime(text) - parse_walltime(limit)
        if name == "nodes":
            text, limit = (one.partition(":")[0].partition("+")[0] for one in (text, limit))
        if not (resembles_amount(text) and resembles_amount(limit)):
            return None
        if text[-1].isalpha() or limit[-1].isalpha():
            return parse_size(text) - parse_size(limit)
        return float(text) - float(limit)
    except (RequestError, ValueError):
        return None
