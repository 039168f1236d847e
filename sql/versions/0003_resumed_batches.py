"""Batches before which dispatch was resumed."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Batches before which dispatch was resumed."""
    with op.batch_alter_table("batches") as batches:
        batches.add_column(sa.Column("resumed", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("batches") as batches:
        batches.alter_column("resumed", server_default=None)


def downgrade() -> None:
    """Take it back."""
    with op.batch_alter_table("batches") as batches:
        batches.drop_column("resumed")
