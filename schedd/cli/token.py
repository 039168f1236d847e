"""``schedd token``: make, list and revoke tokens."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from schedd.cli.installation import (
    ConfigFile,
    database_url,
    exit_on_error,
    invoking_user,
    load_daemon_settings,
    open_store,
)
from schedd.service.settings.file import NAME_OF_TOKEN
from schedd.store import AuditRecord, Role, Store, Token

app = typer.Typer(help="Create, list and revoke the access tokens of portals, adapters and people.")
_DAY: Final = 86_400
_ROLES: Final[tuple[Role, ...]] = get_args(Role)
_Config = Annotated[Path | None, ConfigFile]
_Json = Annotated[bool, typer.Option("--json", help="as JSON; times are seconds since the epoch")]


@app.command()
def create(
    name: Annotated[
        str,
        typer.Argument(help="name of the holder; for role `user`, the login name that owns the jobs"),
    ],
    role: Annotated[str, typer.Option(help=f"role of the holder: {', '.join(_ROLES)}")],
    days: Annotated[
        int | None, typer.Option(help="days until it expires (default: never)", min=1, max=36_600)
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(help="valid on this cluster only; may be repeated (default: all clusters)"),
    ] = None,
    config: _Config = None,
) -> None:
    """Make a token of 256 random bits and print it, this once: only its SHA-256 is kept."""
    if not NAME_OF_TOKEN.fullmatch(name):
        raise typer.BadParameter("a name has letters, digits, '.', '_', '@' and '-'", param_hint="NAME")
    chosen = next((one for one in _ROLES if one == role), None)
    if chosen is None:
        raise typer.BadParameter(f"no role {role!r}; there is {', '.join(_ROLES)}", param_hint="--role")
    now = int(time.time())
    expires = now + days * _DAY if days is not None else None
    scope = tuple(dict.fromkeys(cluster or ()))
    with exit_on_error("token"):
        known = load_daemon_settings(config).clusters
    unknown = next((one for one in scope if one not in known), None)
    if unknown is not None:
        raise typer.BadParameter(
            f"no cluster {unknown!r}; there is {', '.join(known)}", param_hint="--cluster"
        )
    with exit_on_error("token"), open_store(database_url(config), new=True) as store:
        token = store.add_token(name, chosen, now, expires, scope)
        made = next(one for one in reversed(store.tokens()) if one.name == name)
        _audit_token(store, "token create", made)
    typer.echo(token)
    until = f"until {_format_date(expires)}" if expires is not None else "until it is revoked"
    typer.echo(
        f"token {made.id} of {name}, role {chosen}{_scope_suffix(made)}: counts within 2 seconds, {until}",
        err=True,
    )


@app.command("list")
def list_(
    config: _Config = None,
    as_json: _Json = False,
) -> None:
    """List the database's tokens, including revoked and expired ones; never the tokens themselves."""
    with exit_on_error("token"), open_store(database_url(config)) as store:
        tokens = store.tokens()
    now = int(time.time())
    if as_json:
        fields = ("id", "name", "role", "created", "expires", "revoked", "clusters")
        rows = [{field: getattr(token, field) for field in fields} for token in tokens]
        typer.echo(json.dumps(rows, indent=2))
        return
    lines = [("ID", "NAME", "ROLE", "CLUSTERS", "CREATED", "EXPIRES", "")]
    for token in tokens:
        end = _format_date(token.expires) if token.expires is not None else "never"
        state = f"revoked {_format_date(token.revoked)}" if token.revoked is not None else ""
        state = state or ("" if token.valid(now) else "expired")
        where = ",".join(token.clusters) or "all"
        lines.append((str(token.id), token.name, token.role, where, _format_date(token.created), end, state))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@app.command()
def revoke(
    token: Annotated[
        str, typer.Argument(help="number in the list, or a name: revokes all tokens of that name")
    ],
    config: _Config = None,
) -> None:
    """Revoke a token by its number, or all of a name; they count no more within 2 seconds."""
    now = int(time.time())
    with exit_on_error("token"), open_store(database_url(config)) as store:
        gone = [
            one
            for one in store.tokens()
            if token == (str(one.id) if token.isdecimal() else one.name) and store.revoke_token(one.id, now)
        ]
        for one in gone:
            _audit_token(store, "token revoke", one)
    if not gone:
        typer.echo(f"schedd token: no token {token!r} that counts; `schedd token list` lists them", err=True)
        raise typer.Exit(1)
    for one in gone:
        typer.echo(f"revoked token {one.id} of {one.name}, role {one.role}{_scope_suffix(one)}")


def _audit_token(store: Store, act: str, token: Token) -> None:
    about = f"{token.id}: {token.name}, role {token.role}{_scope_suffix(token)}"
    store.audit(AuditRecord(int(time.time()), invoking_user(), act, about))


def _scope_suffix(token: Token) -> str:
    return f" on {', '.join(token.clusters)}" if token.clusters else ""


def _format_date(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M}"
