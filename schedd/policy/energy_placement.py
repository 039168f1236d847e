"""Which of the nodes that are free a job goes to: those that draw least for its work."""

from collections.abc import Mapping
from dataclasses import dataclass

from schedd.policy.economy import Draw

__all__ = ["EnergyPlacement", "joules_for_work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPlacement:
    """With ``prefer``, of the nodes that are free at its start a job goes to those that draw least for it;
    one that would end less than ``urgent`` seconds before its deadline to the fastest.
    """

    prefer: bool = False
    urgent: int = 3600


def joules_for_work(
    draws: Mapping[str, Draw | None], speeds: Mapping[str, float], gpus: float
) -> dict[str, float]:
    """By node, the joules that a core draws, with so many ``gpus`` for it, while a node of speed 1 would need
    a second. A node of which no watts are known counts as the worst of those that are.
    """
    known = {
        name: (draw.core + gpus * draw.gpu) / speeds[name] for name, draw in draws.items() if draw is not None
    }
    worst = max(known.values(), default=0.0)
    return {name: known.get(name, worst) for name in draws}
