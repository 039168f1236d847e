"""Database tables. The event log with its batches is the source of truth; everything else follows from it.

Batches and events of a cluster are numbered from 1. Times are seconds since the epoch (UTC). JSON is stored
as text, which both databases keep byte for byte; texts have no length, so that both accept the same. Keys
increase with time, so that the oldest rows come first.
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


# `noted` is the number of the last event that `jobs` and `nodes` include.
clusters = Table(
    "clusters",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", BigInteger, nullable=False),
    Column("noted", BigInteger, nullable=False, server_default="0"),
)

# Input of the engine: `calls` engine calls at `now` (0: the batch was skipped after a failure; -2: the state
# after it is in `checkpoints`, because repeated calls may lead to another). `paused` is the reason of a
# dispatch pause (empty: none), `resumed` is set if a pause has just ended, `settings` (JSON) apply from here
# on (NULL: no change). `last_event` is the number of the last event up to this batch. `chain` is the digest
# of this batch and all earlier ones (NULL: written by a version without digests).
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

# `delivery` is the sender's id of the event; `job` is the event's job, if any. The JSON is in `body`, or, if
# it is large, compressed with zlib in `packed`.
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

# Acknowledged deliveries whose events may not be in the log yet: `body` is the JSON of the request.
deliveries = Table(
    "deliveries",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

# History of jobs: `seen` is the time of the job's last event. `started`, `held` (JSON: [[node, cpus], ...])
# and `runs` describe its last run. `how`: "ended", "deleted", "moved to " with the destination, "gone"
# (missing from a snapshot), or empty while `ended` is NULL.
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

# One row per change of a node, with the number of the event that reported it.
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

# `id` increases with time. `outcome` is "accepted", or "refused" with the server's `code`; NULL while
# unknown.
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

# State of the engine after `batch`, compressed with zlib, in an envelope with a checksum; `chain` is the
# batch's digest. `facts` are the lasting facts of the state (NULL: none were stored), in the same form.
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

# Published starts, by the decision that published them. `start` is NULL if no start was known, for the reason
# `why`.
published_starts = Table(
    "published_starts",
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

# Published expected starts, with the number of the event that published them: `start` is P50, `latest` P90;
# the plan had the job at `planned`. `kind` is the kind of estimate. `actual` is NULL until the job starts.
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

# A job gets a new promise after its request grew or it was requeued.
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

# `place` numbers the breaches of a batch; `planned` is NULL if the job has no planned start. `kind`: see
# PromiseBreach.
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

# Metrics of the plan at `time`, over its planned `jobs`; `body` is JSON: values by criterion.
evaluations = Table(
    "evaluations",
    metadata,
    _cluster(),
    Column("time", BigInteger, primary_key=True, autoincrement=False),
    Column("generation", BigInteger, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

# One search for a better plan, started at `time`; `body` is its report (JSON).
searches = Table(
    "searches",
    metadata,
    _cluster(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)

# Fair shares at `time`; `body` is JSON: place, user, target and received share of each place.
share_samples = Table(
    "share_samples",
    metadata,
    _cluster(),
    Column("time", BigInteger, primary_key=True, autoincrement=False),
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

# `digest` is the SHA-256 of the token, which is never stored itself. `clusters` (JSON: names; NULL: all) is
# its scope.
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

# Subscriptions of the user `who` to notices about `job` (empty: all own jobs): if its start moves by more
# than `moved` seconds, or `ahead` seconds before it starts; by `way` (mail, command) to `address`.
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
    Column("tighter", Boolean, nullable=False, server_default=false()),
)

# The last notice about a job: its `start` (-1: none), the start of the last reminder (`soon`), the deadline
# that was reported as `lost` (minus it: as at risk), the `tighter` walltime that was proposed, and the
# `walltime` of its run.
last_notices = Table(
    "last_notices",
    metadata,
    Column("notice", Integer, ForeignKey("notices.id"), primary_key=True, autoincrement=False),
    Column("job", Text, primary_key=True),
    Column("start", BigInteger, nullable=False),
    Column("soon", BigInteger, nullable=False),
    Column("lost", BigInteger, nullable=False, server_default="-1"),
    Column("tighter", BigInteger, nullable=False, server_default="-1"),
    Column("walltime", BigInteger, nullable=False, server_default="-1"),
    Column("time", BigInteger, nullable=False),
)

# Users who got a notice, and when (UTC seconds of the host's clock); rows of the last hour count for the rate
# limit.
notices_sent = Table(
    "notices_sent",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", Integer, ForeignKey("clusters.id"), nullable=False),
    Column("who", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
)

# Changes of accounts, ordered by `number`; amounts in smallest units (see `schedd.features.accounts.state`).
# `month` (YYYY-MM) contains `time` in the site's time zone, `payer` is the owner without host. The time is
# part of the key, so that a cluster which lost its log can reuse numbers.
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

# The leader's lease. `expires` (0: released) and `since` are milliseconds by the database's clock. Since the
# term is in a unique key, a takeover waits for transactions that share the key's lock; a renewal does not.
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

# Event log of a federation; empty in the database of a cluster's daemon.
federation = Table(
    "federation",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_federation_job", "job"),
)
