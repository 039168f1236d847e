"""The components of all features, and the functions of a hook."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from schedd.engine.component.declaration import Component
from schedd.feature_list import feature_modules

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


BatchHook = Literal[
    "before_events", "time_passed", "before_dispatch", "settle", "batch_ended", "next_wake"
]  # hooks of each batch


@cache
def components() -> tuple[Component[Any], ...]:
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def component_calls(hook: str) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """Functions of a hook with their component's name: components without the hook cost nothing."""
    found = ((one.name, getattr(one, hook)) for one in components())
    return tuple((name, call) for name, call in found if call is not None)


def working_calls(state: "EngineState", hook: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of a hook of the components that have work, each with the name of its component."""
    return _selection(hook)(state.parts)


def work_fields_of(component: Component[Any], hook: str) -> tuple[str, ...]:
    """The fields of a component's state that hold the work of a hook; empty: it is always called."""
    found = component.hook_fields.get(hook)
    if found is None:
        found = component.work_fields if hook in get_args(BatchHook) else ()
    return found


@cache
def _selection(hook: str) -> Callable[[Mapping[type[Any], Any]], Iterator[tuple[str, Callable[..., Any]]]]:
    """A generator of the functions of a hook with work, written for the declared fields: a loop over the
    components with ``getattr`` takes several times as long, and each job needs some twenty such passes.
    """
    lines = [f"def {hook}(parts):"]
    names: dict[str, Any] = {}
    for i, one in enumerate(each for each in components() if getattr(each, hook) is not None):
        names |= {f"call{i}": (one.name, getattr(one, hook)), f"kind{i}": one.state}
        fields = work_fields_of(one, hook)
        if fields:
            checks = [f"part.{field}" for field in fields]
            lines += [f" part = parts[kind{i}]", f" if {' or '.join(checks)}:"]
        lines.append(f"  yield call{i}" if fields else f" yield call{i}")
    lines += [" return", " yield"]
    exec("\n".join(lines), names)
    return cast("Callable[..., Iterator[tuple[str, Callable[..., Any]]]]", names[hook])


@cache
def component_handlers() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}
