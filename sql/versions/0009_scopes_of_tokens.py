"""Tokens that count on some clusters alone."""

# ruff: noqa: INP001

import time

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_tokens = sa.table("tokens", sa.column("clusters", sa.Text), sa.column("revoked", sa.BigInteger))


def upgrade() -> None:
    """A place for the clusters; every token so far counts on all."""
    op.add_column("tokens", sa.Column("clusters", sa.Text()))


def downgrade() -> None:
    """Take it back. What counted on some clusters would count on all: those tokens are revoked."""
    of = _tokens.c
    op.get_bind().execute(
        sa.update(_tokens)
        .where(of.clusters.is_not(None), of.revoked.is_(None))
        .values(revoked=int(time.time()))
    )
    op.drop_column("tokens", "clusters")
