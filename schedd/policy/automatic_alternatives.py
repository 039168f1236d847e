"""Rules for automatic searches of alternative plans and for applying one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["AlternativeRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRules:
    """Rules in seconds; ``every`` 0: no searches. ``limits`` by objective exclude a plan beyond a limit,
    unless the live plan is as far beyond it. The plan must be better by the share ``gain``.
    """

    every: int = 0
    seconds: float = 10.0
    gain: float = 0.02
    tolerance: float = 0.1
    limits: Mapping[str, float] = field(default_factory=dict)
