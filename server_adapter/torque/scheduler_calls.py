"""Detection of a TORQUE server that does not call its scheduler, and the address that it calls.

pbs_server calls the address of its own host name. If no process listens on that address, the call is lost:
neither side gets an error, and starts wait for the next poll.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Final

_CALL_WITHIN_S: Final = 15.0  # a server calls within a second of an arrival; a busy one takes longer
_ANY: Final = frozenset({"", "0.0.0.0", "::"})


def is_local(host: str) -> bool:
    """Return whether the name or address belongs to this host."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def scheduler_address(server: str) -> tuple[str, str]:
    """Return the name of the server's host and its IPv4 address as resolved here (empty if unknown).

    A server on this host has the host's own name, regardless of the name or address in the settings.
    """
    name = socket.gethostname() if is_local(server) else server
    with contextlib.suppress(OSError):
        return name, socket.gethostbyname(name)
    return name, ""


class CallWatch:
    """Finds out that jobs arrive without a call of the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._called_at = float("-inf")
        self._read_at = clock()
        self._missing_since: float | None = None

    def note_call(self) -> None:
        self._called_at = self._clock()
        self._missing_since = None

    def note_reading(self, *, arrivals: bool) -> None:
        """The server was read; `arrivals` says whether jobs have come since the reading before."""
        before, self._read_at = self._read_at, self._clock()
        if arrivals and self._missing_since is None and self._called_at < before:
            self._missing_since = self._read_at

    def note_pause(self) -> None:
        """Scheduling is off at present, so calls are not expected."""
        self._missing_since = None

    @property
    def missing(self) -> bool:
        return self._missing_since is not None and self._clock() - self._missing_since > _CALL_WITHIN_S


def explain(server: str, listen: str, port: int, rejected: int) -> str:
    """Say that calls are missing, where they should arrive, and what to set."""
    name, address = scheduler_address(server)
    text = "pbs_server does not call its scheduler when jobs arrive, so starts wait for the next poll"
    if rejected:
        return f"{text}: {rejected} calls were refused, since their sender is not in listen.peers"
    if address and listen not in _ANY and address != listen:
        return (
            f"{text}: it calls the address of its host name, {name} = {address}, and the adapter listens on "
            f'{listen}: set listen.host = "{address}" and add that address to listen.peers'
        )
    return f"{text}: the adapter listens on {listen} port {port}; is that the server's scheduler port?"
