"""Admission check: would the server accept a hypothetical job? It also finds the job's execution queue.

Follows both server families at submission (``chk_resc_limits`` and ``default_router``): a limit of the queue
overrides the server's; a routing queue passes the job to the first destination that accepts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from schedd.dialect import RequestError, parse_size, parse_walltime
from schedd.dialect.units import resembles_amount
from schedd.model import Request
from schedd.wire import JobFacts, QueueFacts, ServerFacts

__all__ = ["Admission", "admit", "over_limit"]

_TIMES: Final = frozenset({"walltime", "cput", "pcput", "min_walltime", "max_walltime", "soft_walltime"})
_DEEP: Final = 5
"""Maximum depth of nested routing queues."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The job in its execution queue, or ``refusal``: why the server rejects it; with ``notes``."""

    facts: JobFacts
    refusal: str = ""
    notes: tuple[str, ...] = ()


def admit(
    facts: JobFacts, request: Request | None, queues: Mapping[str, QueueFacts], server: ServerFacts
) -> Admission:
    """Follow the routes of a new job, then check the limits of queue and server.

    A job without a walltime gets the ``resources_max`` walltime, as on the server. Without a queue, or
    without known queues, only the server's limits apply.
    """
    name = facts.queue.partition("@")[0]
    if not name or not queues:
        return Admission(facts, _refusal_text(over_limit(facts.resources, request, None, server)))
    notes: list[str] = []
    taker, refusal = _accepting_queue(name, facts, request, queues, server, _DEEP)
    if refusal:
        return Admission(facts, _refusal_text(refusal))
    if taker != name:
        notes.append(f"queue {name} routes it to queue {taker}")
        facts = replace(facts, queue=taker)
    longest = _limit("resources_max.walltime", queues.get(taker), server)
    defaults = {**server.defaults, **queues[taker].defaults}
    if longest is not None and not facts.resources.get("walltime") and "walltime" not in defaults:
        whose, text = longest
        notes.append(f"without a walltime the server gives it {text}: resources_max of {whose}")
        facts = replace(facts, resources={**facts.resources, "walltime": text})
    return Admission(facts, "", tuple(notes))


def over_limit(
    resources: Mapping[str, str], request: Request | None, queue: QueueFacts | None, server: ServerFacts
) -> str:
    """Return the first resource beyond a limit of queue or server, as a sentence; empty if there is none.

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
                return f"{name}={text}, and {limit[0]} has resources_{word}.{name} = {limit[1]}"
    return ""


def _refusal_text(why: str) -> str:
    return f"qsub refuses it: {why}" if why else ""


def _accepting_queue(
    name: str,
    facts: JobFacts,
    request: Request | None,
    queues: Mapping[str, QueueFacts],
    server: ServerFacts,
    deep: int,
) -> tuple[str, str]:
    """Return (execution queue, "") or ("", reason of the rejection)."""
    queue = queues.get(name)
    if queue is None:
        names = sorted(queues)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return "", f"the server has no queue {name}; it has {', '.join(names[:3])}{more}"
    if not queue.enabled:
        return "", f"queue {name} takes no jobs (enabled = False)"
    over = over_limit(facts.resources, request, queue, server)
    if over:
        return "", over
    if not queue.routes:
        return name, ""
    if deep == 0:
        return "", f"queue {name} routes in a circle"
    reasons = []
    for route in queue.routes:
        if "@" in route:
            reasons.append(f"{route}: another server, which is not known here")
            continue
        taker, why = _accepting_queue(route, facts, request, queues, server, deep - 1)
        if taker:
            return taker, ""
        reasons.append(f"{route}: {why}")
    return "", f"no destination of routing queue {name} takes it ({'; '.join(reasons)})"


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
    found = {"nodect": sum(chunk.count for chunk in chunks)}
    cores = sum(chunk.count * chunk.cpus for chunk in chunks)
    if "select" in resources or "schedselect" in resources:
        found["ncpus"] = cores
        found["ngpus"] = sum(chunk.count * chunk.gpus for chunk in chunks)
    else:
        found["procct"] = cores
    return {name: str(number) for name, number in found.items()}


def _difference(name: str, text: str, limit: str) -> float | None:
    """Return value minus limit; None if they cannot be compared."""
    try:
        if name in _TIMES:
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
