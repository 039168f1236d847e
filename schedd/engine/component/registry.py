"""The components of all features, and the functions of a hook."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from schedd.engine.component.declaration import Component
from schedd.feature_list import feature_modules

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


FrequentHook = Literal[
    "before_events", "time_passed", "before_dispatch", "settle", "batch_ended", "next_wake", "record_changed"
]
"""Hooks of each batch, or of each change of a job, which are called only for components with work."""


@cache
def components() -> tuple[Component[Any], ...]:
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def component_calls(hook: str) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """Functions of a hook with their component's name: components without the hook cost nothing."""
    found = ((one.name, getattr(one, hook)) for one in components())
    return tuple((name, call) for name, call in found if call is not None)


def working_calls(state: "EngineState", hook: FrequentHook) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of a hook of the components that have work, each with the name of its component."""
    parts = state.parts
    for name, call, kind, fields in _calls_with_fields(hook):
        if fields:
            part = parts[kind]
            for field in fields:
                if getattr(part, field):
                    break
            else:
                continue
        yield name, call


@cache
def _calls_with_fields(hook: str) -> tuple[tuple[str, Callable[..., Any], type[Any], tuple[str, ...]], ...]:
    found = (
        (
            *(one.name, getattr(one, hook), one.state),
            one.record_fields if hook == "record_changed" else one.work_fields,
        )
        for one in components()
    )
    return tuple(one for one in found if one[1] is not None)


@cache
def component_handlers() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}
