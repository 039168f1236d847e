"""The ledger of accounts."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The ledger of accounts."""
    op.create_table(
        "ledger",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("payer", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("cpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_ledger_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", "time", name=op.f("pk_ledger")),
    )
    op.create_index("ix_ledger_account", "ledger", ["cluster", "account", "time"])


def downgrade() -> None:
    """Take it back: what was charged is forgotten."""
    op.drop_table("ledger")
