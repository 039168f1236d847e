"""Settings of who may do what."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from schedd.service.section import Section
from schedd.store import Role

__all__ = ["NAME_OF_TOKEN", "AuthSettings", "GrantSettings", "TokenSettings"]

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
    others: Literal["server", "all", "none"] = "server"
    """Whether a `user` sees other people's jobs: as the server's `query_other_jobs` says, all, or none."""
    proxy_header: str = Field(default="X-Remote-User", pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    """Header in which a proxy with a token of role `proxy` names the user for whom it asks."""
    munge: bool = False
    """Take `Authorization: Munge CREDENTIAL` (of `munge -s schedd`), where the site's hosts share a key."""
    munge_socket: Path | None = None
    """munged's socket, if it is not where libmunge looks."""
