"""When who was told of a start, so that the limit of an hour holds over a restart."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """When who was told of a start."""
    op.create_table(
        "notices_told",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_notices_told_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices_told")),
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_table("notices_told")
