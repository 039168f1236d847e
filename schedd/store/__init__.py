"""The durable store: event log, decisions, checkpoints, start estimates, promises, tokens, audit."""

from schedd.access_tokens import Role
from schedd.store.errors import NotLeader, StoreError
from schedd.store.journal import BatchJournal, DurableJournal, MemoryJournal
from schedd.store.leadership import Leadership
from schedd.store.log_watermark import LogWatermark, LogWatermarkFile
from schedd.store.records import (
    RESUME_FROM_CHECKPOINT,
    AuditRecord,
    EventBatch,
    LogPosition,
    Promise,
    PromiseBreach,
    PromisedJob,
    RecoveryPoint,
    RetentionLimits,
    StoredPublishedStart,
    Token,
)
from schedd.store.store import Store

__all__ = [
    "RESUME_FROM_CHECKPOINT",
    "AuditRecord",
    "BatchJournal",
    "DurableJournal",
    "EventBatch",
    "Leadership",
    "LogPosition",
    "LogWatermark",
    "LogWatermarkFile",
    "MemoryJournal",
    "NotLeader",
    "Promise",
    "PromiseBreach",
    "PromisedJob",
    "RecoveryPoint",
    "RetentionLimits",
    "Role",
    "Store",
    "StoreError",
    "StoredPublishedStart",
    "Token",
]
