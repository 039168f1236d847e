"""Settings of authentication and roles."""

import ipaddress
import re
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from schedd.access_tokens import NAME_OF_TOKEN, Role
from schedd.wire.section import Section
from schedd.wire.times import Whole


class TokenSettings(Section):
    """One token, given by its hash."""

    name: str = Field(pattern=f"^{NAME_OF_TOKEN.pattern}$")
    """Name of its holder; the log names it for admins' acts."""
    role: Role
    """Its role: see the table of roles."""
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    """SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`."""
    clusters: tuple[str, ...] = ()
    """Valid on these clusters only; for it, the others do not exist. Empty: all clusters."""


class GrantSettings(Section):
    """A role for some users (known by the UNIX socket, a proxy or MUNGE), on all clusters or on some. If
    several name one user, the highest role counts. Changes apply after a reload.
    """

    users: tuple[str, ...] = Field(min_length=1)
    """Names of the users."""
    role: Literal["reader", "operator", "admin"]
    """Their role."""
    clusters: tuple[str, ...] = ()
    """Valid on these clusters only; empty: all clusters. Elsewhere they have the role `user`."""


class OidcGrantSettings(Section):
    """Permissions of users known to the provider. Users without a grant are not let in."""

    groups: tuple[str, ...] = ()
    """Groups: their members have the role."""
    users: tuple[str, ...] = ()
    """Names of users with the role."""
    role: Literal["user", "reader", "operator", "admin"]
    """The role. Of several grants the highest role counts."""
    clusters: tuple[str, ...] = ()
    """Valid on these clusters only; empty: all clusters."""

    @model_validator(mode="after")
    def _name_somebody(self) -> Self:
        if not self.groups and not self.users:
            raise ValueError("a grant names groups or users")
        return self


class IdTokenSettings(Section):
    """An identity provider that authenticates users by ID tokens (OpenID Connect)."""

    issuer: str = Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$", max_length=2_000)
    """The provider's own URL: `https://id.example.org/realms/hpc`. `http://` only on this host."""
    client_id: str = Field(min_length=1, max_length=255)
    """schedd's id at the provider. ID tokens for other clients are refused."""
    user_claim: str = Field(default="preferred_username", min_length=1, max_length=255)
    """Claim with the user name that owns jobs on the server. Users must not be able to change it."""
    groups_claim: str = Field(default="groups", min_length=1, max_length=255)
    """Claim with the groups; `realm_access.roles` is a claim within another."""
    ca_file: Path | None = None
    """CA certificates (PEM) for the provider; default: the system's."""

    @field_validator("issuer", "redirect_url", check_fields=False)
    @classmethod
    def _encrypt(cls, url: str) -> str:
        if not is_secure(url):
            raise ValueError("only https, or http on this host: tokens would travel unencrypted")
        return url


class OidcSettings(IdTokenSettings):
    """Login with the site's identity provider (OpenID Connect). Changes apply after a reload."""

    client_secret_file: Path | None = None
    """File with the client secret, if the provider gave one. Only the daemon's user may have access to it."""
    redirect_url: str = Field(pattern=r"^https?://[^\s?#]+/dashboard/oidc/callback$", max_length=2_000)
    """The browsers' return address, as registered at the provider:
    `https://HOST/dashboard/oidc/callback`."""
    scopes: tuple[str, ...] = ("openid", "profile")
    """Scopes to request; some providers send groups only with a scope of their own."""
    session: Whole = Field(default=8 * 3600, ge=60, le=12 * 3600)
    """Duration of a login to the dashboard."""
    grants: tuple[OidcGrantSettings, ...] = ()
    """Permissions of users; without grants no user is let in."""

    @field_validator("scopes")
    @classmethod
    def _be_openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes:
            raise ValueError('"openid" must be among the scopes')
        return scopes


def is_secure(url: str) -> bool:
    """Whether the URL uses https, or http to this host only."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        local = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = parts.hostname == "localhost"
    return parts.scheme == "http" and local


_ORIGIN: Final = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")


class AuthSettings(Section):
    """Permissions over HTTP. Changes apply after a reload."""

    token_file: Path | None = None
    """File of tokens, one per line: role, name, token, and clusters if not all. Only the daemon's user may
    have access to it."""
    tokens: tuple[TokenSettings, ...] = ()
    """Tokens given by their hashes in this file."""
    anonymous: Literal["none", "reader"] = "none"
    """What requests without credentials may do: nothing, or read. Health checks and the API description are
    always open."""
    admins: tuple[str, ...] = ()
    """Users with the role `admin`, known by the UNIX socket, a proxy or MUNGE."""
    operators: tuple[str, ...] = ()
    """Users with the role `operator`; all others have the role `user`."""
    grants: tuple[GrantSettings, ...] = ()
    """Roles on some clusters only, and the role `reader`: see below."""
    oidc: OidcSettings | None = None
    """The site's identity provider, for dashboard and API: see below."""
    others: Literal["server", "all", "none"] = "server"
    """Whether the role `user` sees other users' jobs: as the server's `query_other_jobs` says, all, or
    none."""
    proxy_header: str = Field(default="X-Remote-User", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Header with the user's name from a proxy with a token of role `proxy`."""
    munge: bool = False
    """Accept `Authorization: Munge CREDENTIAL` (from `munge -s schedd`), if the site's hosts share a key."""
    munge_socket: Path | None = None
    """Socket of munged, if it is not at libmunge's default path."""
    frame_origins: tuple[str, ...] = ()
    """Origins of portals that may show `/dashboard/framed-jobs` in a frame:
    `["https://portal.example.org"]`. Empty: none. All other pages are never shown in frames."""

    @field_validator("frame_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin: give scheme, host and port without a path, such as "
                    "https://portal.example.org"
                )
        return origins
