"""``schedd federate``: one federation over several clusters."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from schedd.cli.arguments import OneLineErrorParser


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="schedd federate",
        description="Run the federation until SIGTERM or SIGINT: jobs go to the cluster whose plan "
        "ends them first.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, help="TOML; see docs/administrators/federation.md"
    )
    parser.add_argument("--check", action="store_true", help="check the settings and exit")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the federation; 0 after a clean end, 2 for invalid settings, 1 for other errors."""
    args = make_parser().parse_args(argv)
    from schedd.api.listening_sockets import ListenError, listen_tcp  # noqa: PLC0415
    from schedd.federation.api.daemon import load_member_tokens, load_tokens, run_federation  # noqa: PLC0415
    from schedd.federation.api.users import load_federation_users  # noqa: PLC0415
    from schedd.federation.settings import load_federation_settings  # noqa: PLC0415
    from schedd.service.logs import configure_logging  # noqa: PLC0415
    from schedd.service.settings.daemon import LogSettings  # noqa: PLC0415
    from schedd.wire.toml_files import SettingsError  # noqa: PLC0415

    try:
        settings = load_federation_settings(args.config)
        tokens, own = load_tokens(settings), load_member_tokens(settings)
        users = load_federation_users(settings)
    except SettingsError as error:
        print(f"schedd federate: {error}".replace("\n", "\nschedd federate: "), file=sys.stderr)
        return 2
    if args.check:
        print(f"{args.config}: {len(settings.clusters)} clusters: {', '.join(settings.clusters)}")
        return 0
    configure_logging(LogSettings())
    try:
        server = listen_tcp(settings.server.host, settings.server.port)
    except ListenError as error:
        print(f"schedd federate: {error}", file=sys.stderr)
        return 1
    return 0 if run_federation(settings, tokens, own, server, users, path=args.config) else 1
