"""Webhooks as the settings name them, with their secrets. What is sent to them is in ``webhooks``."""

import os
import stat
from dataclasses import dataclass
from typing import Final

from schedd.service.settings.file import SettingsError, WebhookSettings

__all__ = ["Webhook", "load_webhook"]

_SHORTEST: Final = 16
"""Characters of a secret."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where to tell of what, and the secret that signs."""

    settings: WebhookSettings
    secret: bytes


def load_webhook(settings: WebhookSettings) -> Webhook:
    """The hook with its secret. Raises SettingsError."""
    path = settings.secret_file
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(
                    f"{path}: others may have access to it (mode {mode:04o}); chmod 0600 {path}"
                )
            secret = file.read().strip()
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the webhook's secret: {error}") from None
    if len(secret) < _SHORTEST:
        raise SettingsError(f"{path}: a secret has at least {_SHORTEST} characters; openssl rand -hex 32")
    return Webhook(settings, secret)
