"""Users known by an identity provider, and their roles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schedd.service.access.roles import Bearer, RoleGrant, bearer_with_grants
from schedd.service.settings.auth import OidcGrantSettings


class IdentityError(Exception):
    """The user is not identified; ``ours``: the provider is unreachable or answers invalid data."""

    def __init__(self, why: str, *, ours: bool = False) -> None:
        super().__init__(why)
        self.ours = ours


@dataclass(frozen=True, slots=True)
class Identity:
    """A user known by the provider: ``subject`` there, name here, and groups; valid until ``until`` (epoch
    seconds).

    ``claims`` are the additionally requested claims in the token.
    """

    subject: str
    name: str
    groups: frozenset[str]
    until: int
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """Secrets of a login until the browser returns from the provider."""

    state: str
    nonce: str
    verifier: str


class IdentityProvider(Protocol):
    """An identity provider."""

    session: int  # duration of a login, in seconds

    async def begin(self) -> tuple[str, PendingLogin]:
        """Return the login URL for the browser, and the secrets of the login. Raises IdentityError."""
        ...

    async def finish(self, code: str, began: PendingLogin) -> Identity:
        """Return the user after the provider's redirect with a code. Raises IdentityError."""
        ...

    async def identity(self, token: str) -> Identity:
        """Return the user of an ID token. Raises IdentityError."""
        ...

    def cached_identity(self, token: str) -> Identity | None:
        """Return the user of an ID token by the cached keys; None if it is not valid now."""
        ...

    def bearer(self, identity: Identity) -> Bearer | None:
        """Return the user's roles; None if there are none."""
        ...


def bearer_from_grants(identity: Identity, grants: Iterable[OidcGrantSettings]) -> Bearer | None:
    """Return the roles that the grants give to the user or the user's groups; None if there are none."""
    return bearer_with_grants(
        identity.name,
        (
            RoleGrant(one.role, one.clusters)
            for one in grants
            if identity.name in one.users or not identity.groups.isdisjoint(one.groups)
        ),
    )
