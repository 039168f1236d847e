"""What can go wrong when the daemon is asked."""

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """The daemon could not be asked, or it said no."""


class Unreachable(ClientError):
    """No response, or not from this daemon. ``reason`` is the message without the daemon's address."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class Refused(ClientError):
    """The daemon answered with a problem (RFC 9457).

    ``kind`` is the last part of its type, such as ``unknown-job``; ``places`` locate the errors. ``options``
    are counter-offers.
    """

    def __init__(
        self,
        kind: str,
        status: int,
        detail: str,
        hint: str = "",
        places: Sequence[str] = (),
        options: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(f"{detail}; {hint}" if hint else detail)
        self.kind = kind
        self.status = status
        self.detail = detail
        self.hint = hint
        self.places = tuple(places)
        self.options = tuple(options)
