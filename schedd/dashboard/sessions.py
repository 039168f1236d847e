"""Sessions of users: random session ids in a cookie, and the identity for each.

A session has the digest of its token, which is looked up among the valid tokens at every request: a revoked
or expired token ends its sessions. A session from an identity provider has the user's identity, whose grants
are looked up at every request, too. Sessions exist only in this process; after a restart users log in again.
The id is 256 random bits from which nothing is derived, so it carries no signature.
"""

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schedd.service.access.identity import Identity

COOKIE: Final = "schedd_session"
_LIFETIME_S: Final = 12 * 3600
_MAX_SESSIONS: Final = 10_000
_MAX_PER_TOKEN: Final = 20
"""Maximum number of sessions of one token: a further login ends the oldest of these."""


@dataclass(frozen=True, slots=True)
class DashboardSession:
    """One session. ``csrf`` is in every form that changes something."""

    id: str
    digest: bytes
    csrf: str
    until: float
    identity: Identity | None = None
    """The identity named by the identity provider, for a login without a token."""

    def meant(self, token: str) -> bool:
        """Whether a form with this token comes from a page of this session."""
        return hmac.compare_digest(self.csrf.encode(), token.encode("utf-8", "surrogateescape"))


class Sessions:
    """The open sessions. Of one token, and then of the one with the most, the oldest is given up when there
    are too many. Any thread may ask.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, DashboardSession] = {}
        self._of: dict[bytes, dict[str, None]] = {}
        self._keys: dict[str, bytes] = {}
        self._lasting: set[str] = set()
        self._lock = threading.Lock()

    def open(
        self, digest: bytes, identity: Identity | None = None, life: float = _LIFETIME_S
    ) -> DashboardSession:
        """Create a session of a token (by digest) or of a provider's identity, for ``life`` seconds."""
        until = self._clock() + life
        session = DashboardSession(
            secrets.token_urlsafe(32), digest, secrets.token_urlsafe(32), until, identity
        )
        with self._lock:
            own = self._of.setdefault(digest, {})
            if len(own) >= _MAX_PER_TOKEN:
                self._end(next(iter(own)))
            elif len(self._open) >= _MAX_SESSIONS:
                fullest = max(self._of.values(), key=len)
                self._end(next(iter(fullest)))
            self._open[session.id] = session
            self._of.setdefault(digest, {})[session.id] = None
        return session

    def get(self, session_id: str) -> DashboardSession | None:
        """The session with this id, unless it is over."""
        session = self._open.get(session_id)
        if session is not None and session.until <= self._clock():
            self.close(session_id)
            return None
        return session

    def close(self, session_id: str) -> None:
        with self._lock:
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        session = self._open.pop(session_id, None)
        if session is not None:
            own = self._of[session.digest]
            del own[session_id]
            if not own:
                del self._of[session.digest]

    def admit(self, key: str, digest: bytes, *, lasting: bool = False) -> None:
        """Allow the first request with ``key`` to log in as the holder of the token with this digest; with a
        ``lasting`` key, every request.
        """
        with self._lock:
            self._keys[key] = digest
            if lasting:
                self._lasting.add(key)

    def redeem(self, key: str) -> bytes | None:
        """The digest that a key stands for; None when it was used up before, or never was one."""
        with self._lock:
            shown = key.encode("utf-8", "surrogateescape")
            same = (known for known in self._keys if hmac.compare_digest(known.encode(), shown))
            found = next(same, None)
            if found is None:
                return None
            return self._keys[found] if found in self._lasting else self._keys.pop(found)
