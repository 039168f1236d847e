"""The durable side: the event log, decisions, checkpoints, told starts, promises, tokens, audit."""

from schedd.store.errors import NotLeader, StoreError
from schedd.store.journal import DurableJournal, Journal, MemoryJournal
from schedd.store.leadership import Leadership
from schedd.store.mark import Mark, Marked
from schedd.store.records import (
    STATE_KEPT,
    AuditEntry,
    Batch,
    Breach,
    Limits,
    Promise,
    PromisedJob,
    Recovered,
    Role,
    Tail,
    Token,
    Told,
)
from schedd.store.store import Store

__all__ = [
    "STATE_KEPT",
    "AuditEntry",
    "Batch",
    "Breach",
    "DurableJournal",
    "Journal",
    "Leadership",
    "Limits",
    "Mark",
    "Marked",
    "MemoryJournal",
    "NotLeader",
    "Promise",
    "PromisedJob",
    "Recovered",
    "Role",
    "Store",
    "StoreError",
    "Tail",
    "Token",
    "Told",
]
