"""When waiting jobs were told to be expected to start, and when they did."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """When waiting jobs were told to be expected to start, and when they did."""
    op.create_table(
        "expected",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("event", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("latest", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actual", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_expected_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "event", "job", name=op.f("pk_expected")),
    )
    op.create_index("ix_expected_cluster_job", "expected", ["cluster", "job"])
    op.create_index("ix_expected_cluster_time", "expected", ["cluster", "time"])


def downgrade() -> None:
    """Take it back."""
    op.drop_table("expected")
