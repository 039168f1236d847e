"""API tokens of the settings, the token file and the store."""

import hashlib
import hmac
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from schedd.access_tokens import NAME_OF_TOKEN
from schedd.service.access.roles import Bearer
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.secret_files import read_secret_text
from schedd.store import Role, Token
from schedd.wire.toml_files import SettingsError

_ANONYMOUS: Final = "anonymous"
_SHORTEST: Final = 16


class Tokens:
    """All valid tokens by their digests; the tokens themselves are not kept.

    ``complete`` is False until the store's tokens are known: till then a token cannot be rejected as unknown.
    """

    def __init__(
        self,
        entries: Iterable[tuple[Bearer, bytes]],
        anonymous: Bearer | None = None,
        *,
        complete: bool = True,
    ) -> None:
        self._configured = {digest: bearer for bearer, digest in entries}
        self._kept: dict[bytes, Token] = {}
        self.anonymous = anonymous
        self.complete = complete

    @classmethod
    def from_settings(cls, settings: AuthSettings, *, complete: bool = True) -> "Tokens":
        """Return the tokens of the settings and of the token file. Raises SettingsError."""
        entries = [
            (Bearer(t.name, t.role, _scope(t.clusters)), bytes.fromhex(t.sha256)) for t in settings.tokens
        ]
        if settings.token_file is not None:
            entries += read_token_file(settings.token_file)
        anonymous = Bearer(_ANONYMOUS, "reader") if settings.anonymous == "reader" else None
        return cls(entries, anonymous, complete=complete)

    def bearer(self, token: str) -> Bearer | None:
        """Return the holder of a token; None if it is unknown, expired or revoked."""
        return self.holder(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())

    def holder(self, given: bytes) -> Bearer | None:
        """Return the holder of the token with this SHA-256; None if it is unknown, expired or revoked.

        The search is by digest, and digests are compared in constant time, so that its duration reveals
        nothing about existing tokens.
        """
        kept = self._kept.get(given)
        if kept is not None and kept.valid(int(time.time())) and hmac.compare_digest(kept.digest, given):
            return Bearer(kept.name, kept.role, _scope(kept.clusters))
        for digest, bearer in self._configured.items():
            if hmac.compare_digest(digest, given):
                return bearer
        return None

    def has_expired(self, token: str) -> bool:
        """Return whether a token that is not valid was valid until a time in the past."""
        kept = self._kept.get(hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest())
        return kept is not None and not kept.valid(int(time.time()))

    def set_stored(self, tokens: Iterable[Token]) -> None:
        """Replace the store's tokens."""
        self._kept = {token.digest: token for token in tokens if token.revoked is None}
        self.complete = True

    def go_on_from(self, before: "Tokens") -> None:
        """Know the store's tokens that ``before`` knew."""
        self._kept, self.complete = before._kept, before.complete  # noqa: SLF001  (of the same class)

    def __len__(self) -> int:
        return len(self._configured) + len(self._kept)


def read_token_file(path: Path, roles: tuple[Role, ...] = get_args(Role)) -> list[tuple[Bearer, bytes]]:
    """Read the tokens of a file: lines of role, name, token, and optionally clusters (a,b); ``#``: comment.

    Raises SettingsError if it cannot be read, if other users have access to it, and for a bad line, such as
    one with a role that is not in ``roles``.
    """
    lines = read_secret_text(path, "the tokens").splitlines()
    return [
        _entry(line, f"{path}, line {number}", roles)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _entry(line: str, where: str, roles: tuple[Role, ...]) -> tuple[Bearer, bytes]:
    parts = line.split()
    if len(parts) not in (3, 4):
        raise SettingsError(
            f"{where}: expected role, name and token (and clusters, as in a,b), found {len(parts)} words"
        )
    role, name, token = parts[:3]
    clusters = tuple(parts[3].split(",")) if len(parts) > 3 else ()
    if not all(clusters):
        raise SettingsError(f"{where}: {parts[3][:80]!r}: clusters stand with single commas between them")
    known = next((one for one in roles if one == role), None)
    if known is None:
        raise SettingsError(f"{where}: no role {role[:20]!r}; there is {', '.join(roles)}")
    if not NAME_OF_TOKEN.fullmatch(name):
        raise SettingsError(f"{where}: a name has letters, digits, '.', '_', '@' and '-'")
    if len(token) < _SHORTEST:
        raise SettingsError(
            f"{where}: the token of {name} has fewer than {_SHORTEST} characters; "
            "make one with: openssl rand -hex 32"
        )
    return Bearer(name, known, _scope(clusters)), hashlib.sha256(token.encode()).digest()


def _scope(clusters: Iterable[str]) -> frozenset[str] | None:
    return frozenset(clusters) or None
