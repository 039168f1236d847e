"""A digest over the log, batch by batch, and one over each checkpoint."""

# ruff: noqa: INP001

import hashlib
import struct

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# As in schedd/store/checkpoint_envelope.py of this version: what a migration does must not change with the
# program.
_HEAD = struct.Struct("<12sQ32s")
_MAGIC = b"schedd-ckpt1"

_checkpoints = sa.table(
    "checkpoints",
    sa.column("cluster", sa.Integer),
    sa.column("batch", sa.BigInteger),
    sa.column("last_event", sa.BigInteger),
    sa.column("body", sa.LargeBinary),
)


def upgrade() -> None:
    """A digest over the log, batch by batch, and one over each checkpoint."""
    op.add_column("batches", sa.Column("chain", sa.LargeBinary()))
    op.add_column("checkpoints", sa.Column("chain", sa.LargeBinary()))
    for cluster, batch, last_event, body in _bodies():
        place = struct.pack("<QQQ", batch, last_event, len(body))
        digest = hashlib.sha256(place + body).digest()
        _set_body(cluster, batch, _HEAD.pack(_MAGIC, len(body), digest) + body)


def downgrade() -> None:
    """Take it back."""
    for cluster, batch, _, body in _bodies():
        _set_body(cluster, batch, body[_HEAD.size :])
    op.drop_column("checkpoints", "chain")
    op.drop_column("batches", "chain")


def _bodies() -> list[sa.Row[tuple[int, int, int, bytes]]]:
    of = _checkpoints.c
    return list(op.get_bind().execute(sa.select(of.cluster, of.batch, of.last_event, of.body)).all())


def _set_body(cluster: int, batch: int, body: bytes) -> None:
    here = (_checkpoints.c.cluster == cluster, _checkpoints.c.batch == batch)
    op.get_bind().execute(sa.update(_checkpoints).where(*here).values(body=body))
