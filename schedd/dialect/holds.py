"""What the letters of ``Hold_Types`` mean; both families write the same ones."""

from enum import Enum
from typing import Final

__all__ = ["Hold", "holds_in"]


class Hold(Enum):
    """Who or what holds a job; the value says so in words."""

    USER = "a user hold"
    OPERATOR = "an operator hold"
    SYSTEM = "a system hold"
    """Of an admin, or of the server itself for an unmet dependency."""
    SLOT_LIMIT = "the array's slot limit"
    """A limit rather than a hold: what it holds is planned."""
    OTHER = "a hold"


_LETTERS: Final = {"u": Hold.USER, "o": Hold.OPERATOR, "s": Hold.SYSTEM, "l": Hold.SLOT_LIMIT}
_NO_HOLD: Final = "n"


def holds_in(letters: str) -> tuple[Hold, ...]:
    """The holds that the letters name, in their order; ``n`` and an empty text name none."""
    if not letters or letters == _NO_HOLD:
        return ()
    found = [_LETTERS.get(letter, Hold.OTHER) for letter in letters if letter != _NO_HOLD]
    return tuple(dict.fromkeys(found))
