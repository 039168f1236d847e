"""Who wants to be told of starts, and what they were told."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Who wants to be told of starts, and what they were told."""
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("moved", sa.BigInteger(), nullable=True),
        sa.Column("ahead", sa.BigInteger(), nullable=True),
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_notices_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    op.create_table(
        "noticed",
        sa.Column("notice", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("soon", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["notice"], ["notices.id"], name=op.f("fk_noticed_notice_notices")),
        sa.PrimaryKeyConstraint("notice", "job", name=op.f("pk_noticed")),
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_table("noticed")
    op.drop_table("notices")
