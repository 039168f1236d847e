"""Users known by an identity provider's ID token, and their names at each cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schedd.api.problems import ProblemError
from schedd.federation.settings import FederationSettings, ProviderSettings
from schedd.service.access.identity import Identity, IdentityError
from schedd.service.access.roles import Bearer
from schedd.store import Role
from schedd.wire.toml_files import SettingsError

_ROLE_ORDER: tuple[Role, ...] = ("user", "reader", "admin")


@dataclass(frozen=True, slots=True)
class FederationUser(Bearer):
    """A user known to the provider; ``users``: by cluster, the user name there that the token claims."""

    users: Mapping[str, str] = field(default_factory=dict, compare=False)


class FederationUsers:
    """Maps ID tokens to users, by the federation's settings. Needs joserfc."""

    def __init__(self, settings: FederationSettings, provider: ProviderSettings, **more: Any) -> None:
        """``more`` are arguments of ``IdTokens``. Raises SettingsError."""
        from schedd.service.access.oidc import IdTokenVerifier, ca_context  # noqa: PLC0415  (an extra)

        self._provider = provider
        self._claims = {name: one.claim for name, one in settings.clusters.items() if one.claim}
        tls = ca_context(provider, "oidc")
        self._tokens = IdTokenVerifier(provider, tls, claims=sorted(set(self._claims.values())), **more)

    async def authenticate(self, token: str) -> FederationUser:
        """Return the user of an ID token. Raises ProblemError if it is invalid, or the user has no access."""
        try:
            identity = await self._tokens.identity(token)
            owner = self._owner(identity)
        except IdentityError as error:
            if error.ours:
                wait = {"Retry-After": "10"}
                text = f"the identity provider does not answer: {error}"
                raise ProblemError("not-ready", text, headers=wait) from None
            raise ProblemError("no-token", str(error), hint="log in at the provider again") from None
        roles = [
            one.role
            for one in self._provider.grants
            if identity.name in one.users or not identity.groups.isdisjoint(one.groups)
        ]
        if not roles:
            raise ProblemError(
                "no-token",
                f"{owner} has no access: no grant names this user or its groups",
                hint="ask an admin of the federation for a grant ([[oidc.grants]])",
            )
        said = identity.claims
        # A claim that is not a text is not a user name: the user has no account at that cluster.
        users = {
            name: said[path] if isinstance(said[path], str) else ""
            for name, path in self._claims.items()
            if path in said
        }
        return FederationUser(owner, max(roles, key=_ROLE_ORDER.index), users=users)

    def _owner(self, identity: Identity) -> str:
        """USER@REALM. No user name may contain a realm other than those the provider is responsible for."""
        name, realm, claim = identity.name, self._provider.realm, self._provider.user_claim
        user, at, rest = name.partition("@")
        if realm and at:
            raise IdentityError(f"{claim} of the ID token is {name}: a name without @ was expected")
        if not realm and not (user and rest and "@" not in rest):
            raise IdentityError(f"{claim} of the ID token is {name}: USER@REALM was expected")
        return f"{name}@{realm}" if realm else name


def load_federation_users(settings: FederationSettings) -> FederationUsers | None:
    """None where there is no provider. Raises SettingsError."""
    if settings.oidc is None:
        return None
    try:
        return FederationUsers(settings, settings.oidc)
    except ModuleNotFoundError as error:
        if error.name != "joserfc":
            raise
        raise SettingsError("oidc needs joserfc: pip install 'schedd[oidc]'") from None
