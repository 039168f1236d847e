"""Authentication of requests: tokens, UNIX users, and users authenticated by a proxy or MUNGE."""

import os
import pwd
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from schedd.service.access.identity import IdentityProvider
from schedd.service.access.munge import decode
from schedd.service.access.rate_limiter import RequestRateLimiter
from schedd.service.access.request_costs import CpuTimeBudgets, RequestCost
from schedd.service.access.roles import Bearer, RoleGrant, bearer_with_grants
from schedd.service.access.tokens import Tokens
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.daemon import LimitSettings
from schedd.store import Role

_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,127}")
_FRESH_S: Final = 300  # cache time of user names by uid: the directory of users may be slow


class UnknownUser(LookupError):
    """A uid without a name on this host, or an invalid user name."""


class Callers:
    """Authenticates and limits callers by the present settings, which ``replace_settings`` changes."""

    def __init__(
        self,
        tokens: Tokens,
        auth: AuthSettings | None = None,
        limits: LimitSettings | None = None,
        oidc: IdentityProvider | None = None,
    ) -> None:
        self.tokens = tokens
        self.auth = auth or AuthSettings()
        self.limits = limits or LimitSettings()
        self.oidc = oidc
        self._rates = RequestRateLimiter()
        self._budgets = CpuTimeBudgets()
        self._names: dict[int, tuple[str, float]] = {}
        self._streams: Counter[str] = Counter()

    def replace_settings(
        self, tokens: Tokens, auth: AuthSettings, limits: LimitSettings, oidc: IdentityProvider | None = None
    ) -> None:
        """Use these settings from now on."""
        tokens.go_on_from(self.tokens)
        self.tokens, self.auth, self.limits, self.oidc = tokens, auth, limits, oidc

    def authenticate_user(self, name: str) -> Bearer:
        """Return the user of this name with its roles. Raises UnknownUser."""
        if not _USER.fullmatch(name):
            raise UnknownUser("the user's name has letters, digits, '.', '_', '@' and '-'")
        auth = self.auth
        if name in auth.admins:
            return Bearer(name, "admin")
        own: Role = "operator" if name in auth.operators else "user"
        grants = (RoleGrant(one.role, one.clusters) for one in auth.grants if name in one.users)
        return bearer_with_grants(name, (RoleGrant(own), *grants)) or Bearer(name, own)

    def authenticate_local(self, uid: int, name: str = "") -> Bearer:
        """Return the user at the other end of the UNIX socket; root and the daemon's own user are admins.

        Without the user's ``name`` it may wait for the directory of users. Raises UnknownUser.
        """
        name = name or self._name(uid)
        return Bearer(name, "admin") if uid in (0, os.geteuid()) else self.authenticate_user(name)

    def authenticate_munge(self, credential: str) -> Bearer:
        """Return the creator of a MUNGE credential. Waits for munged. Raises MungeError and UnknownUser."""
        return self.authenticate_user(self._name(decode(credential, self.auth.munge_socket)))

    def count_request(self, caller: Bearer, address: str) -> float:
        """Count a request; return the seconds to wait before it is allowed, 0 if it is allowed now."""
        if caller.role == "user":
            return self._consume_token(("user", caller.name), self.limits.user_rate)
        if caller is self.tokens.anonymous:
            return self._consume_token(("address", address), self.limits.user_rate)
        return self._consume_token((caller.role, caller.name), self.limits.token_rate)

    def cost_key(self, caller: Bearer, address: str) -> str:
        """Return the key for counting the caller's streams and processor time; empty: not counted."""
        if caller is self.tokens.anonymous:
            return f"address {address}"
        return f"user {caller.name}" if caller.role == "user" else ""

    def cost_wait_s(self, payer: str) -> float:
        """Return the seconds until this budget is no longer overdrawn; 0 if it is not."""
        rate = self.limits.user_cpu
        return self._budgets.wait_s(payer, rate, time.monotonic()) if payer and rate else 0.0

    def charge_cost(self, cost: RequestCost) -> None:
        """Charge the cost of a request to its budget."""
        if rate := self.limits.user_cpu:
            self._budgets.spend(cost.key, cost.seconds, rate, time.monotonic())

    def count_refused(self, address: str) -> float:
        """Count a request from ``address`` without a valid credential; return the seconds to wait."""
        return self._consume_token(("refused", address), self.limits.refused_rate)

    def may_stream(self, caller: Bearer, address: str) -> bool:
        """Whether the caller may open another event stream."""
        return self._streams[self.cost_key(caller, address)] < self.limits.streams

    @contextmanager
    def streaming(self, caller: Bearer, address: str) -> Iterator[None]:
        """Count an event stream for the duration of the block."""
        key = self.cost_key(caller, address)
        self._streams[key] += bool(key)
        try:
            yield
        finally:
            self._streams[key] -= bool(key)
            if not self._streams[key]:
                del self._streams[key]

    def _consume_token(self, key: tuple[str, str], rate: float) -> float:
        return self._rates.consume_token(key, rate, time.monotonic()) if rate else 0.0

    def _name(self, uid: int) -> str:
        name, then = self._names.get(uid, ("", 0.0))
        if name and time.monotonic() < then + _FRESH_S:
            return name
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            raise UnknownUser(f"uid {uid} has no name on this host") from None
        self._names[uid] = (name, time.monotonic())
        return name
