"""API tokens, and the audit log of administrative actions."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from schedd.access_tokens import Role
from schedd.store.codec import replace_nul
from schedd.store.records import AuditRecord, Token
from schedd.store.tables import audit, clusters, tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _token(row: Any) -> Token:
    clusters = tuple(json.loads(row.clusters)) if row.clusters is not None else ()
    return Token(row.id, row.digest, row.name, row.role, row.created, row.expires, row.revoked, clusters)


_COLUMNS = (
    *(tokens.c.id, tokens.c.digest, tokens.c.name, tokens.c.role),
    *(tokens.c.created, tokens.c.expires, tokens.c.revoked, tokens.c.clusters),
)


def add_token(
    connection: Connection,
    name: str,
    role: Role,
    now: int,
    expires: int | None = None,
    scope: Sequence[str] = (),
) -> str:
    """Create a token of 256 random bits for the clusters in ``scope`` (empty: all); only its digest is
    stored.

    Return the token, which cannot be read again.
    """
    token = secrets.token_urlsafe(32)
    connection.execute(
        insert(tokens).values(
            digest=_digest(token),
            name=replace_nul(name),
            role=role,
            created=now,
            expires=expires,
            clusters=json.dumps(list(scope)) if scope else None,
        )
    )
    return token


def find_token(connection: Connection, token: str) -> Token | None:
    """Return the record of a token, valid or not; None if it is unknown.

    The lookup is by digest, so its duration reveals nothing about existing tokens.
    """
    row = connection.execute(select(*_COLUMNS).where(tokens.c.digest == _digest(token))).first()
    return _token(row) if row is not None else None


def list_tokens(connection: Connection) -> Sequence[Token]:
    """Return all tokens, oldest first."""
    return [_token(row) for row in connection.execute(select(*_COLUMNS).order_by(tokens.c.id))]


def revoke_token(connection: Connection, token: int, now: int) -> bool:
    """Revoke the token with this id; return False when there is no such token or it is revoked."""
    done = connection.execute(
        update(tokens).where(tokens.c.id == token, tokens.c.revoked.is_(None)).values(revoked=now)
    )
    return done.rowcount > 0


def insert_audit_entry(connection: Connection, entry: AuditRecord, cluster: int | None) -> None:
    connection.execute(
        insert(audit).values(
            time=entry.time,
            cluster=cluster,
            who=replace_nul(entry.who),
            act=replace_nul(entry.act),
            detail=replace_nul(entry.detail),
        )
    )


def audit_entries(
    connection: Connection,
    since: int = 0,
    limit: int = 1_000,
    *,
    cluster: str | None = None,
    alone: bool = False,
) -> Sequence[AuditRecord]:
    """Return the audit entries at ``since`` or later, newest first; only those of a ``cluster``, and unless
    ``alone`` of none.
    """
    query = select(audit, clusters.c.name.label("of")).join_from(audit, clusters, isouter=True)
    if cluster is not None:
        here = clusters.c.name == cluster
        query = query.where(here if alone else here | audit.c.cluster.is_(None))
    rows = connection.execute(query.where(audit.c.time >= since).order_by(audit.c.id.desc()).limit(limit))
    return [AuditRecord(row.time, row.who, row.act, row.detail, row.of) for row in rows]
