"""Who somebody is by the word of an identity provider, and what the site lets such people do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schedd.service.access.roles import Bearer, RoleGrant, bearer_with_grants
from schedd.service.settings.auth import OidcGrantSettings

__all__ = ["Identity", "IdentityError", "IdentityProvider", "PendingLogin", "bearer_from_grants"]


class IdentityError(Exception):
    """It is not known who that is; ``ours``: since the provider cannot be asked, or answers nonsense."""

    def __init__(self, why: str, *, ours: bool = False) -> None:
        super().__init__(why)
        self.ours = ours


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody whom the provider knows: the ``subject`` there, the name here, and groups, until ``until``
    (seconds since the epoch). ``claims`` are others that were asked for, as far as the token has them.
    """

    subject: str
    name: str
    groups: frozenset[str]
    until: int
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login that began: what only this daemon knows of it until the browser comes back."""

    state: str
    nonce: str
    verifier: str


class IdentityProvider(Protocol):
    """An identity provider, as the daemon asks it."""

    session: int
    """Seconds that a login lasts."""

    async def begin(self) -> tuple[str, PendingLogin]:
        """Where a browser is to go for a login, and what is to be remembered. Raises IdentityError."""
        ...

    async def finish(self, code: str, began: PendingLogin) -> Identity:
        """Who comes back from there with a code. Raises IdentityError."""
        ...

    async def identity(self, token: str) -> Identity:
        """Whose ID token this is. Raises IdentityError."""
        ...

    def cached_identity(self, token: str) -> Identity | None:
        """The same by the keys at hand; None where it does not count now."""
        ...

    def bearer(self, identity: Identity) -> Bearer | None:
        """What this one may do here; None: nothing."""
        ...


def bearer_from_grants(identity: Identity, grants: Iterable[OidcGrantSettings]) -> Bearer | None:
    """The roles that the grants give; None where no grant names this one or a group of theirs."""
    return bearer_with_grants(
        identity.name,
        (
            RoleGrant(one.role, one.clusters)
            for one in grants
            if identity.name in one.users or not identity.groups.isdisjoint(one.groups)
        ),
    )
