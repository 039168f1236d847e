"""ID tokens: validation, groups and keys, with a provider on loopback that signs them."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from schedd.service.access.identity import Identity, IdentityError

oidc = pytest.importorskip("schedd.service.access.oidc")
joserfc_jwk = pytest.importorskip("joserfc.jwk")
issuer = pytest.importorskip("tests.service.identity_provider")

NAMELESS, NEXT, NOW, SIGNS = issuer.NAMELESS, issuer.NEXT, issuer.NOW, issuer.SIGNS


@pytest.fixture
def provider() -> Iterator[Any]:
    with issuer.running_provider() as made:
        yield made


def identity(client: Any, token: str) -> Identity:
    found = asyncio.run(client.identity(token))
    assert isinstance(found, Identity)
    return found


@pytest.mark.parametrize(
    ("claims", "counts"),
    [
        ({"aud": ["schedd"]}, True),
        ({"aud": ["schedd", "portal"], "azp": "schedd"}, True),
        ({"aud": ["schedd", "portal"], "azp": "portal"}, False),
        ({"aud": ["schedd", "portal"]}, False),
        ({"aud": ["portal", "schedd-test"]}, False),
        ({"aud": []}, False),
        ({"aud": None}, False),
    ],
)
def test_token_with_several_audiences_needs_our_authorized_party(
    provider: Any, claims: dict[str, Any], counts: bool
) -> None:
    client = provider.make_client()
    if counts:
        assert identity(client, provider.token(**claims)).name == "ann"
    else:
        with pytest.raises(IdentityError) as error:
            identity(client, provider.token(**claims))
        assert not error.value.ours


@pytest.mark.parametrize(
    ("moment", "claims", "counts"),
    [
        (NOW + 329, {}, True),  # it ended 29 s ago by our clock
        (NOW + 331, {}, False),
        (NOW - 29, {}, True),  # it is made in 29 s by our clock
        (NOW - 31, {}, False),
        (NOW - 29, {"nbf": NOW}, True),
        (NOW, {"nbf": NOW + 31}, False),
        (NOW, {"exp": None}, False),
    ],
)
def test_half_a_minute_clock_difference_is_tolerated(
    provider: Any, moment: int, claims: dict[str, Any], counts: bool
) -> None:
    client = provider.make_client(moment)
    if counts:
        assert identity(client, provider.token(**claims)).until == NOW + 330
    else:
        with pytest.raises(IdentityError):
            identity(client, provider.token(**claims))


@pytest.mark.parametrize(
    ("path", "claims"),
    [
        ("groups", {"groups": ["/hpc/admins", 7, None]}),
        ("groups", {"groups": "/hpc/admins"}),
        ("resource_access.schedd.roles", {"resource_access": {"schedd": {"roles": ["/hpc/admins"]}}}),
        ("wlcg.groups", {"wlcg.groups": ["/hpc/admins"]}),
        ("https://site.org/groups", {"https://site.org/groups": ["/hpc/admins"]}),
    ],
)
def test_groups_are_read_from_nested_claims(provider: Any, path: str, claims: dict[str, Any]) -> None:
    client = provider.make_client(groups_claim=path)
    bearer = client.bearer(identity(client, provider.token(**claims)))
    assert (bearer.name, bearer.role) == ("ann", "admin")


@pytest.mark.parametrize("groups", [None, 7, {"/hpc/admins": True}, [["/hpc/admins"]], ["/hpc/admins/x"], []])
def test_invalid_groups_claim_gives_no_groups(provider: Any, groups: Any) -> None:
    client = provider.make_client()
    assert client.bearer(identity(client, provider.token(groups=groups))) is None


def test_keys_with_unknown_types_are_skipped(provider: Any) -> None:
    strange: list[Any] = [
        {"kty": "OKP", "crv": "X1", "x": "AA", "kid": "new-curve"},
        {"kid": "without a kind"},
        "nonsense",
        {**NEXT.as_dict(private=False), "use": "enc"},
    ]
    provider.keys = [*strange, SIGNS.as_dict(private=False)]
    client = provider.make_client()
    assert identity(client, provider.token()).name == "ann"
    with pytest.raises(IdentityError, match="signature"):
        identity(client, provider.token(NEXT))  # that one is for encryption
    provider.keys = strange
    with pytest.raises(IdentityError, match="its keys cannot be read") as error:
        identity(provider.make_client(), provider.token())
    assert error.value.ours


def test_single_key_needs_no_key_id(provider: Any) -> None:
    provider.keys = [NAMELESS.as_dict(private=False)]
    assert identity(provider.make_client(), provider.token(NAMELESS)).name == "ann"


def age_metadata(client: Any, seconds: float) -> None:
    """Make the cached metadata older by ``seconds``."""
    about = client._metadata
    client._metadata = oidc._ProviderMetadata(about.authorize, about.token, about.keys, about.then - seconds)


def test_key_rotation_accepts_both_keys_then_only_the_new(provider: Any) -> None:
    client = provider.make_client()
    assert identity(client, provider.token()).name == "ann"
    provider.keys.append(NEXT.as_dict(private=False))
    age_metadata(client, 61)
    assert identity(client, provider.token(NEXT)).name == "ann"
    assert identity(client, provider.token()).name == "ann"
    provider.keys = provider.keys[1:]
    age_metadata(client, 3601)
    with pytest.raises(IdentityError, match="signature"):
        identity(client, provider.token())


def test_cached_keys_are_valid_for_a_day_while_the_provider_is_down(provider: Any) -> None:
    client = provider.make_client()
    token = provider.token()
    identity(client, token)
    provider.down = True
    age_metadata(client, 7200)
    asked = provider.asked
    for _ in range(3):
        assert identity(client, token).name == "ann"
    assert provider.asked == asked + 1  # not once per request
    with pytest.raises(IdentityError) as error:
        identity(client, provider.token(NEXT))  # it may be a new key of the provider
    assert error.value.ours
    age_metadata(client, 24 * 3600)
    with pytest.raises(IdentityError) as error:
        identity(client, token)
    assert error.value.ours
    provider.down = False
    client._failed = None  # after the pause
    assert identity(client, token).name == "ann"
    assert client._failed is None


def test_open_streams_end_with_the_token_and_with_keys_of_a_day(provider: Any) -> None:
    """Streams are checked with the cached keys, which nobody may have renewed."""
    client = provider.make_client()
    token = provider.token()
    assert client.cached_identity(token) is None  # no keys are known yet
    identity(client, token)
    assert client.cached_identity(token).name == "ann"
    client._clock = lambda: NOW + 331
    assert client.cached_identity(token) is None
    client._clock = lambda: NOW
    age_metadata(client, 24 * 3600)
    assert client.cached_identity(token) is None


def test_hanging_provider_is_awaited_once_for_concurrent_requests(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(oidc, "_PAUSE_S", 60.0)
    provider.silent = threading.Event()
    client = provider.make_client()

    async def identify_five_times() -> list[Any]:
        asked = [asyncio.ensure_future(client.identity("a.b.c")) for _ in range(5)]
        return await asyncio.gather(*asked, return_exceptions=True)

    began = time.monotonic()
    said = asyncio.run(identify_five_times())
    provider.silent.set()
    assert all(isinstance(one, IdentityError) and one.ours for one in said)
    assert provider.asked == 1
    # The pause begins when the wait is over: with one as long as the wait, each of them would wait in turn.
    assert client._failed[0] >= began + 0.3
