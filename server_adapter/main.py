"""The command `pbs-adapter`."""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from schedd.wire.settings_file import read_token
from schedd.wire.toml_files import SettingsError
from server_adapter.batch.errors import BatchError
from server_adapter.bridge.adapter import Adapter
from server_adapter.bridge.daemon_client import DaemonAwayError, DaemonClient, DaemonRefusedError
from server_adapter.bridge.journal import JournalError
from server_adapter.bridge.manual_starts import RecordedStarts
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.site_check import check_site
from server_adapter.families import connector
from server_adapter.settings import AdapterSettings, load_settings

_log = logging.getLogger(__name__)

EXIT_SETTINGS = 2
EXIT_TROUBLE = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the adapter; return the exit status."""
    options = make_parser().parse_args(arguments)
    try:
        settings = load_settings(options.config, _overrides(options))
        if options.record_qrun:
            for job in options.record_qrun:
                RecordedStarts(settings.state_dir).add(job)
            return 0
        token = read_token(settings.daemon.token_file, "daemon.token_file")
        drain_token = read_token(settings.drain.token_file, "drain.token_file")
    except (SettingsError, OSError) as error:
        print(f"pbs-adapter: {error}".replace("\n", "\npbs-adapter: "), file=sys.stderr)  # noqa: T201
        return EXIT_SETTINGS
    _set_up_logging(options.log_level)
    try:
        work = _check(settings, token) if options.once else _serve(settings, token, drain_token, options)
        uvloop.run(work)
    except (BatchError, JournalError, DaemonAwayError, DaemonRefusedError) as error:
        _log.critical("%s", error)
        return EXIT_TROUBLE
    except KeyboardInterrupt:
        pass
    return 0


async def _check(settings: AdapterSettings, token: str) -> None:
    """Check server and daemon once, in any mode, without changes to either."""
    settings = settings.model_copy(update={"mode": "shadow", "transfers": False})
    server = connector(settings)(AdaptiveRateLimiter(1.0))
    client = DaemonClient(settings.daemon.url, settings.cluster, token=token)
    try:
        for line in await check_site(server, client):
            print(line)  # noqa: T201
    finally:
        await server.close()
        await client.close()


async def _serve(
    settings: AdapterSettings, token: str, drain_token: str, options: argparse.Namespace
) -> None:
    adapter = Adapter(
        settings,
        connector(settings),
        token=token,
        drain_token=drain_token,
        ready=lambda: notify("READY=1"),
        path=options.config,
    )
    if options.remove_writings:
        _log.info("cleaned %d jobs", await adapter.clean())
        return
    _log.info(
        "%s of %s:%d for cluster %s",
        settings.mode,
        settings.server.host,
        settings.server.port,
        settings.cluster,
    )
    # A full garbage collection pauses the loop for 20 ms and more. Imported objects are excluded from it; job
    # data is free of reference cycles, so full collections can be rare.
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1000)
    work = asyncio.ensure_future(adapter.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await work
    except* (BatchError, JournalError, DaemonRefusedError) as group:
        raise group.exceptions[0] from None
    notify("STOPPING=1")


def notify(message: str) -> None:
    """Send a message to systemd, if it listens ($NOTIFY_SOCKET)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect("\0" + address[1:] if address.startswith("@") else address)
        channel.sendall(message.encode())


def _set_up_logging(level: str) -> None:
    # The journal has its own time stamps; a terminal does not.
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(f"{stamp}%(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("httpcore2").setLevel(logging.WARNING)


class _Lines(logging.Formatter):
    """Formats each message as one line: unprintable characters, as in job names, are escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the library's name)
        text = super().formatMessage(record)
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in _OVERRIDES.items():
        value = getattr(options, name)
        if value is not None:
            found[key] = value
    if options.server is not None:
        host, _, port = options.server.partition(":")
        found["server.host"] = host
        if port:
            found["server.port"] = port
    return found


_OVERRIDES = {
    "mode": "mode",
    "cluster": "cluster",
    "state_dir": "state_dir",
    "auth": "server.auth",
    "family": "server.family",
    "daemon": "daemon.url",
    "token_file": "daemon.token_file",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` says what there is\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; packages generate the man page from it."""
    parser = _Parser(
        prog="pbs-adapter",
        description="Joins a pbs_server (TORQUE or OpenPBS) to schedd: events out, decisions in.",
    )
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE", help="settings as TOML; the options here go before them")
    add(
        "--mode",
        choices=["shadow", "adviser", "scheduler"],
        help="watch; also write plans; also start jobs (default: shadow)",
    )
    add("--family", choices=["torque", "openpbs"], help="what kind of server it is (default: torque)")
    add("--server", metavar="HOST[:PORT]", help="address of pbs_server (default: 127.0.0.1:15001)")
    add(
        "--auth",
        choices=["auto", "privileged", "trqauthd", "munge", "none"],
        help="how the server is to trust the adapter (default: auto)",
    )
    add(
        "--daemon", metavar="URL[,URL]", help="schedd, or leader and standby (default: http://127.0.0.1:8080)"
    )
    add("--cluster", metavar="NAME", help="the server's name at the daemon (default: main)")
    add("--token-file", type=Path, metavar="FILE", help="holds the adapter's token")
    add(
        "--state-dir",
        type=Path,
        metavar="DIRECTORY",
        help="state of the adapter (default: /var/lib/pbs-adapter)",
    )
    add(
        "--once",
        action="store_true",
        help="check server and daemon, say what was found, and end; changes nothing",
    )
    add("--record-qrun", action="append", metavar="JOB", help="an admin starts this job by hand; then end")
    add("--remove-writings", action="store_true", help="take our comments off all jobs, then end")
    add(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="least severe messages that are logged (default: info)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
