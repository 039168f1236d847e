"""The tables. The event log and the batches it was handled in are the truth; all else follows from them.

A cluster's batches and events are numbered from 1. Times are seconds since the epoch (UTC). JSON stands as
text, so that both databases keep it byte for byte; texts have no length, so that both take the same. Keys
grow with time, so that what is old stands first.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
)

__all__ = [
    "audit",
    "batches",
    "breaches",
    "checkpoints",
    "clusters",
    "decisions",
    "evaluations",
    "events",
    "expected",
    "federation",
    "jobs",
    "leases",
    "metadata",
    "nodes",
    "promises",
    "searches",
    "tokens",
    "told",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _cluster() -> Column[int]:
    return Column("cluster", Integer, ForeignKey("clusters.id"), primary_key=True)


# `noted` is the number of the last event of which `jobs` and `nodes` know.
clusters = Table(
    "clusters",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", BigInteger, nullable=False),
    Column("noted", BigInteger, nullable=False, server_default="0"),
)

# What the engine was called with: at `now`, `calls` times in a row (0: it failed, and the batch was passed
# over; -2: the state after it stands in `checkpoints`, as the same calls may lead to another), dispatch being
# paused for `paused` (empty when it is not), having just been told to dispatch again (`resumed`) or to go on
# under other `settings` (JSON; NULL: as before). `last_event` is the number of the last event up to and with
# this batch. `chain` is a digest of this batch and all before it (NULL: written by a version without).
batches = Table(
    "batches",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("now", BigInteger, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("paused", Text, nullable=False),
    Column("resumed", Boolean, nullable=False),
    Column("settings", Text),
    Column("last_event", BigInteger, nullable=False),
    Column("chain", LargeBinary),
)

# `delivery` is the sender's id; `job` the job that it speaks of, if it is one. A body stands in `body`, or,
# when it is large, zlib-compressed in `packed`.
events = Table(
    "events",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("delivery", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("body", Text),
    Column("packed", LargeBinary),
    Column("job", Text),
    UniqueConstraint("cluster", "delivery"),
    Index("ix_events_cluster_job", "cluster", "job"),
)

# What became of each job, by the events so far: `seen` is the time of the last one. `started`, `held` (JSON:
# [[node, cpus], ...]) and `runs` are of its last run. `how`: "ended", "deleted", "gone" (from a snapshot), or
# empty while it has not `ended`.
jobs = Table(
    "jobs",
    metadata,
    _cluster(),
    Column("id", Text, primary_key=True),
    Column("seen", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("resources", Text, nullable=False),
    Column("submitted", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("started", BigInteger),
    Column("held", Text),
    Column("ended", BigInteger),
    Column("exit", BigInteger),
    Column("how", Text, nullable=False),
    Index("ix_jobs_cluster_ended", "cluster", "ended"),
)

# One row for each change of a node, by the number of the event that told it.
nodes = Table(
    "nodes",
    metadata,
    _cluster(),
    Column("event", BigInteger, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("cpus", BigInteger, nullable=False),
    Column("mem", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Index("ix_nodes_cluster_node", "cluster", "node"),
)

# `id` grows with time. `outcome` is "accepted", or "refused" with the server's `code`; NULL while unknown.
decisions = Table(
    "decisions",
    metadata,
    _cluster(),
    Column("id", Text, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("job", Text),
    Column("body", Text, nullable=False),
    Column("outcome", Text),
    Column("outcome_time", BigInteger),
    Column("code", Integer),
    Index("ix_decisions_cluster_job", "cluster", "job"),
)

# State of the engine after `batch`, compressed with zlib, in an envelope with its checksum; `chain` is that
# of the batch. `facts` are those of that state that every version reads (NULL: none were kept), likewise.
checkpoints = Table(
    "checkpoints",
    metadata,
    _cluster(),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("last_event", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("chain", LargeBinary),
    Column("facts", LargeBinary),
)

# Every start told, by the decision that told it; NULL `start`: told that none is known, for the reason `why`.
told = Table(
    "told",
    metadata,
    _cluster(),
    Column("decision", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("start", BigInteger),
    Column("why", Text, nullable=False),
    Column("actual", BigInteger),
    Index(None, "cluster", "job"),
)

# Every expected start that was told, by the number of the event that told it: in half of the cases by
# `start`, in nine of ten by `latest`; the plan had it at `planned`. `kind` is that of the event. NULL
# `actual`: it has not started since.
expected = Table(
    "expected",
    metadata,
    _cluster(),
    Column("event", BigInteger, primary_key=True, autoincrement=False),
    Column("job", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("latest", BigInteger, nullable=False),
    Column("planned", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("actual", BigInteger),
    Index("ix_expected_cluster_job", "cluster", "job"),
    Index("ix_expected_cluster_time", "cluster", "time"),
)

# A job may be promised anew after its request grew or it was requeued.
promises = Table(
    "promises",
    metadata,
    _cluster(),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("job", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("promised", BigInteger, nullable=False),
    Column("weak", Boolean, nullable=False),
    Index("ix_promises_cluster_job", "cluster", "job"),
)

# `place` counts the breaches of a batch; NULL `planned`: no start is known any more. `kind`: see Breach.
breaches = Table(
    "breaches",
    metadata,
    _cluster(),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("job", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("event", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("promised", BigInteger, nullable=False),
    Column("planned", BigInteger),
    Column("kind", Text, nullable=False, server_default="broken"),
    Index("ix_breaches_cluster_job", "cluster", "job"),
)

# What the plan was worth at `time`, over its planned `jobs`: `body` is JSON, criteria with their values.
evaluations = Table(
    "evaluations",
    metadata,
    _cluster(),
    Column("time", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", BigInteger, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

# One search for a better plan, begun at `time`: `body` is its report, JSON.
searches = Table(
    "searches",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("cluster", Integer, ForeignKey("clusters.id")),
    Column("who", Text, nullable=False),
    Column("act", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "time"),
)

# `digest` is the SHA-256 of the token; the token itself is shown once and never kept. `clusters` (JSON:
# names; NULL: all) is where it counts.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("clusters", Text),
)

# What `who` wants to be told of (empty `job`: of all own ones): a start that moved by more than `moved`
# seconds, one that comes in `ahead` seconds; by `way` (mail, command) to `address`.
notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", Integer, ForeignKey("clusters.id"), nullable=False),
    Column("who", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("moved", BigInteger),
    Column("ahead", BigInteger),
    Column("way", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("lost", Boolean, nullable=False, server_default=false()),
)

# What was told last of a job: its `start` (-1: none), the one of which it was told that it comes `soon`, and
# the deadline of which it was told that it is `lost`.
noticed = Table(
    "noticed",
    metadata,
    Column("notice", Integer, ForeignKey("notices.id"), primary_key=True, autoincrement=False),
    Column("job", Text, primary_key=True),
    Column("start", BigInteger, nullable=False),
    Column("soon", BigInteger, nullable=False),
    Column("lost", BigInteger, nullable=False, server_default="-1"),
    Column("time", BigInteger, nullable=False),
)

# Whom a notice was marked for, and when (UTC seconds of the host's clock); rows of the last hour count.
notices_told = Table(
    "notices_told",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", Integer, ForeignKey("clusters.id"), nullable=False),
    Column("who", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
)

# What changed on accounts, in the order of `number`: amounts in smallest units (see
# `schedd.engine.facts.books`). `month` (YYYY-MM) is that of `time` at the site, `payer` the owner without
# host. With the time in the key a cluster whose log was lost goes on beside what was.
ledger = Table(
    "ledger",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, primary_key=True, autoincrement=False),
    Column("month", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("balance", BigInteger, nullable=False),
    Column("other", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("payer", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("cpu_seconds", BigInteger, nullable=False),
    Column("gpu_seconds", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_ledger_account", "cluster", "account", "time"),
)

# The one daemon that leads. `expires` (0: given up) and `since` are milliseconds by the database's clock.
# With the term in a unique key, a take-over waits for whoever shares the key's lock, a renewal does not.
leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    UniqueConstraint("name", "term"),
)

# What happened to the jobs of a federation, one after another; a database of a cluster's daemon has none.
federation = Table(
    "federation",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_federation_job", "job"),
)
