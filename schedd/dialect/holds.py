"""Job holds: the letters of ``Hold_Types``, which are the same in both families."""

from enum import Enum
from typing import Final


class Hold(Enum):
    """Kind of hold; the value is its text for messages."""

    USER = "a user hold"
    OPERATOR = "an operator hold"
    SYSTEM = "a system hold"  # set by an admin, or by the server for an unmet dependency
    SLOT_LIMIT = "the array's slot limit"  # a limit, not a hold: the jobs are planned
    OTHER = "a hold"


_LETTERS: Final = {"u": Hold.USER, "o": Hold.OPERATOR, "s": Hold.SYSTEM, "l": Hold.SLOT_LIMIT}
_NO_HOLD: Final = "n"


def holds_in(letters: str) -> tuple[Hold, ...]:
    """Return the holds for the letters, in their order; ``n`` and an empty text mean none."""
    if not letters or letters == _NO_HOLD:
        return ()
    found = [_LETTERS.get(letter, Hold.OTHER) for letter in letters if letter != _NO_HOLD]
    return tuple(dict.fromkeys(found))
