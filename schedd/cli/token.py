"""``schedd token``: make, list and revoke tokens."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, get_args

from schedd.access_tokens import NAME_OF_TOKEN, Role
from schedd.cli.arguments import OneLineErrorParser, add_action, fail, parse_within
from schedd.cli.installation import (
    add_config_option,
    database_url,
    exit_on_error,
    invoking_user,
    load_daemon_settings,
    open_store,
)

if TYPE_CHECKING:
    from schedd.store import Store, Token

_DAY: Final = 86_400
_ROLES: Final[tuple[Role, ...]] = get_args(Role)


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd token",
        description="Create, list and revoke the access tokens of portals, adapters and people.",
        allow_abbrev=False,
    )
    acts = parser.add_subparsers(dest="act", metavar="ACTION", title="actions", required=True)
    create = add_action(
        acts,
        "create",
        "Create a token of 256 random bits and print it once: only its SHA-256 hash is stored.",
        _create,
    )
    create.add_argument(
        "name",
        metavar="NAME",
        type=_parse_name,
        help="name of the holder; for role `user`, the login name that owns the jobs",
    )
    create.add_argument("--role", required=True, choices=_ROLES, help="role of the holder")
    create.add_argument(
        "--days", type=parse_within(int, 1, 36_600), help="days until it expires (default: never)"
    )
    create.add_argument(
        "--cluster",
        action="append",
        default=[],
        help="valid on this cluster only; may be repeated (default: all clusters)",
    )
    listing = add_action(
        acts,
        "list",
        "List the database's tokens, including revoked and expired ones; never the tokens themselves.",
        _list,
    )
    revoke = add_action(
        acts,
        "revoke",
        "Revoke a token by its number, or all tokens of a name; they become invalid within 2 seconds.",
        _revoke,
    )
    about = "number in the list, or a name: revokes all tokens of that name"
    revoke.add_argument("token", metavar="TOKEN", help=about)
    for one in (create, listing, revoke):
        add_config_option(one)
    listing.add_argument("--json", action="store_true", help="as JSON; times are seconds since the epoch")
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the action; 0, 2 for invalid arguments or settings, 1 if the database cannot be used."""
    args = make_parser().parse_args(argv)
    return int(args.command(args))


def _parse_name(text: str) -> str:
    if not NAME_OF_TOKEN.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a name has letters, digits, '.', '_', '@' and '-'")
    return text


def _create(args: argparse.Namespace) -> int:
    name, now = args.name, int(time.time())
    expires = now + args.days * _DAY if args.days is not None else None
    scope = tuple(dict.fromkeys(args.cluster))
    with exit_on_error("token"):
        known = load_daemon_settings(args.config).clusters
    unknown = next((one for one in scope if one not in known), None)
    if unknown is not None:
        fail("token create", f"--cluster: no cluster {unknown!r}; there is {', '.join(known)}")
    with exit_on_error("token"), open_store(database_url(args.config), new=True) as store:
        token = store.add_token(name, args.role, now, expires, scope)
        made = next(one for one in reversed(store.tokens()) if one.name == name)
        _audit_token(store, "token create", made)
    print(token)
    until = f"until {_format_date(expires)}" if expires is not None else "until it is revoked"
    print(
        f"token {made.id} of {name}, role {args.role}{_scope_suffix(made)}: valid within 2 seconds, {until}",
        file=sys.stderr,
    )
    return 0


def _list(args: argparse.Namespace) -> int:
    with exit_on_error("token"), open_store(database_url(args.config)) as store:
        tokens = store.tokens()
    now = int(time.time())
    if args.json:
        fields = ("id", "name", "role", "created", "expires", "revoked", "clusters")
        rows = [{field: getattr(token, field) for field in fields} for token in tokens]
        print(json.dumps(rows, indent=2))
        return 0
    lines = [("ID", "NAME", "ROLE", "CLUSTERS", "CREATED", "EXPIRES", "")]
    for token in tokens:
        end = _format_date(token.expires) if token.expires is not None else "never"
        state = f"revoked {_format_date(token.revoked)}" if token.revoked is not None else ""
        state = state or ("" if token.valid(now) else "expired")
        where = ",".join(token.clusters) or "all"
        lines.append((str(token.id), token.name, token.role, where, _format_date(token.created), end, state))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _revoke(args: argparse.Namespace) -> int:
    token, now = args.token, int(time.time())
    with exit_on_error("token"), open_store(database_url(args.config)) as store:
        gone = [
            one
            for one in store.tokens()
            if token == (str(one.id) if token.isdecimal() else one.name) and store.revoke_token(one.id, now)
        ]
        for one in gone:
            _audit_token(store, "token revoke", one)
    if not gone:
        fail("token", f"no valid token {token!r}; `schedd token list` lists them", 1)
    for one in gone:
        print(f"revoked token {one.id} of {one.name}, role {one.role}{_scope_suffix(one)}")
    return 0


def _audit_token(store: "Store", act: str, token: "Token") -> None:
    from schedd.store import AuditRecord  # noqa: PLC0415  (the help of commands needs no database)

    about = f"{token.id}: {token.name}, role {token.role}{_scope_suffix(token)}"
    store.audit(AuditRecord(int(time.time()), invoking_user(), act, about))


def _scope_suffix(token: "Token") -> str:
    return f" on {', '.join(token.clusters)}" if token.clusters else ""


def _format_date(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M}"
