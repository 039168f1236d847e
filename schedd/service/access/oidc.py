"""OpenID Connect: the authorisation code flow with PKCE, and ID tokens as credentials of the API.

OpenID Connect Core 1.0 §3.1, Discovery 1.0 §4, RFC 7636 (PKCE, S256). joserfc checks signatures and claims.
Only asymmetric algorithms are accepted; issuer, audience and expiry are required and checked, for a login
also the nonce.
"""

import asyncio
import base64
import hashlib
import hmac
import math
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2
import structlog
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import KeySet, KeySetSerialization

from schedd.error_text import describe_error
from schedd.service.access.identity import Identity, IdentityError, PendingLogin, bearer_from_grants
from schedd.service.access.roles import Bearer
from schedd.service.settings.auth import IdTokenSettings, OidcSettings, is_secure
from schedd.service.settings.secret_files import read_secret_text
from schedd.wire.toml_files import SettingsError

_log = structlog.get_logger(__name__)
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
_LEEWAY_S: Final = 30  # tolerated clock difference
_FRESH_S: Final = 3600.0  # cache time of the provider's metadata
_KEPT_S: Final = 24 * 3600.0
"""Cache time of its keys while the provider is unreachable, so that an outage does not lock users out."""
_AGAIN_S: Final = 60.0  # minimum age of the cached keys before an unknown key triggers a new fetch
_PAUSE_S: Final = 10.0  # minimum time between a failed request to the provider and the next one
_TIMEOUT_S: Final = 10.0
_MOST: Final = 1 << 20  # maximum size of an answer, in bytes
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,127}")


@dataclass(frozen=True, slots=True)
class _ProviderMetadata:
    """The provider's endpoints and keys, fetched at ``then`` (monotonic)."""

    authorize: str
    token: str
    keys: KeySet
    then: float
    basic: bool = True  # it accepts the client's secret in a header, not only in the form


class IdTokenVerifier:
    """Verifies ID tokens of the configured provider, which is contacted on first use.

    ``claims`` are included in each identity, in addition to name and groups.
    """

    def __init__(
        self,
        settings: IdTokenSettings,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        claims: Iterable[str] = (),
    ) -> None:
        self._token_settings = settings
        self._tls = tls
        self._clock = clock
        self._claims = tuple(claims)
        self._metadata: _ProviderMetadata | None = None
        self._failed: tuple[float, str] | None = None
        self._lock = asyncio.Lock()

    async def identity(self, token: str) -> Identity:
        """Return the user of an ID token. Raises IdentityError."""
        return await self._identity(token, None)

    def cached_identity(self, token: str) -> Identity | None:
        """Return the user of an ID token by the cached keys; None if it is not valid now, or if the keys are
        too old.
        """
        if self._metadata is None or time.monotonic() >= self._metadata.then + _KEPT_S:
            return None
        try:
            return self._read(token, self._metadata.keys, None)
        except IdentityError:
            return None

    async def _identity(self, token: str, nonce: str | None) -> Identity:
        about = await self._provider_metadata()
        try:
            return self._read(token, about.keys, nonce)
        except _BadSignature:
            # The provider may have a new key. Invalid tokens trigger at most one fetch per minute.
            if time.monotonic() < about.then + _AGAIN_S:
                raise
        about = await self._provider_metadata(newer_than=about.then)
        return self._read(token, about.keys, nonce)

    def _read(self, token: str, keys: KeySet, nonce: str | None) -> Identity:
        try:
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _BadSignature(f"the ID token's signature does not count: {error}") from None
        asked = self._token_settings
        registry = jwt.JWTClaimsRegistry(
            now=int(self._clock()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": asked.issuer},
            aud={"essential": True, "value": asked.client_id},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            registry.validate(claims)
        except ExpiredTokenError:
            raise IdentityError("the ID token is expired") from None
        except (JoseError, ValueError, TypeError) as error:
            raise IdentityError(f"the ID token does not count: {error}") from None
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if several and claims.get("azp") != asked.client_id:
            raise IdentityError("the ID token was made for another program")
        if nonce is not None:
            given = claims.get("nonce")
            if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
                raise IdentityError("the ID token is of another login")
        return self._identity_from_claims(claims)

    def _identity_from_claims(self, claims: Mapping[str, Any]) -> Identity:
        asked = self._token_settings
        name = _claim(claims, asked.user_claim)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise IdentityError(f"the ID token has no user's name in {asked.user_claim}")
        groups = _claim(claims, asked.groups_claim)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        names = frozenset(one for one in listed if isinstance(one, str))
        more = {path: found for path in self._claims if (found := _claim(claims, path)) is not None}
        return Identity(str(claims["sub"]), name, names, int(claims["exp"]) + _LEEWAY_S, more)

    async def _provider_metadata(self, newer_than: float = -math.inf) -> _ProviderMetadata:
        """Return metadata fetched after ``newer_than``. Raises IdentityError."""
        async with self._lock:
            about = self._metadata
            now = time.monotonic()
            if about is not None and about.then > newer_than and now < about.then + _FRESH_S:
                return about
            if self._failed is None or now >= self._failed[0] + _PAUSE_S:
                try:
                    self._metadata = await self._discover()
                except IdentityError as error:
                    # The time of the failure: requests that waited for the same timeout must not wait again.
                    self._failed = (time.monotonic(), str(error))
                    _log.warning("the identity provider cannot be asked", why=str(error))
                else:
                    self._failed = None
                    return self._metadata
            if about is not None and about.then > newer_than and now < about.then + _KEPT_S:
                return about
            raise IdentityError(self._failed[1], ours=True)

    async def _discover(self) -> _ProviderMetadata:
        issuer = self._token_settings.issuer
        found = await self._fetch("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise IdentityError(f"{issuer} says that it is {str(found.get('issuer'))[:200]!r}", ours=True)
        places = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            place = found.get(name)
            if not isinstance(place, str) or not is_secure(place):
                raise IdentityError(f"{issuer} has no https address as its {name}", ours=True)
            places[name] = place
        known = _keys(issuer, await self._fetch("GET", places["jwks_uri"]))
        ways = found.get("token_endpoint_auth_methods_supported")
        basic = not isinstance(ways, list) or "client_secret_basic" in ways
        leave, token = places["authorization_endpoint"], places["token_endpoint"]
        return _ProviderMetadata(leave, token, known, time.monotonic(), basic)

    async def _fetch(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        basic: tuple[str, str] | None = None,
    ) -> dict[str, Any]:
        verify: ssl.SSLContext | bool = self._tls or True
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async with httpx2.AsyncClient(verify=verify, follow_redirects=False) as client:
                    answer = await client.request(
                        method,
                        url,
                        data=dict(form) if form else None,
                        auth=basic,
                        headers={"Accept": "application/json"},
                    )
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            raise IdentityError(
                f"{_display_url(url)} does not answer: {describe_error(error)}", ours=True
            ) from None
        if len(answer.content) > _MOST:
            raise IdentityError(f"{_display_url(url)} answers with more than {_MOST} bytes", ours=True)
        try:
            found = answer.json()
        except ValueError:
            found = None
        if answer.status_code != 200:
            said = found.get("error") if isinstance(found, dict) else None
            refused = method == "POST" and answer.status_code in (400, 401)
            words = f"{_display_url(url)} answered {answer.status_code}" + (f" ({said})" if said else "")
            raise IdentityError(words, ours=not refused)
        if not isinstance(found, dict):
            raise IdentityError(f"{_display_url(url)} answered no JSON object", ours=True)
        return found


class OidcProvider(IdTokenVerifier):
    """A provider that also logs users in to the dashboard."""

    def __init__(
        self,
        settings: OidcSettings,
        secret: str = "",
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, tls, clock)
        self._settings = settings
        self._secret = secret
        self.session = settings.session

    async def begin(self) -> tuple[str, PendingLogin]:
        """Return the login URL for the browser, and the secrets of the login. Raises IdentityError."""
        about = await self._provider_metadata()
        began = PendingLogin(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        digest = hashlib.sha256(began.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": began.state,
            "nonce": began.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(about.authorize).query else "?"
        return f"{about.authorize}{joint}{urlencode(asked)}", began

    async def finish(self, code: str, began: PendingLogin) -> Identity:
        """Return the user after the provider's redirect with a code. Raises IdentityError."""
        about = await self._provider_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect_url,
            "code_verifier": began.verifier,
        }
        basic = None
        if self._secret and about.basic:
            # RFC 6749 §2.3.1: both are form-encoded first.
            basic = (quote_plus(self._settings.client_id), quote_plus(self._secret))
        else:
            form["client_id"] = self._settings.client_id
            if self._secret:
                form["client_secret"] = self._secret
        found = await self._fetch("POST", about.token, form, basic)
        token = found.get("id_token")
        if not isinstance(token, str):
            raise IdentityError("the provider's answer has no ID token", ours=True)
        return await self._identity(token, began.nonce)

    def bearer(self, identity: Identity) -> Bearer | None:
        """Return the user's roles; None if there are none."""
        return bearer_from_grants(identity, self._settings.grants)


class _BadSignature(IdentityError):
    """The signature may be made with a key that is not in the cache."""


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim; if there is no such name, a nested claim: ``realm_access.roles``."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _keys(issuer: str, found: Mapping[str, Any]) -> KeySet:
    """Return the provider's signing keys; unsupported ones are skipped (RFC 7517 §5)."""
    listed = found.get("keys")
    known, why = [], "it has none"
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        try:
            known += KeySet.import_key_set(cast("KeySetSerialization", {"keys": [one]})).keys
        except (JoseError, ValueError, TypeError, KeyError) as error:
            why = str(error)
    if not known:
        raise IdentityError(f"{issuer}: its keys cannot be read: {why}", ours=True)
    return KeySet(known)


def _display_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def ca_context(settings: IdTokenSettings, where: str) -> ssl.SSLContext | None:
    """Return a TLS context with the CA certificates for the provider; None: the system's.

    Raises SettingsError with ``where``, the name of the settings table.
    """
    if settings.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(settings.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{where}.ca_file: {settings.ca_file}: {error}") from None


def create_oidc_provider(settings: OidcSettings) -> OidcProvider:
    """Create the provider with the client's secret. Raises SettingsError."""
    tls = ca_context(settings, "auth.oidc")
    secret = ""
    path = settings.client_secret_file
    if path is not None:
        secret = read_secret_text(path, "the client's secret").strip()
        if not secret:
            raise SettingsError(f"{path}: there is no secret in it")
    return OidcProvider(settings, secret, tls)
