"""Webhooks as the settings name them, with their secrets. Module ``webhooks`` sends to them."""

from dataclasses import dataclass
from typing import Final

from schedd.service.settings.daemon import WebhookSettings
from schedd.service.settings.secret_files import read_secret_file
from schedd.wire.toml_files import SettingsError

_SHORTEST: Final = 16  # characters of a secret


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address, the kinds of its notifications, and the secret that signs them."""

    settings: WebhookSettings
    secret: bytes


def load_webhook(settings: WebhookSettings) -> Webhook:
    """The hook with its secret. Raises SettingsError."""
    path = settings.secret_file
    secret = read_secret_file(path, "the webhook's secret").strip()
    if len(secret) < _SHORTEST:
        raise SettingsError(f"{path}: a secret has at least {_SHORTEST} characters; openssl rand -hex 32")
    return Webhook(settings, secret)
