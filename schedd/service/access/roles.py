"""Roles, and what each may do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from schedd.store import Role

__all__ = ["RIGHTS", "Bearer", "Right", "Role", "RoleGrant", "bearer_with_grants"]

Right = Literal["ask", "see all", "exchange", "steer", "administer", "transfer jobs"]
"""``ask``: read and put questions; ``see all``: every job in full; ``exchange``: events in, decisions out;
``steer``: pause and resume, reservations; ``transfer jobs``: have jobs submitted in their users' names;
``administer``: everything else that changes how the daemon works.
"""

RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    "user": frozenset({"ask"}),
    "reader": frozenset({"ask", "see all"}),
    "operator": frozenset({"ask", "see all", "steer"}),
    "adapter": frozenset({"ask", "see all", "exchange"}),
    "admin": frozenset({"ask", "see all", "exchange", "steer", "administer", "transfer jobs"}),
    "federation": frozenset({"ask", "see all", "transfer jobs"}),
    "proxy": frozenset(),  # nothing in its own name: it says for whom it asks
}


_RANK: Final[Mapping[Role, int]] = {"user": 0, "reader": 1, "operator": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role of somebody: on these ``clusters``, or on all where there are none."""

    role: Role
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who asks, and the role. The name of a ``user`` is the one that owns jobs on the server.

    The role counts on ``clusters``, or on all where that is None; on those in ``instead`` another does.
    """

    name: str
    role: Role
    clusters: frozenset[str] | None = None
    instead: tuple[tuple[str, Role], ...] = ()

    def may(self, right: Right) -> bool:
        """Whether a role has this right: one, where the bearer has several. ``at`` says which counts."""
        return right in RIGHTS[self.role] or any(right in RIGHTS[role] for _, role in self.instead)

    def may_everywhere(self, right: Right) -> bool:
        """Whether it has this right on every cluster."""
        return self.clusters is None and right in RIGHTS[self.role]

    def on_cluster(self, cluster: str) -> "Bearer | None":
        """The same with the role on this cluster alone; None where there is none."""
        if self.clusters is None and not self.instead:
            return self
        role = dict(self.instead).get(cluster)
        if role is None:
            if self.clusters is not None and cluster not in self.clusters:
                return None
            role = self.role
        return Bearer(self.name, role, frozenset({cluster}))

    def restricted_to(self, clusters: frozenset[str] | None) -> "Bearer":
        """The same, but on these clusters alone; None: everywhere."""
        if clusters is None:
            return self
        here = clusters if self.clusters is None else self.clusters & clusters
        return Bearer(self.name, self.role, here, tuple(one for one in self.instead if one[0] in clusters))

    def owns(self, owner: str) -> bool:
        """Whether jobs of ``owner`` (``ann@login1``) are this one's: ``ann`` and ``ann@login1`` own them."""
        return self.name in (owner, owner.partition("@")[0])


def bearer_with_grants(name: str, grants: Iterable[RoleGrant]) -> Bearer | None:
    """Who has these roles, the highest on each cluster; None where there are none."""
    everywhere: Role | None = None
    here: dict[str, Role] = {}
    for grant in grants:
        if not grant.clusters:
            everywhere = _higher(everywhere, grant.role)
        for cluster in grant.clusters:
            here[cluster] = _higher(here.get(cluster), grant.role)
    if everywhere is None:
        return Bearer(name, "user", frozenset(), tuple(here.items())) if here else None
    more = tuple((cluster, role) for cluster, role in here.items() if _RANK[role] > _RANK[everywhere])
    return Bearer(name, everywhere, None, more)


def _higher(one: Role | None, other: Role) -> Role:
    return other if one is None or _RANK[other] > _RANK[one] else one
