"""The demo's daemon, as a process of its own: the real one, under a clock that runs faster.

Its first line of input says how; it ends when its input does. It prints its port when it listens.
"""

import json
import os
import signal
import socket
import sys
import threading

from schedd.api.listening_sockets import ListenError, listen_tcp
from schedd.cli.serving import serve
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import ScaledClock
from schedd.service.logs import configure_logging
from schedd.service.settings.file import ServerSettings, Settings

__all__ = ["main"]


def main() -> int:
    """Serve as the first line of input says."""
    arguments = json.loads(sys.stdin.readline())
    settings = Settings(**arguments["settings"])
    configure_logging(settings.log)
    clock = ScaledClock(arguments["start"], arguments["speed"], arguments["began"])
    try:
        server = _listen(settings.server, arguments["any_port"])
    except ListenError as error:
        print(f"schedd demo: {error}", file=sys.stderr)
        return 1
    try:
        print(server.getsockname()[1], flush=True)
    except BrokenPipeError:  # the demo ended already
        return 0
    threading.Thread(target=_end_with_input, daemon=True).start()
    keys = {arguments["login_key"]: bytes.fromhex(arguments["login_as"])}
    return (
        0
        if serve(
            settings, Tokens.from_settings(settings.auth), clock, server, login_keys=keys, keys_last=True
        )
        else 1
    )


def _listen(chosen: ServerSettings, any_port: bool) -> socket.socket:
    try:
        return listen_tcp(chosen.host, chosen.port)
    except ListenError:
        if not any_port:
            raise
        return listen_tcp(chosen.host, 0)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
