"""Who wants to be told of lost deadlines, and which were told."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Notices of lost deadlines."""
    op.add_column("notices", sa.Column("lost", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("noticed", sa.Column("lost", sa.BigInteger(), nullable=False, server_default="-1"))


def downgrade() -> None:
    """Take it back; who asked for nothing else asked for nothing."""
    notices = sa.table("notices", sa.column("id"), sa.column("moved"), sa.column("ahead"))
    empty = sa.select(notices.c.id).where(notices.c.moved.is_(None), notices.c.ahead.is_(None))
    noticed = sa.table("noticed", sa.column("notice"))
    op.execute(noticed.delete().where(noticed.c.notice.in_(empty)))
    op.execute(notices.delete().where(notices.c.id.in_(empty)))
    op.drop_column("noticed", "lost")
    op.drop_column("notices", "lost")
