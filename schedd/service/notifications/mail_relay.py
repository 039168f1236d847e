"""The site's mail relay: address, TLS and login."""

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from schedd.service.settings.daemon import NotifySettings
from schedd.service.settings.file import SettingsError

__all__ = ["MailRelay", "load_relay"]


@dataclass(frozen=True, slots=True)
class MailRelay:
    """``tls`` is None for unencrypted mail; ``user`` is empty if the relay accepts this host without
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
            raise SettingsError(f"notify.ca_file: {settings.ca_file}: {error}") from None
    password = _password(settings.password_file) if settings.password_file is not None else ""
    return MailRelay(host.strip("[]"), int(port), tls, settings.user, password)


def _password(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(
                    f"{path}: others may have access to it (mode {mode:04o}); chmod 0600 {path}"
                )
            password = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot read the relay's password: {error}") from None
    if not password:
        raise SettingsError(f"{path}: there is no password in it")
    return password
