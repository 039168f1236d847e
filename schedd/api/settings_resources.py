"""What settings name: tokens, secrets of webhooks, a certificate. Read alike by start, reload and check."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from schedd.api.listening_sockets import tls_context
from schedd.service.access.identity import IdentityProvider
from schedd.service.access.tokens import Tokens
from schedd.service.daemon_services import check_feature_resources
from schedd.service.notifications.webhook_secrets import Webhook, load_webhook
from schedd.service.settings.file import Settings
from schedd.wire.toml_files import SettingsError


@dataclass(frozen=True, slots=True)
class SettingsResources:
    """All of it, ready to be used; ``tls`` is None where there is no certificate."""

    tokens: Tokens
    hooks: Sequence[Webhook]
    tls: ssl.SSLContext | None
    oidc: IdentityProvider | None = None


def load_resources(settings: Settings) -> SettingsResources:
    """What these settings name. Raises SettingsError when anything of it cannot be used."""
    tokens = Tokens.from_settings(settings.auth)
    hooks = [load_webhook(one) for one in settings.webhooks]
    check_feature_resources(settings)
    return SettingsResources(tokens, hooks, tls_context(settings.server), _load_provider(settings))


def _load_provider(settings: Settings) -> IdentityProvider | None:
    if settings.auth.oidc is None:
        return None
    try:
        from schedd.service.access.oidc import create_oidc_provider  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        if error.name != "joserfc":
            raise
        raise SettingsError("auth.oidc needs joserfc: pip install 'schedd[oidc]'") from None
    return create_oidc_provider(settings.auth.oidc)
