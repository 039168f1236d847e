"""The site's mail relay: address, TLS and login."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from schedd.features.notices.daemon_settings import NotifySettings
from schedd.service.settings.secret_files import read_secret_text
from schedd.wire.toml_files import SettingsError


@dataclass(frozen=True, slots=True)
class MailRelay:
    """Mail relay of the site. ``tls``: None for unencrypted mail; ``user``: empty if the relay needs no
    login.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""


def load_relay(settings: NotifySettings) -> MailRelay | None:
    """Return the relay with its password; None if none is configured. Raises SettingsError."""
    host, _, port = settings.relay.rpartition(":")
    if not host:
        return None
    tls = None
    if settings.starttls:
        try:
            tls = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"notify.ca_file: {settings.ca_file}: {error.strerror or error}") from None
    password = _password(settings.password_file) if settings.password_file is not None else ""
    return MailRelay(host.strip("[]"), int(port), tls, settings.user, password)


def _password(path: Path) -> str:
    password = read_secret_text(path, "the relay's password").strip()
    if not password:
        raise SettingsError(f"{path}: the file has no password")
    return password
