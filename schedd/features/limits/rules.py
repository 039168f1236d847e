"""Limits of the server, its queues and the site: enumeration, and reaction to changes."""

from collections.abc import Iterable, Iterator

from schedd.engine.facts.state import EngineState
from schedd.engine.run.reevaluation import limits_changed
from schedd.features.limits.state import ParsedLimits, limit_state
from schedd.policy.limits import Limit
from schedd.wire import QueueFacts, ServerFacts


def limit_sources(state: EngineState) -> Iterator[tuple[Limit, ...]]:
    """Yield the limits of the server, of each queue, and of the site."""
    yield _server_limits(state).limits
    for queue in state.queues.values():
        yield _queue_limits(state, queue).limits
    types = state.limits.types
    yield tuple(limit.with_changes(what=types.spelled(limit.what)) for limit in state.site.limits)


def follow_queue_limits(state: EngineState, before: QueueFacts | None, queue: QueueFacts, event: str) -> None:
    """Apply the limits of a queue if they were changed."""
    if before is None or before.limits != queue.limits:
        unreadable = _queue_limits(state, queue).unreadable
        _apply(state, event, f"the limits of queue {queue.name} were changed", unreadable)


def follow_server_limits(state: EngineState, before: ServerFacts, event: str) -> None:
    """Apply the server's limits if they, or the types of its resources, were changed."""
    typed = before.resources != state.server.resources
    if not typed and before.limits == state.server.limits:
        return
    unreadable = list(_server_limits(state).unreadable)
    for queue in state.queues.values() if typed else ():
        unreadable += _queue_limits(state, queue).unreadable
    what = "types of resources" if typed else "limits"
    _apply(state, event, f"the server's {what} were changed", unreadable)


def _server_limits(state: EngineState) -> ParsedLimits:
    return limit_state(state).parse(state.server.limits, "", state.limits.types)


def _queue_limits(state: EngineState, queue: QueueFacts) -> ParsedLimits:
    return limit_state(state).parse(queue.limits, queue.name, state.limits.types)


def _apply(state: EngineState, event: str, text: str, unreadable: Iterable[str]) -> None:
    """Replan jobs under changed limits, and raise an alert for each limit that cannot be parsed."""
    state.gather_limits()
    state.alerts.pop(f"limit {text}", None)
    for line in unreadable:
        state.alert(event, "limit", f"a limit of the server cannot be read and is not enforced: {line}", text)
    limits_changed(state, event, text)
