"""The durable side: the event log, decisions, checkpoints, told starts, promises, tokens, audit."""

from schedd.store.errors import StoreError
from schedd.store.journal import DurableJournal, Journal, MemoryJournal
from schedd.store.records import Batch, Breach, Limits, Promise, Recovered
from schedd.store.store import Store

__all__ = [
    "Batch",
    "Breach",
    "DurableJournal",
    "Journal",
    "Limits",
    "MemoryJournal",
    "Promise",
    "Recovered",
    "Store",
    "StoreError",
]
