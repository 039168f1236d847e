"""TCP ports of this host for daemons that are started, killed and started again."""

import secrets
import socket
from typing import Final

_RANGE: Final = range(20_000, 30_000)
"""The system takes ports of clients from a higher range: no client gets the port of a daemon that is down."""


def free_port() -> int:
    """Return a free port that no other call returns, also in other processes, while this process lives."""
    while True:
        port = secrets.choice(_RANGE)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0schedd-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        claim.detach()  # it stays open until this process ends
        return port
