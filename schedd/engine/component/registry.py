"""The components of all features, and the functions of a hook."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from schedd.engine.component.declaration import Component
from schedd.feature_list import feature_modules

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["component_calls", "component_handlers", "components"]


@cache
def components() -> tuple[Component[Any], ...]:
    """The components of all features."""
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def component_calls(hook: str) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """The functions of a hook, each with the name of its component: a call costs nothing for the components
    without the hook.
    """
    found = ((one.name, getattr(one, hook)) for one in components())
    return tuple((name, call) for name, call in found if call is not None)


@cache
def component_handlers() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}
