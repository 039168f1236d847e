"""Facts that every version of the program reads, beside each checkpoint."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Facts of the same state as the checkpoint."""
    op.add_column("checkpoints", sa.Column("facts", sa.LargeBinary()))


def downgrade() -> None:
    """Take them back."""
    op.drop_column("checkpoints", "facts")
