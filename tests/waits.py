"""Deadline of waits in tests."""

from typing import Final

__all__ = ["WAIT_S"]

WAIT_S: Final = 120.0
"""Seconds after which something that must happen is taken for missing; a busy machine may need many."""
