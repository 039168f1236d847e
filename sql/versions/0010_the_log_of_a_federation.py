"""The log of a federation."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The log of a federation."""
    op.create_table(
        "federation",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_federation"),
    )
    op.create_index("ix_federation_job", "federation", ["job"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index("ix_federation_job", "federation")
    op.drop_table("federation")
