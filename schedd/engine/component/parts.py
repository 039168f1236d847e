"""The states of components: empty, copied, saved, restored, and kept in a rebuild of the plan."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from schedd.engine.component.declaration import Component
from schedd.engine.component.registry import components
from schedd.plan.schema import Arrays, arrays_below, fork_part, load_part, save_part

if TYPE_CHECKING:
    from collections.abc import Generator

_S = TypeVar("_S")


def empty_parts() -> dict[type[Any], Any]:
    """The states of all components in an engine that knows nothing yet, by their types."""
    return {one.state: one.state() for one in components()}


def fork_parts(parts: Mapping[type[Any], Any]) -> dict[type[Any], Any]:
    """Copies that go on independently."""
    return {kind: fork_part(part) for kind, part in parts.items()}


def save_parts(
    parts: Mapping[type[Any], Any],
) -> "Generator[bytes, None, tuple[dict[str, Any], Arrays]]":
    """Plain values by name of component, and arrays by ``component.field``; see ``save_part``."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for one in components():
        plain[one.name], found = yield from save_part(parts[one.state])
        arrays |= {f"{one.name}.{name}": array for name, array in found.items()}
    return plain, arrays


def load_parts(plain: Mapping[str, Any], arrays: Arrays) -> dict[type[Any], Any]:
    """The states that ``save_parts`` saved; a component that was not there then begins empty."""
    return {
        one.state: load_part(one.state, plain.get(one.name, {}), arrays_below(one.name, arrays))
        for one in components()
    }


def lasting_value(one: Component[_S], part: _S, name: str) -> Any:
    """Return the value of a lasting field that is to be kept."""
    keep = next(each.metadata["lasting"] for each in fields(cast("Any", one.state)) if each.name == name)
    value = getattr(part, name)
    return keep(value) if callable(keep) else value


def lasting_fields(one: Component[Any]) -> list[str]:
    """Return the names of the fields that are kept even if the checkpoint cannot be read."""
    return [each.name for each in fields(one.state) if each.metadata.get("lasting")]


def rebuilt_part(one: Component[_S], before: _S) -> _S:
    """Return the component's state for a rebuilt plan: fields that are not carried over are reset."""
    part = one.state()
    for each in fields(cast("Any", one.state)):
        keep, value = each.metadata.get("carried"), getattr(before, each.name)
        if keep:
            setattr(part, each.name, keep(value) if callable(keep) else value)
    if one.without_plan is not None:
        one.without_plan(part)
    return part
