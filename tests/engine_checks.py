"""How often the tests recompute the engine's invariants."""

import sys
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.engine.validate import check
from tests.property_examples import examples

__all__ = ["check_fewer_batches"]

_FEW: Final = 6
_FIRST: Final = 40
_EACH: Final = 5


def check_fewer_batches() -> None:
    """In the short run, check after every fifth batch the state of an engine that has more than six jobs or
    has handled 40 batches.

    A check takes up to two thirds of the time of such a test, and most faults last. The long run checks each
    batch.
    """
    engine = sys.modules.get("schedd.engine.engine")
    if engine is not None and examples(_EACH) < _EACH:
        engine.check = _check_some_batches  # type: ignore[attr-defined]


def _check_some_batches(state: EngineState) -> None:
    short = len(state.records) <= _FEW and state.generation <= _FIRST
    if short or state.generation % _EACH == 0:
        check(state)
