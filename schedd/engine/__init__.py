"""The sans-I/O engine: events in, decisions out."""

from schedd.engine.engine import Engine
from schedd.engine.log import LoggedBatch
from schedd.engine.settings import EngineSettings

__all__ = ["Engine", "EngineSettings", "LoggedBatch"]
