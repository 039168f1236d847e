"""Where the daemon listens: a TCP port, with TLS or without, and a UNIX socket beside it."""

import os
import socket
import ssl
import stat
from contextlib import suppress
from pathlib import Path

from schedd.service.settings import ServerSettings, SettingsError

__all__ = ["ListenError", "leave", "listen", "listen_locally", "load_certificate", "tls_context"]

_BACKLOG = 1_024


class ListenError(OSError):
    """The address cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ListenError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error}") from None
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        server.listen(_BACKLOG)
    except OSError as error:
        server.close()
        raise ListenError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return server


def listen_locally(path: Path) -> socket.socket:
    """A UNIX socket that every user of the host may connect to: who it is, the kernel says.

    What an earlier daemon left behind is removed; what is no socket, or one that somebody listens on, is not.
    Raises ListenError.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(str(path)) == 0:
                    raise ListenError(f"cannot listen on {path}: another daemon does")
            path.unlink()
        server.bind(str(path))
        path.chmod(0o666)
        server.listen(_BACKLOG)
    except ListenError:
        server.close()
        raise
    except OSError as error:
        server.close()
        raise ListenError(f"cannot listen on {path}: {error.strerror or error}") from None
    return server


def leave(server: socket.socket) -> None:
    """Close a UNIX socket and take its name away."""
    with suppress(OSError):
        os.unlink(server.getsockname())  # noqa: PTH108  (it is a text)
    server.close()


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the site's certificate; None where there is none. Raises SettingsError."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Use the certificate that the files hold now, for new connections. Raises SettingsError."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        return
    try:
        # Without an answer at hand OpenSSL would ask the terminal for a passphrase.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        where = f"{certificate}" + (f" with the key {key}" if key is not None else "")
        raise SettingsError(f"server.tls_certificate: {where} cannot be used: {error}") from None
