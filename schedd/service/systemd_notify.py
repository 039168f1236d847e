"""Notification of systemd about the daemon's state: sd_notify(3)."""

import os
import socket


def notify(*words: str) -> bool:
    """Send assignments such as ``READY=1`` to the service manager; return False without one.

    Raises OSError when it cannot be reached or does not read; never blocks.
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
    """Return the watchdog's seconds within which ``WATCHDOG=1`` is expected; None: no watchdog."""
    whose = os.environ.get("WATCHDOG_PID")
    if whose and whose != str(os.getpid()):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdigit() and int(microseconds) > 0 else None
