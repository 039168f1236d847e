"""What limits add to the engine."""

from typing import Final

from schedd.engine.component import AlertKind, Component
from schedd.features.limits.rules import follow_queue_limits, follow_server_limits, limit_sources
from schedd.features.limits.state import LimitParser

__all__ = ["COMPONENT"]

COMPONENT: Final = Component(
    name="limits",
    state=LimitParser,
    limits=limit_sources,
    queue_changed=follow_queue_limits,
    server_changed=follow_server_limits,
    alerts={
        "limit": AlertKind(
            "a limit of the server cannot be read and is not enforced",
            lambda _state, _about: True,  # until the limits are read again
        )
    },
)
