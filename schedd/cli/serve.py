"""``schedd serve``: the daemon."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.service.garbage_collector import loading_modules
from schedd.wire.toml_files import SettingsError, read_toml

_NO_FILE: Final = "no --config: no settings file was read; the defaults and the environment apply"


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="schedd serve",
        description="Run the daemon until SIGTERM or SIGINT. The log goes to standard error.",
    )
    parser.add_argument("--config", type=Path, help="settings (TOML); see docs/reference/configuration.md")
    parser.add_argument("--host", help="listen on this address instead of the configured one")
    parser.add_argument("--port", type=int, help="listen on this port instead; 0 takes any free one")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the daemon; 0 after a clean end, 2 for invalid settings, 1 for other errors."""
    args = make_parser().parse_args(argv)
    try:
        if args.config is not None:
            read_toml(args.config)  # before all else is loaded
    except SettingsError as error:
        print(f"schedd serve: {error}", file=sys.stderr)
        return 2
    # What the parser refuses is to be answered at once, without loading all this.
    with loading_modules():
        import structlog  # noqa: PLC0415

        from schedd.api.listening_sockets import ListenError, listen_tcp, listen_unix  # noqa: PLC0415
        from schedd.api.settings_resources import load_resources  # noqa: PLC0415
        from schedd.cli.serving import serve  # noqa: PLC0415
        from schedd.service.cluster.clock import SystemClock  # noqa: PLC0415
        from schedd.service.logs import configure_logging  # noqa: PLC0415
        from schedd.service.settings.file import Settings, read_settings_file  # noqa: PLC0415

    asked: dict[str, Any] = {"host": args.host, "port": args.port}
    server = {key: value for key, value in asked.items() if value is not None}

    def read() -> Settings:
        return read_settings_file(args.config, **({"server": server} if server else {}))

    try:
        settings = read()
        parts = load_resources(settings)
        configure_logging(settings.log)
        if args.config is None:
            structlog.get_logger(__name__).info(_NO_FILE)
        port = listen_tcp(settings.server.host, settings.server.port)
        local = listen_unix(settings.server.socket) if settings.server.socket is not None else None
    except SettingsError as error:
        print(f"schedd serve: {error}".replace("\n", "\nschedd serve: "), file=sys.stderr)
        if args.config is None:
            print(f"schedd serve: {_NO_FILE}", file=sys.stderr)
        return 2
    except ListenError as error:
        print(f"schedd serve: {error}", file=sys.stderr)
        return 1
    clock = SystemClock()
    ended = serve(
        settings,
        parts.tokens,
        clock,
        port,
        local=local,
        tls=parts.tls,
        read=read,
        path=args.config,
        hooks=parts.hooks,
        oidc=parts.oidc,
    )
    return 0 if ended else 1
