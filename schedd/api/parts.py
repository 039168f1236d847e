"""What settings name: tokens, secrets of webhooks, a certificate. Read alike by start, reload and check."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from schedd.api.listening import tls_context
from schedd.service.settings import Settings
from schedd.service.tokens import Tokens
from schedd.service.webhooks import Hook, hook_of

__all__ = ["Parts", "parts_of"]


@dataclass(frozen=True, slots=True)
class Parts:
    """All of it, ready to be used; ``tls`` is None where there is no certificate."""

    tokens: Tokens
    hooks: Sequence[Hook]
    tls: ssl.SSLContext | None


def parts_of(settings: Settings) -> Parts:
    """What these settings name. Raises SettingsError when anything of it cannot be used."""
    tokens = Tokens.of(settings.auth)
    return Parts(tokens, [hook_of(one) for one in settings.webhooks], tls_context(settings.server))
