"""What became of jobs and nodes; what was written of a job is found by it."""

# ruff: noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_OF_A_JOB = ("events", "decisions", "promises", "breaches")


def upgrade() -> None:
    """What became of jobs and nodes; what was written of a job is found by it."""
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
        sa.Column("started", sa.BigInteger()),
        sa.Column("held", sa.Text()),
        sa.Column("ended", sa.BigInteger()),
        sa.Column("exit", sa.BigInteger()),
        sa.Column("how", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.id"], name=op.f("fk_jobs_cluster_clusters")),
        sa.PrimaryKeyConstraint("cluster", "id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_cluster_ended", "jobs", ["cluster", "ended"])
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
    op.create_index("ix_nodes_cluster_node", "nodes", ["cluster", "node"])
    op.add_column("clusters", sa.Column("noted", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("events", sa.Column("job", sa.Text()))
    for table in _OF_A_JOB:
        op.create_index(f"ix_{table}_cluster_job", table, ["cluster", "job"])


def downgrade() -> None:
    """Take it back."""
    for table in _OF_A_JOB:
        op.drop_index(f"ix_{table}_cluster_job", table_name=table)
    op.drop_column("events", "job")
    op.drop_column("clusters", "noted")
    op.drop_index("ix_nodes_cluster_node", table_name="nodes")
    op.drop_table("nodes")
    op.drop_index("ix_jobs_cluster_ended", table_name="jobs")
    op.drop_table("jobs")
