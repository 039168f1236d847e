"""The sans-I/O engine: events in, decisions out."""

from schedd.engine.checkpoint import CheckpointError
from schedd.engine.engine import Engine
from schedd.engine.facts.records import Outcome
from schedd.engine.facts.settings import EngineSettings
from schedd.engine.log import Incident, LoggedBatch

__all__ = ["CheckpointError", "Engine", "EngineSettings", "Incident", "LoggedBatch", "Outcome"]
