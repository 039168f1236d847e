"""The tables of version 0.1.0."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "clusters",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("noted", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
        sa.UniqueConstraint("name", name=op.f("uq_clusters_name")),
    )
    op.create_table(
        "federation",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_federation")),
    )
    op.create_index("ix_federation_job", "federation", ["job"], unique=False)
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
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=True),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
        sa.Column("clusters", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_audit_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_time"), "audit", ["time"], unique=False)
    op.create_table(
        "batches",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("now", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Text(), nullable=False),
        sa.Column("resumed", sa.Boolean(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=True),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=True),
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
        sa.Column("planned", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), server_default="broken", nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_breaches_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "batch", "place", name=op.f("pk_breaches")),
    )
    op.create_index("ix_breaches_cluster_job", "breaches", ["cluster", "job"], unique=False)
    op.create_table(
        "checkpoints",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=True),
        sa.Column("facts", sa.LargeBinary(), nullable=True),
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
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("outcome_time", sa.BigInteger(), nullable=True),
        sa.Column("code", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_decisions_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "id", name=op.f("pk_decisions")),
    )
    op.create_index("ix_decisions_cluster_job", "decisions", ["cluster", "job"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_deliveries_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_deliveries")),
    )
    op.create_table(
        "evaluations",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_evaluations_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "time", name=op.f("pk_evaluations")),
    )
    op.create_table(
        "events",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("delivery", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("packed", sa.LargeBinary(), nullable=True),
        sa.Column("job", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_events_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_events")),
        sa.UniqueConstraint("cluster", "delivery", name=op.f("uq_events_cluster_delivery")),
    )
    op.create_index("ix_events_cluster_job", "events", ["cluster", "job"], unique=False)
    op.create_table(
        "expected",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("event", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("latest", sa.BigInteger(), nullable=False),
        sa.Column("planned", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actual", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_expected_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "event", "job", name=op.f("pk_expected")),
    )
    op.create_index("ix_expected_cluster_job", "expected", ["cluster", "job"], unique=False)
    op.create_index("ix_expected_cluster_time", "expected", ["cluster", "time"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("submitted", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("held", sa.Text(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("exit", sa.BigInteger(), nullable=True),
        sa.Column("how", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_jobs_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_cluster_ended", "jobs", ["cluster", "ended"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("payer", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("cpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("gpu_seconds", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_ledger_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", "time", name=op.f("pk_ledger")),
    )
    op.create_index("ix_ledger_account", "ledger", ["cluster", "account", "time"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("event", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cpus", sa.BigInteger(), nullable=False),
        sa.Column("mem", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_nodes_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "event", "node", name=op.f("pk_nodes")),
    )
    op.create_index("ix_nodes_cluster_node", "nodes", ["cluster", "node"], unique=False)
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("moved", sa.BigInteger(), nullable=True),
        sa.Column("ahead", sa.BigInteger(), nullable=True),
        sa.Column("way", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("tighter", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_notices_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    op.create_table(
        "notices_sent",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_notices_sent_cluster_clusters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices_sent")),
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
    op.create_index("ix_promises_cluster_job", "promises", ["cluster", "job"], unique=False)
    op.create_table(
        "published_starts",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("actual", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster"], ["clusters.id"], name=op.f("fk_published_starts_cluster_clusters")
        ),
        sa.PrimaryKeyConstraint("cluster", "decision", name=op.f("pk_published_starts")),
    )
    op.create_index(
        op.f("ix_published_starts_cluster_job"), "published_starts", ["cluster", "job"], unique=False
    )
    op.create_table(
        "searches",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_searches_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "number", name=op.f("pk_searches")),
    )
    op.create_table(
        "share_samples",
        sa.Column("cluster", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_share_samples_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "time", name=op.f("pk_share_samples")),
    )
    op.create_table(
        "last_notices",
        sa.Column("notice", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("soon", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("tighter", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("walltime", sa.BigInteger(), server_default="-1", nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["notice"], ["notices.id"], name=op.f("fk_last_notices_notice_notices")),
        sa.PrimaryKeyConstraint("notice", "job", name=op.f("pk_last_notices")),
    )


def downgrade() -> None:
    """Remove the tables."""
    op.drop_table("last_notices")
    op.drop_table("share_samples")
    op.drop_table("searches")
    op.drop_index(op.f("ix_published_starts_cluster_job"), table_name="published_starts")
    op.drop_table("published_starts")
    op.drop_index("ix_promises_cluster_job", table_name="promises")
    op.drop_table("promises")
    op.drop_table("notices_sent")
    op.drop_table("notices")
    op.drop_index("ix_nodes_cluster_node", table_name="nodes")
    op.drop_table("nodes")
    op.drop_index("ix_ledger_account", table_name="ledger")
    op.drop_table("ledger")
    op.drop_index("ix_jobs_cluster_ended", table_name="jobs")
    op.drop_table("jobs")
    op.drop_index("ix_expected_cluster_time", table_name="expected")
    op.drop_index("ix_expected_cluster_job", table_name="expected")
    op.drop_table("expected")
    op.drop_index("ix_events_cluster_job", table_name="events")
    op.drop_table("events")
    op.drop_table("evaluations")
    op.drop_table("deliveries")
    op.drop_index("ix_decisions_cluster_job", table_name="decisions")
    op.drop_table("decisions")
    op.drop_table("checkpoints")
    op.drop_index("ix_breaches_cluster_job", table_name="breaches")
    op.drop_table("breaches")
    op.drop_table("batches")
    op.drop_index(op.f("ix_audit_time"), table_name="audit")
    op.drop_table("audit")
    op.drop_table("tokens")
    op.drop_table("leases")
    op.drop_index("ix_federation_job", table_name="federation")
    op.drop_table("federation")
    op.drop_table("clusters")
