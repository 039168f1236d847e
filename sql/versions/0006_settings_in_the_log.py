"""Batches from which on the engine goes on under other settings."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Batches from which on the engine goes on under other settings."""
    op.add_column("batches", sa.Column("settings", sa.Text()))


def downgrade() -> None:
    """Take it back."""
    op.drop_column("batches", "settings")
