"""The demo's daemon, as a separate process: the real one with a faster clock, the pages *Submit* and
*Mailbox*, and an endpoint for submissions.

The first line of its input has its settings, each later one the address of an emulated server; it ends with
its input. It prints its port when it listens.
"""

import json
import os
import signal
import socket
import sys
import threading
from functools import partial
from typing import Final

from fastapi import FastAPI

from schedd.api.listening_sockets import ListenError, listen_tcp
from schedd.cli.demo import submission_api
from schedd.cli.demo.mailbox import Mailbox
from schedd.cli.demo.processes import MAIL_DOMAIN
from schedd.cli.demo.state import STATE_KEY, DemoState
from schedd.cli.serving import DaemonExtension, serve
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import ScaledClock
from schedd.service.logs import configure_logging
from schedd.service.settings.daemon import ServerSettings
from schedd.service.settings.file import Settings
from server_adapter.batch.sockets import Address

PAGE_MODULES: Final = ("schedd.cli.demo.submit_page", "schedd.cli.demo.mailbox_page")


def main() -> int:
    """Serve as the first line of input says."""
    arguments = json.loads(sys.stdin.readline())
    clock = ScaledClock(arguments["start"], arguments["speed"], arguments["began"])
    mailbox = Mailbox(lambda: int(clock.now()))
    sender = f"schedd@{MAIL_DOMAIN}"
    relay = f"127.0.0.1:{mailbox.port}"
    mail = {"relay": relay, "sender": sender, "domains": (MAIL_DOMAIN,), "hourly": 1_000}
    settings = Settings(**(arguments["settings"] | {"notify": mail}))
    configure_logging(settings.log)
    try:
        server = _listen(settings.server, arguments["any_port"])
    except ListenError as error:
        print(f"schedd demo: {error}", file=sys.stderr)
        return 1
    try:
        print(server.getsockname()[1], flush=True)
    except BrokenPipeError:  # the demo ended already
        return 0
    state = DemoState(arguments["family"], mailbox)
    threading.Thread(target=_read_servers, args=(state,), daemon=True).start()
    keys = {arguments["login_key"]: bytes.fromhex(arguments["login_as"])}
    clean = serve(
        settings,
        Tokens.from_settings(settings.auth),
        clock,
        server,
        login_keys=keys,
        keys_last=True,
        extension=DaemonExtension(partial(_add_routes, state), PAGE_MODULES),
    )
    mailbox.close()
    return 0 if clean else 1


def _add_routes(state: DemoState, app: FastAPI) -> None:
    setattr(app.state, STATE_KEY, state)
    submission_api.router.add_to(app)


def _listen(chosen: ServerSettings, any_port: bool) -> socket.socket:
    try:
        return listen_tcp(chosen.host, chosen.port)
    except ListenError:
        if not any_port:
            raise
        return listen_tcp(chosen.host, 0)


def _read_servers(state: DemoState) -> None:
    """Read the servers' addresses, one JSON object for each line: cluster, host, port. End with the input."""
    for line in sys.stdin:
        server = json.loads(line)
        state.servers[server["cluster"]] = Address(server["host"], server["port"])
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
