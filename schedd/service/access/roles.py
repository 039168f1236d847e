"""Roles and their rights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from schedd.store import Role

Right = Literal["ask", "see all", "exchange", "steer", "administer", "transfer jobs"]
"""``ask``: read and ask questions; ``see all``: see every job in full; ``exchange``: send events, read
decisions; ``steer``: pause, resume, reserve; ``hand over``: have jobs submitted in their users' names;
``administer``: everything else that changes the daemon."""

RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    "user": frozenset({"ask"}),
    "reader": frozenset({"ask", "see all"}),
    "operator": frozenset({"ask", "see all", "steer"}),
    "adapter": frozenset({"ask", "see all", "exchange"}),
    "admin": frozenset({"ask", "see all", "exchange", "steer", "administer", "transfer jobs"}),
    "federation": frozenset({"ask", "see all", "transfer jobs"}),
    "proxy": frozenset(),  # no rights of its own: it names the user of each request
}


_RANK: Final[Mapping[Role, int]] = {"user": 0, "reader": 1, "operator": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role on these ``clusters`` (empty: on all)."""

    role: Role
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bearer:
    """A caller with its role. The name of a ``user`` is the owner's name of its jobs on the server.

    The role is valid on ``clusters`` (None: all), except for the clusters with another role in ``instead``.
    """

    name: str
    role: Role
    clusters: frozenset[str] | None = None
    instead: tuple[tuple[str, Role], ...] = ()

    def may(self, right: Right) -> bool:
        """Whether any of the roles has this right; see ``on_cluster`` for a single cluster."""
        return right in RIGHTS[self.role] or any(right in RIGHTS[role] for _, role in self.instead)

    def may_everywhere(self, right: Right) -> bool:
        """Whether the right applies to every cluster."""
        return self.clusters is None and right in RIGHTS[self.role]

    def on_cluster(self, cluster: str) -> "Bearer | None":
        """Return the caller with its role on this cluster; None without one."""
        if self.clusters is None and not self.instead:
            return self
        role = dict(self.instead).get(cluster)
        if role is None:
            if self.clusters is not None and cluster not in self.clusters:
                return None
            role = self.role
        return Bearer(self.name, role, frozenset({cluster}))

    def restricted_to(self, clusters: frozenset[str] | None) -> "Bearer":
        """Return the caller restricted to these clusters; None: no restriction."""
        if clusters is None:
            return self
        here = clusters if self.clusters is None else self.clusters & clusters
        return Bearer(self.name, self.role, here, tuple(one for one in self.instead if one[0] in clusters))

    def owns(self, owner: str) -> bool:
        """Whether ``owner`` (``ann@login1``) is this caller, named ``ann`` or ``ann@login1``."""
        return self.name in (owner, owner.partition("@")[0])


def bearer_with_grants(name: str, grants: Iterable[RoleGrant]) -> Bearer | None:
    """Return the caller with these roles, on each cluster the highest; None without grants."""
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
