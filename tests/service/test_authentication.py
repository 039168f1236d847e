"""Authentication: tokens of the store, users by name, and rate limits."""

import hashlib
import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.service.access.callers import Callers, UnknownUser
from schedd.service.access.rate_limiter import RequestRateLimiter
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.daemon import LimitSettings
from schedd.store import Store, Token


def test_stored_tokens_are_valid_until_revoked_or_expired(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    tokens = Tokens((), complete=False)
    good, old = store.add_token("portal", "reader", 1), store.add_token("old", "admin", 1, 2)
    assert tokens.bearer(good) is None
    tokens.set_stored(store.tokens())
    assert tokens.complete
    assert tokens.bearer(good) == Bearer("portal", "reader")
    assert tokens.bearer(old) is None
    assert tokens.bearer(good + "x") is None
    store.revoke_token(store.tokens()[0].id, 9)
    tokens.set_stored(store.tokens())
    assert tokens.bearer(good) is None
    store.close()


def test_only_tokens_with_a_stored_digest_are_valid() -> None:
    tokens = Tokens([(Bearer("a", "admin"), hashlib.sha256(b"x" * 32).digest())])
    tokens.set_stored([Token(1, hashlib.sha256(b"y" * 32).digest(), "b", "reader", 1, None, None)])
    assert tokens.bearer("x" * 32) == Bearer("a", "admin")
    assert tokens.bearer("y" * 32) == Bearer("b", "reader")
    for digest in (hashlib.sha256(b"x" * 32).hexdigest(), "y" * 31, "\udcff"):
        assert tokens.bearer(digest) is None


def test_users_get_their_configured_role() -> None:
    callers = Callers(Tokens(()), AuthSettings(admins=("ann",), operators=("bob",)))
    assert [callers.authenticate_user(name).role for name in ("ann", "bob", "eve", "root")] == [
        *("admin", "operator", "user", "user")
    ]
    for name in ("", "a b", "a\nb", "-x", "x" * 200, "é"):
        with pytest.raises(UnknownUser):
            callers.authenticate_user(name)


def test_root_and_the_daemons_user_are_admins_on_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    callers = Callers(Tokens(()))
    assert callers.authenticate_local(0) == Bearer("root", "admin")
    daemon = next(entry for entry in pwd.getpwall() if entry.pw_uid)
    assert callers.authenticate_local(daemon.pw_uid) == Bearer(daemon.pw_name, "user")
    monkeypatch.setattr(os, "geteuid", lambda: daemon.pw_uid)
    assert callers.authenticate_local(daemon.pw_uid) == Bearer(daemon.pw_name, "admin")
    with pytest.raises(UnknownUser, match="has no name"):
        callers.authenticate_local(4_000_000_000)


@given(
    rate=st.floats(0.5, 100), gaps=st.lists(st.floats(0, 2), min_size=1, max_size=200), keys=st.integers(1, 3)
)
def test_rate_limiter_grants_at_most_the_rate_plus_two_seconds(
    rate: float, gaps: list[float], keys: int
) -> None:
    rates, now, granted = RequestRateLimiter(), 0.0, [0] * keys
    for i, gap in enumerate(gaps):
        now += gap
        wait = rates.consume_token(i % keys, rate, now)
        granted[i % keys] += not wait
        if wait:
            # The returned wait is accurate.
            assert rates.consume_token(i % keys, rate, now + wait * 1.001 + 1e-9) == 0
            now += wait * 1.001 + 1e-9
            granted[i % keys] += 1
    assert all(count <= max(1, 2 * rate) + rate * now + 1e-6 for count in granted)


def test_least_recently_used_buckets_are_dropped() -> None:
    rates = RequestRateLimiter(most=10)
    for key in range(100):
        rates.consume_token(key, 1, 0.0)
    assert len(rates._buckets) == 10


def test_rate_0_means_unlimited_and_users_have_separate_limits() -> None:
    callers = Callers(Tokens(()), limits=LimitSettings(user_rate=1, token_rate=0))
    ann, bob = Bearer("ann", "user"), Bearer("bob", "user")
    assert [bool(callers.count_request(ann, "h")) for _ in range(3)] == [False, False, True]
    assert not callers.count_request(bob, "h")
    assert not any(callers.count_request(Bearer("p", "reader"), "h") for _ in range(99))
