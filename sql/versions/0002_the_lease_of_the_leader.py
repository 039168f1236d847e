"""The lease of the leader."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The lease of the leader."""
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
        sa.UniqueConstraint("name", "term", name=op.f("uq_leases_name_term")),
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_table("leases")
