"""Bearer tokens: who a request comes from and what that one may do."""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from schedd.service.settings import AuthSettings, SettingsError, TokenRole

__all__ = ["Bearer", "Tokens", "read_token_file"]

_ANONYMOUS: Final = "anonymous"
_SHORTEST: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who asks, and the role."""

    name: str
    role: TokenRole


class Tokens:
    """All tokens that count, by their hashes; the tokens themselves are not kept."""

    def __init__(self, entries: Iterable[tuple[Bearer, bytes]], anonymous: Bearer | None = None) -> None:
        self._entries = tuple(entries)
        self.anonymous = anonymous

    @classmethod
    def of(cls, settings: AuthSettings) -> "Tokens":
        """Those of the configuration and of its token file. Raises SettingsError."""
        entries = [(Bearer(t.name, t.role), bytes.fromhex(t.sha256)) for t in settings.tokens]
        if settings.token_file is not None:
            entries += read_token_file(settings.token_file)
        anonymous = Bearer(_ANONYMOUS, "reader") if settings.anonymous == "reader" else None
        return cls(entries, anonymous)

    def bearer(self, token: str) -> Bearer | None:
        """Whose token this is; None when it is nobody's. A wrong token takes as long as a right one."""
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: Bearer | None = None
        for bearer, digest in self._entries:
            if hmac.compare_digest(given, digest):
                found = bearer
        return found


def read_token_file(path: Path) -> list[tuple[Bearer, bytes]]:
    """The tokens of a file: lines of role, name and token; ``#`` begins a comment.

    Raises SettingsError when it cannot be read, when others have access to it, and for a bad line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(
                    f"{path}: others may have access to it (mode {mode:04o}); chmod 0600 {path}"
                )
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot read the tokens: {error}") from None
    return [
        _entry(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _entry(line: str, where: str) -> tuple[Bearer, bytes]:
    parts = line.split()
    if len(parts) != 3:
        raise SettingsError(f"{where}: expected role, name and token, found {len(parts)} words")
    role, name, token = parts
    roles: tuple[TokenRole, ...] = get_args(TokenRole)
    known = next((one for one in roles if one == role), None)
    if known is None:
        raise SettingsError(f"{where}: no role {role[:20]!r}; there is {', '.join(roles)}")
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{where}: a name has letters, digits, '.', '_', '@' and '-'")
    if len(token) < _SHORTEST:
        raise SettingsError(
            f"{where}: the token of {name} has fewer than {_SHORTEST} characters; "
            "make one with: openssl rand -hex 32"
        )
    return Bearer(name, known), hashlib.sha256(token.encode()).digest()
