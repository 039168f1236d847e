"""The demo's mailbox: an SMTP server on loopback that keeps the latest messages for the page *Mailbox*."""

import socketserver
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Final

_KEPT: Final = 200  # messages; older ones are dropped
_MAX_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Mail:
    """A received message; ``received`` is the cluster's time in epoch seconds."""

    received: int
    to: str
    subject: str
    text: str


class Mailbox:
    """A mail relay that delivers nothing. ``port`` is its port on loopback; it serves until ``close``."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._mails: deque[Mail] = deque(maxlen=_KEPT)
        self._server = _Server(self._store_mail)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="mailbox", daemon=True).start()

    @property
    def mails(self) -> Sequence[Mail]:
        """The messages, newest first."""
        return tuple(reversed(self._mails))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _store_mail(self, recipients: Sequence[str], data: bytes) -> None:
        message = message_from_bytes(data, policy=default)
        assert isinstance(message, EmailMessage)
        part = message.get_body(("plain",))
        text = str(part.get_content()) if part is not None else ""
        self._mails.append(Mail(self._now(), ", ".join(recipients), str(message["Subject"] or ""), text))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, store_mail: Callable[[Sequence[str], bytes], None]) -> None:
        self.store_mail: Final = store_mail
        super().__init__(("127.0.0.1", 0), _Session)


class _Session(socketserver.StreamRequestHandler):
    """One SMTP dialogue (RFC 5321): the commands that a mail client needs, without extensions."""

    timeout = _TIMEOUT_S
    server: _Server

    def handle(self) -> None:
        """Answer commands until QUIT or the end of the connection."""
        self._answer("220 schedd demo")
        recipients: list[str] = []
        while line := self.rfile.readline(1_000):
            verb = line[:4].upper()
            if verb in (b"EHLO", b"HELO"):
                self._answer("250 schedd demo")
            elif verb == b"RCPT":
                recipients.append(line.partition(b"<")[2].partition(b">")[0].decode("ascii", "replace"))
                self._answer("250 ok")
            elif verb == b"DATA" and recipients:
                self._answer("354 end with a dot")
                self._read_message(recipients)
                recipients = []
            elif verb in (b"MAIL", b"RSET"):
                recipients = []
                self._answer("250 ok")
            elif verb == b"NOOP":
                self._answer("250 ok")
            elif verb == b"QUIT":
                self._answer("221 bye")
                return
            else:
                self._answer("503 not now" if verb == b"DATA" else "502 not implemented")

    def _read_message(self, recipients: Sequence[str]) -> None:
        data = b""
        while (line := self.rfile.readline(_MAX_BYTES)) not in (b".\r\n", b""):
            data += line[1:] if line.startswith(b".") else line
            if len(data) > _MAX_BYTES:
                self._answer("552 too large")
                return
        self.server.store_mail(recipients, data)
        self._answer("250 kept")

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())
