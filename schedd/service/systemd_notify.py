"""Telling systemd how the daemon is doing: sd_notify(3) in its few lines."""

import os
import socket

__all__ = ["notify", "watchdog_interval"]


def notify(*words: str) -> bool:
    """Send such words as ``READY=1`` to the service manager; False when there is none.

    Raises OSError when there is one but it cannot be reached, or does not read what it was sent: this never
    blocks.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.setblocking(False)
        channel.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        channel.sendall("\n".join(words).encode())
    return True


def watchdog_interval() -> float | None:
    """Within how many seconds the service manager wants to hear ``WATCHDOG=1``; None when it does not."""
    whose = os.environ.get("WATCHDOG_PID")
    if whose and whose != str(os.getpid()):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdigit() and int(microseconds) > 0 else None
