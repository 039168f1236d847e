"""What settings name: tokens, secrets of webhooks, a certificate. Read alike by start, reload and check."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from schedd.api.listening_sockets import tls_context
from schedd.service.access.identity import Provider
from schedd.service.access.tokens import Tokens
from schedd.service.outward.relay import relay_of
from schedd.service.outward.webhooks import Hook, hook_of
from schedd.service.settings.file import Settings, SettingsError

__all__ = ["SettingsResources", "load_resources"]


@dataclass(frozen=True, slots=True)
class SettingsResources:
    """All of it, ready to be used; ``tls`` is None where there is no certificate."""

    tokens: Tokens
    hooks: Sequence[Hook]
    tls: ssl.SSLContext | None
    oidc: Provider | None = None


def load_resources(settings: Settings) -> SettingsResources:
    """What these settings name. Raises SettingsError when anything of it cannot be used."""
    tokens = Tokens.of(settings.auth)
    hooks = [hook_of(one) for one in settings.webhooks]
    relay_of(settings.notify)  # who sends reads it again
    return SettingsResources(tokens, hooks, tls_context(settings.server), _load_provider(settings))


def _load_provider(settings: Settings) -> Provider | None:
    if settings.auth.oidc is None:
        return None
    try:
        from schedd.service.access.oidc import provider_of  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        if error.name != "joserfc":
            raise
        raise SettingsError("auth.oidc needs joserfc: pip install 'schedd[oidc]'") from None
    return provider_of(settings.auth.oidc)
