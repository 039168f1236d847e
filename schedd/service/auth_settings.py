"""Settings of who may do what."""

import ipaddress
import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from schedd.service.section import Section
from schedd.store import Role
from schedd.wire.times import Whole

__all__ = [
    "NAME_OF_TOKEN",
    "AuthSettings",
    "GrantSettings",
    "OidcGrantSettings",
    "OidcSettings",
    "TokenSettings",
    "is_secure",
]

NAME_OF_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class TokenSettings(Section):
    """One token, known by its hash."""

    name: str = Field(pattern=f"^{NAME_OF_TOKEN.pattern}$")
    """Who holds it; named in the log for what an admin does."""
    role: Role
    """What it may do: see the table of roles."""
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    """SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`."""
    clusters: tuple[str, ...] = ()
    """It counts on these clusters alone, and the others do not exist for it; empty: on all."""


class GrantSettings(Section):
    """A role of some users (on the UNIX socket, behind a proxy, by MUNGE), on all clusters or on some. Of
    several that name one user the highest counts. Changes count after a reload.
    """

    users: tuple[str, ...] = Field(min_length=1)
    """Who has it, by name."""
    role: Literal["reader", "operator", "admin"]
    """What they may do."""
    clusters: tuple[str, ...] = ()
    """On these clusters alone; empty: on all. Elsewhere they are `user`, as everybody."""


class OidcGrantSettings(Section):
    """What people whom the provider knows may do. Who has no grant is not let in."""

    groups: tuple[str, ...] = ()
    """Whoever is in one of these groups,"""
    users: tuple[str, ...] = ()
    """or has one of these names,"""
    role: Literal["user", "reader", "operator", "admin"]
    """has this role. Of several the highest counts."""
    clusters: tuple[str, ...] = ()
    """On these clusters alone; empty: on all."""

    @model_validator(mode="after")
    def _name_somebody(self) -> Self:
        if not self.groups and not self.users:
            raise ValueError("a grant names groups or users")
        return self


class OidcSettings(Section):
    """Log in with the site's identity provider (OpenID Connect). Changes count after a reload."""

    issuer: str = Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$", max_length=2_000)
    """The provider, as it names itself: `https://id.example.org/realms/hpc`. `http://` on this host alone."""
    client_id: str = Field(min_length=1, max_length=255)
    """The name under which schedd is registered there. ID tokens for others do not count."""
    client_secret_file: Path | None = None
    """File with the client's secret, where the provider gave one. Nobody but the daemon's user may have
    access to it."""
    redirect_url: str = Field(pattern=r"^https?://[^\s?#]+/dashboard/oidc/callback$", max_length=2_000)
    """Where browsers come back, as registered there: `https://HOST/dashboard/oidc/callback`."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """What the provider is asked for; some give groups only for a scope of its own."""
    user_claim: str = Field(default="preferred_username", min_length=1, max_length=255)
    """The claim with the name that owns jobs on the server. Take one that people cannot change themselves."""
    groups_claim: str = Field(default="groups", min_length=1, max_length=255)
    """The claim with the groups; `realm_access.roles` is one within another."""
    ca_file: Path | None = None
    """Certificates (PEM) by which the provider is known; default: those of the system."""
    session: Whole = Field(default=8 * 3600, ge=60, le=12 * 3600)
    """A login to the dashboard lasts so long."""
    grants: tuple[OidcGrantSettings, ...] = ()
    """Who may do what; without any nobody is let in."""

    @field_validator("issuer", "redirect_url")
    @classmethod
    def _encrypt(cls, url: str) -> str:
        if not is_secure(url):
            raise ValueError("only https, or http on this host: tokens would travel unencrypted")
        return url

    @field_validator("scopes")
    @classmethod
    def _be_openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError('"openid" must be among the scopes')
        return scopes


def is_secure(url: str) -> bool:
    """Whether it is https, or http to this host alone."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        local = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = parts.hostname == "localhost"
    return parts.scheme == "http" and local


class AuthSettings(Section):
    """Who may do what over HTTP. Changes count after a reload."""

    token_file: Path | None = None
    """File of tokens, one a line: role, name, token, and clusters if not all. Nobody but the daemon's user
    may have access to it."""
    tokens: tuple[TokenSettings, ...] = ()
    """Tokens by their hashes, in the configuration itself."""
    anonymous: Literal["none", "reader"] = "none"
    """What a request that shows nothing may do: nothing, or read. Health checks and the API's description are
    open in any case."""
    admins: tuple[str, ...] = ()
    """Users (on the UNIX socket, behind a proxy, by MUNGE) with the role `admin`."""
    operators: tuple[str, ...] = ()
    """Users with the role `operator`; all others are `user`."""
    grants: tuple[GrantSettings, ...] = ()
    """Roles on some clusters alone, and the role `reader`: see below."""
    oidc: OidcSettings | None = None
    """The site's identity provider, for the dashboard and the API: see below."""
    others: Literal["server", "all", "none"] = "server"
    """Whether a `user` sees other people's jobs: as the server's `query_other_jobs` says, all, or none."""
    proxy_header: str = Field(default="X-Remote-User", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Header in which a proxy with a token of role `proxy` names the user for whom it asks."""
    munge: bool = False
    """Take `Authorization: Munge CREDENTIAL` (of `munge -s schedd`), where the site's hosts share a key."""
    munge_socket: Path | None = None
    """munged's socket, if it is not where libmunge looks."""
