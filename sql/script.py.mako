"""${message}."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "${up_revision}"
down_revision = ${'"' + down_revision + '"' if down_revision else None}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """${message}."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Take it back."""
    ${downgrades if downgrades else "pass"}
