"""Reason for the choice of a job's nodes, in words."""

from collections.abc import Sequence
from typing import Final

from schedd.plan.scarcity import NodeChoice

_NAMED: Final = 3
_SIZES: Final = frozenset({"mem", "vmem"})
_KIB_PER_GIB: Final = 1 << 20


def describe_node_choice(choice: NodeChoice) -> str:
    """Return the rule and its effect: scarce resources on the nodes, or left to others."""
    if not choice.spares_scarce:
        return "tightest fit of the nodes that allow this start (spare_scarce is off)"
    if choice.wasted:
        words = f"its nodes have {_list(choice.wasted)}, which it does not request"
        return f"{words}; nodes without that did not allow this start when it was planned"
    if choice.spared:
        words = "of the nodes that allow this start, those that leave scarce resources to jobs that need them"
        return f"{words} (it does not request {_list(choice.spared)})"
    return "tightest fit of the nodes that allow this start"


def _list(attributes: Sequence[tuple[str, int]]) -> str:
    least: dict[str, int] = {}
    for name, amount in attributes:
        least[name] = min(amount, least.get(name, amount))
    words = [_format_amount(name, amount) for name, amount in least.items()]
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _format_amount(name: str, amount: int) -> str:
    if name in _SIZES:
        return f"{amount / _KIB_PER_GIB:.3g} GiB {name} or more"
    return name if amount < 2 else f"{amount} {name} or more"
