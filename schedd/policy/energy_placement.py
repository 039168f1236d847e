"""Preference for nodes with the least energy for a job's work."""

from collections.abc import Mapping

from pydantic import Field

from schedd.policy.economy import Draw
from schedd.wire.section import Section
from schedd.wire.times import Whole


class EnergyPlacement(Section):
    """Jobs prefer nodes that draw less power. See docs/administrators/alternatives.md."""

    prefer: bool = False
    """A job takes those of the nodes free at its start that need the least energy for its work."""
    urgent: Whole = Field(default=3600, ge=0, le=3650 * 86_400)
    """A job that would end less than this before its deadline takes the fastest nodes instead."""


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
