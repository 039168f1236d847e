"""Order of the daemon's decisions, as far as the adapter must know which of two is the later one."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

_NUMBER: Final = re.compile(r"(\d{1,18})$")


class NumberedDecision(Protocol):
    """A decision with the facts that order it."""

    @property
    def id(self) -> str:
        """Its id, which ends with its number."""

    @property
    def time(self) -> int:
        """When it was made."""

    @property
    def term(self) -> int:
        """Term of the daemon that made it."""


@dataclass(frozen=True, slots=True)
class DecisionOrder:
    """Position of a decision: the leader's term, the number in its id, and its time.

    Terms grow, also over the loss of a database. Within a term numbers grow, while times do not if the
    daemon's clock is set back. A daemon without a database has no terms (0), and begins with the first number
    at each start: then the time decides.
    """

    term: int = 0
    number: int = 0
    time: int = 0

    def follows(self, other: "DecisionOrder") -> bool:
        """Return whether this decision was made after the other one."""
        if self.term != other.term:
            return self.term > other.term
        if not self.term and self.time != other.time:
            return self.time > other.time
        return self.number > other.number


def decision_order(decision: NumberedDecision) -> DecisionOrder:
    number = _NUMBER.search(decision.id)
    return DecisionOrder(decision.term, int(number[1]) if number is not None else 0, decision.time)
