"""Limits of the server, its queues and the site: which there are, and what follows when they change."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from schedd.engine.facts.state import EngineState
from schedd.engine.run.reevaluation import limits_changed
from schedd.features.limits.state import ParsedLimits, limit_parser
from schedd.policy.limits import Limit
from schedd.wire import QueueFacts, ServerFacts

__all__ = ["follow_queue_limits", "follow_server_limits", "limit_sources"]


def limit_sources(state: EngineState) -> Iterator[tuple[Limit, ...]]:
    """Yield the limits of the server, of each queue, and of the site."""
    yield _of_server(state).limits
    for queue in state.queues.values():
        yield _of_queue(state, queue).limits
    types = state.limits.types
    yield tuple(replace(limit, what=types.spelled(limit.what)) for limit in state.site.limits)


def follow_queue_limits(state: EngineState, before: QueueFacts | None, queue: QueueFacts, event: str) -> None:
    """Apply the limits of a queue if they differ from before."""
    if before is None or before.limits != queue.limits:
        unreadable = _of_queue(state, queue).unreadable
        _apply(state, event, f"the limits of queue {queue.name} were changed", unreadable)


def follow_server_limits(state: EngineState, before: ServerFacts, event: str) -> None:
    """Apply the server's limits if they, or the types of its resources, differ from before."""
    typed = before.resources != state.server.resources
    if not typed and before.limits == state.server.limits:
        return
    unreadable = list(_of_server(state).unreadable)
    for queue in state.queues.values() if typed else ():
        unreadable += _of_queue(state, queue).unreadable
    what = "types of resources" if typed else "limits"
    _apply(state, event, f"the server's {what} were changed", unreadable)


def _of_server(state: EngineState) -> ParsedLimits:
    return limit_parser(state).parse(state.server.limits, "", state.limits.types)


def _of_queue(state: EngineState, queue: QueueFacts) -> ParsedLimits:
    return limit_parser(state).parse(queue.limits, queue.name, state.limits.types)


def _apply(state: EngineState, event: str, text: str, unreadable: Iterable[str]) -> None:
    """Let jobs follow changed limits, and raise an alert for each limit that cannot be parsed."""
    state.gather_limits()
    state.alerts.pop(f"limit {text}", None)
    for line in unreadable:
        state.alert(event, "limit", f"a limit of the server cannot be read and is not enforced: {line}", text)
    limits_changed(state, event, text)
