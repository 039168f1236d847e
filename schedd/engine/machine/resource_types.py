"""Resources of nodes without a known type: they are read by the look of their values, which may be wrong."""

from typing import Final

from schedd.dialect import find_dialect
from schedd.engine.facts.state import EngineState
from schedd.name_list import shorten_list
from schedd.wire.resources import is_adapter_amount

_ABOUT: Final = "types"
_SHOWN: Final = 8
_OWN: Final = frozenset({"resv", "of_queue", "sharing"})  # properties that the adapter adds to nodes


def untyped_resources(state: EngineState) -> list[str]:
    """Return node resources without a type, if the server reports types."""
    if not find_dialect(state.server.family).reports_types:
        return []
    names = {name for facts in state.node_facts.values() for name in facts.resources}
    for facts in state.node_facts.values():
        names |= {name.partition("=")[0] for name in facts.properties if "=" in name}
    names = {name for name in names - _OWN if not is_adapter_amount(name)}
    return sorted(name for name in names if not state.limits.types.resource_type(name))


def note_untyped(state: EngineState, event: str) -> None:
    """Raise an alert about resources without a type; again if the list changes."""
    names = untyped_resources(state)
    known = state.alerts.get(f"resource {_ABOUT}")
    if not names:
        state.alerts.pop(f"resource {_ABOUT}", None)
        return
    shown = shorten_list(names, _SHOWN)
    words = (
        f"the server does not tell the type of {shown}; their values are read by their look, so strings that "
        "look like numbers or booleans are compared as such"
    )
    if known is None or known.text != words:
        state.alert(event, "resource", words, _ABOUT)
