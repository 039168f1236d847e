"""The daemon's listening sockets: a TCP port, with or without TLS, and a UNIX socket."""

import os
import socket
import ssl
import stat
from contextlib import suppress
from pathlib import Path

import structlog

from schedd.service.settings.daemon import ServerSettings
from schedd.wire.toml_files import SettingsError

_log = structlog.get_logger(__name__)

_BACKLOG = 1_024
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: only forward secrecy and authenticated encryption."""
_KEY_MISMATCH_REASONS = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons for a key that is not the certificate's, of the same kind or of another one."""


class ListenError(OSError):
    """The address cannot be listened on."""


def listen_tcp(host: str, port: int) -> socket.socket:
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


def listen_unix(path: Path) -> socket.socket:
    """A UNIX socket to which every user of the host may connect; the kernel names the peer.

    A socket left by an earlier daemon is removed, but not another kind of file, or a socket in use. Raises
    ListenError.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(str(path)) == 0:
                    raise ListenError(f"cannot listen on {path}: another daemon does")
            path.unlink()
        elif path.exists():
            raise ListenError(f"cannot listen on {path}: what is there is no socket; move it away")
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


def close_unix_socket(server: socket.socket) -> None:
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
    context.set_ciphers(_CIPHERS)
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServerSettings) -> None:
    """Use the certificate that the files hold now, for new connections. Raises SettingsError."""
    certificate = settings.tls_certificate
    if certificate is None:
        return
    key = settings.tls_key or certificate
    _read_pem(certificate, "server.tls_certificate", "CERTIFICATE")
    if "ENCRYPTED" in _read_pem(key, "server.tls_key", "PRIVATE KEY"):
        raise _unusable_file(
            key, "server.tls_key", f"it has a passphrase; take it off by: openssl pkey -in {key}"
        )
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason in _KEY_MISMATCH_REASONS:
            raise _unusable_file(key, "server.tls_key", f"it is not the key of {certificate}") from None
        raise _unusable_file(certificate, "server.tls_certificate", f"{error.reason} (with {key})") from None


def _read_pem(path: Path, setting: str, what: str) -> str:
    """The text of a file that has ``what`` in it. Raises SettingsError."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise _unusable_file(path, setting, error.strerror or str(error)) from None
    if f"{what}-----" not in text:
        raise _unusable_file(path, setting, f"there is no {what.lower()} in it, in the format PEM")
    return text


def _unusable_file(path: Path, setting: str, why: str) -> SettingsError:
    return SettingsError(f"{setting}: {path} cannot be used: {why}")


def certificate_fault(server: ssl.SSLContext, settings: ServerSettings) -> str:
    """The reason why clients reject the certificate today, such as ``certificate has expired``; empty if they
    do not. Determined as a client does: by a handshake, in memory.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(settings.tls_certificate)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for side in (asking, answering, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def log_certificate_fault(server: ssl.SSLContext, settings: ServerSettings) -> None:
    """Log that clients will reject the certificate. It is used anyway, since the UNIX socket works."""
    why = certificate_fault(server, settings)
    if why:
        _log.warning(
            "no client will trust the certificate", certificate=str(settings.tls_certificate), why=why
        )
