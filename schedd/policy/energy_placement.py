"""Preference for nodes with the least energy for a job's work."""

from collections.abc import Mapping
from dataclasses import dataclass

from schedd.policy.economy import Draw

__all__ = ["EnergyPlacement", "joules_for_work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPlacement:
    """With ``prefer``, among free nodes a job gets those with the least energy for it; a job within
    ``urgent`` seconds of its deadline gets the fastest.
    """

    prefer: bool = False
    urgent: int = 3600


def joules_for_work(
    draws: Mapping[str, Draw | None], speeds: Mapping[str, float], gpus: float
) -> dict[str, float]:
    """Return joules per core-second of speed-1 work by node, with ``gpus`` per core. Nodes without known
    watts count as the worst known node.
    """
    known = {
        name: (draw.core + gpus * draw.gpu) / speeds[name] for name, draw in draws.items() if draw is not None
    }
    worst = max(known.values(), default=0.0)
    return {name: known.get(name, worst) for name in draws}
