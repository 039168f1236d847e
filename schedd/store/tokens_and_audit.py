"""Tokens and the audit of what was done with them. Over one transaction."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from schedd.store.codec import replace_nul
from schedd.store.records import AuditRecord, Role, Token
from schedd.store.tables import audit, clusters, tokens

__all__ = ["add_token", "audit_entries", "find_token", "insert_audit_entry", "list_tokens", "revoke_token"]


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
    expires: int | None,
    scope: Sequence[str] = (),
) -> str:
    """Make a token of 256 random bits and keep its digest; returns the token, which cannot be had again. It
    counts on the clusters of its ``scope``, or on all.
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
    """What is known of a token that somebody shows, valid or not. The lookup is by its digest, so how long it
    takes tells nothing of the tokens that exist.
    """
    row = connection.execute(select(*_COLUMNS).where(tokens.c.digest == _digest(token))).first()
    return _token(row) if row is not None else None


def list_tokens(connection: Connection) -> Sequence[Token]:
    """All tokens, oldest first."""
    return [_token(row) for row in connection.execute(select(*_COLUMNS).order_by(tokens.c.id))]


def revoke_token(connection: Connection, token: int, now: int) -> bool:
    """Revoke the token with this id; False when there is none that is not revoked yet."""
    done = connection.execute(
        update(tokens).where(tokens.c.id == token, tokens.c.revoked.is_(None)).values(revoked=now)
    )
    return done.rowcount > 0


def insert_audit_entry(connection: Connection, entry: AuditRecord, cluster: int | None) -> None:
    """Keep what somebody did."""
    connection.execute(
        insert(audit).values(
            time=entry.time,
            cluster=cluster,
            who=replace_nul(entry.who),
            act=replace_nul(entry.act),
            detail=replace_nul(entry.detail),
        )
    )


def audit_entries(connection: Connection, since: int, limit: int) -> Sequence[AuditRecord]:
    """What was done at ``since`` or later, newest first."""
    query = select(audit, clusters.c.name.label("of")).join_from(audit, clusters, isouter=True)
    rows = connection.execute(query.where(audit.c.time >= since).order_by(audit.c.id.desc()).limit(limit))
    return [AuditRecord(row.time, row.who, row.act, row.detail, row.of) for row in rows]
