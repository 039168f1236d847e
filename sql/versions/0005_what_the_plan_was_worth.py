"""What the plan was worth over time, and what searches did to it."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What the plan was worth over time, and what searches did to it."""
    op.create_table(
        "evaluations",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_evaluations_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "time", name=op.f("pk_evaluations")),
    )
    op.create_table(
        "searches",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_searches_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_searches")),
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_table("searches")
    op.drop_table("evaluations")
