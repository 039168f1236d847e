"""Roles, and what each may do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from schedd.store import Role

__all__ = ["RIGHTS", "Bearer", "Right", "Role"]

Right = Literal["ask", "see all", "exchange", "steer", "administer", "hand over"]
"""``ask``: read and put questions; ``see all``: every job in full; ``exchange``: events in, decisions out;
``steer``: pause and resume, reservations; ``hand over``: have jobs submitted in their users' names;
``administer``: everything else that changes how the daemon works.
"""

RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    "user": frozenset({"ask"}),
    "reader": frozenset({"ask", "see all"}),
    "operator": frozenset({"ask", "see all", "steer"}),
    "adapter": frozenset({"ask", "see all", "exchange"}),
    "admin": frozenset({"ask", "see all", "exchange", "steer", "administer", "hand over"}),
    "federation": frozenset({"ask", "see all", "hand over"}),
    "proxy": frozenset(),  # nothing in its own name: it says for whom it asks
}


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who asks, and the role. The name of a ``user`` is the one that owns jobs on the server."""

    name: str
    role: Role

    def may(self, right: Right) -> bool:
        """Whether the role has this right."""
        return right in RIGHTS[self.role]

    def owns(self, owner: str) -> bool:
        """Whether jobs of ``owner`` (``ann@login1``) are this one's: ``ann`` and ``ann@login1`` own them."""
        return self.name in (owner, owner.partition("@")[0])
