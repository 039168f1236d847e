"""The first tables."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The first tables."""
    op.create_table(
        "clusters",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("name", name=op.f("uq_clusters_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger()),
        sa.Column("revoked", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("cluster", sa.Integer()),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_audit_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_time", "audit", ["time"])
    op.create_table(
        "batches",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("now", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Text(), nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_batches_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_batches")),
    )
    op.create_table(
        "breaches",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("promised", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.BigInteger()),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_breaches_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "batch", "place", name=op.f("pk_breaches")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_checkpoints_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "batch", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "decisions",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("job", sa.Text()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text()),
        sa.Column("outcome_time", sa.BigInteger()),
        sa.Column("code", sa.Integer()),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_decisions_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "id", name=op.f("pk_decisions")),
    )
    op.create_table(
        "events",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("delivery", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text()),
        sa.Column("packed", sa.LargeBinary()),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_events_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_events")),
        sa.UniqueConstraint("cluster", "delivery", name=op.f("uq_events_cluster_delivery")),
    )
    op.create_table(
        "promises",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("promised", sa.BigInteger(), nullable=False),
        sa.Column("weak", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_promises_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "batch", "job", name=op.f("pk_promises")),
    )
    op.create_table(
        "told",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger()),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actual", sa.BigInteger()),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_told_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "decision", name=op.f("pk_told")),
    )
    op.create_index("ix_told_cluster_job", "told", ["cluster", "job"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index("ix_told_cluster_job", table_name="told")
    op.drop_table("told")
    op.drop_table("promises")
    op.drop_table("events")
    op.drop_table("decisions")
    op.drop_table("checkpoints")
    op.drop_table("breaches")
    op.drop_table("batches")
    op.drop_index("ix_audit_time", table_name="audit")
    op.drop_table("audit")
    op.drop_table("tokens")
    op.drop_table("clusters")
