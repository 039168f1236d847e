"""Cache of parsed limits: the attributes of the server and its queues."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import FieldRule, declared
from schedd.policy.limits import Limit, parse_server_limits
from schedd.wire import ResourceTypes

__all__ = ["LimitParser", "ParsedLimits", "limit_parser"]


class ParsedLimits(NamedTuple):
    """Limits reported by a server or queue, parsed with the ``types`` of its resources."""

    printed: Mapping[str, str]
    types: ResourceTypes
    limits: tuple[Limit, ...]
    unreadable: tuple[str, ...]


_MEMO: Final = FieldRule(lambda _: {}, saved=False)


@dataclass(slots=True)
class LimitParser:
    """The component's part of the engine's state."""

    parsed: dict[str, ParsedLimits] = declared(_MEMO, make=dict)
    """By queue (empty: the server): the last parsed limits. A cache."""

    def parse(self, printed: Mapping[str, str], queue: str, types: ResourceTypes) -> ParsedLimits:
        """Return the parsed limits of a queue, or of the server (empty)."""
        known = self.parsed.get(queue)
        if known is None or known.printed is not printed or known.types is not types:
            known = ParsedLimits(printed, types, *parse_server_limits(printed, queue, types))
            self.parsed[queue] = known
        return known


def limit_parser(state: EngineState) -> LimitParser:
    """The component's part of the engine's state."""
    return state.part(LimitParser)
