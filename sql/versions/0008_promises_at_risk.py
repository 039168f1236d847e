"""What is kept of breaches is kept of promises at risk, too."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_breaches = sa.table("breaches", sa.column("kind", sa.Text))


def upgrade() -> None:
    """What is kept of breaches is kept of promises at risk, too."""
    op.add_column("breaches", sa.Column("kind", sa.Text(), nullable=False, server_default="broken"))


def downgrade() -> None:
    """Take it back: those at risk were no breaches."""
    op.execute(sa.delete(_breaches).where(_breaches.c.kind != "broken"))
    op.drop_column("breaches", "kind")
