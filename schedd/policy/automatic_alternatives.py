"""When alternative plans are sought by themselves, and which of them is put in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["AlternativeRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRules:
    """Seconds unless said otherwise; ``every`` 0: never. ``limits`` by objective: a plan beyond one is not
    taken, unless the live plan is beyond it as far. It must be better by the share ``gain``.
    """

    every: int = 0
    seconds: float = 10.0
    gain: float = 0.02
    tolerance: float = 0.1
    limits: Mapping[str, float] = field(default_factory=dict)
