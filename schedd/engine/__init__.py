"""The sans-I/O engine: events in, decisions out."""

from schedd.engine.checkpoint import CheckpointError
from schedd.engine.engine import Engine
from schedd.engine.log import Incident, LoggedBatch
from schedd.engine.records import Outcome
from schedd.engine.settings import EngineSettings

__all__ = ["CheckpointError", "Engine", "EngineSettings", "Incident", "LoggedBatch", "Outcome"]
