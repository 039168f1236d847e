"""The demo's federation, as a separate process: the real one with the clusters' clock.

Its settings are the first line of its input; it ends with its input. It prints its port when it listens.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from schedd.api.listening_sockets import ListenError, listen_tcp
from schedd.federation.api.daemon import load_member_tokens, load_tokens, run_federation
from schedd.federation.settings import FederationSettings
from schedd.service.cluster.clock import ScaledClock
from schedd.service.logs import configure_logging
from schedd.service.settings.daemon import LogSettings


def main() -> int:
    """Serve as the first line of input says."""
    arguments = json.loads(sys.stdin.readline())
    configure_logging(LogSettings(level="warning", format="text"))
    clock = ScaledClock(arguments["start"], arguments["speed"], arguments["began"])
    directory = Path(arguments["directory"])
    for name, text in arguments["files"].items():
        path = directory / name
        path.touch(0o600)
        path.write_text(text)
    settings = FederationSettings.model_validate(arguments["settings"])
    try:
        server = listen_tcp("127.0.0.1", 0)
    except ListenError as error:
        print(f"schedd demo: {error}", file=sys.stderr)
        return 1
    print(server.getsockname()[1], flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    tokens, own = load_tokens(settings), load_member_tokens(settings)
    return 0 if run_federation(settings, tokens, own, server, clock=clock.now) else 1


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
