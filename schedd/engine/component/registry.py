"""The components of all features, and the functions of a hook."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from schedd.engine.component.declaration import Component
from schedd.feature_list import feature_modules
from schedd.wire import JobFacts

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot


BatchHook = Literal[
    "before_events", "time_passed", "before_dispatch", "settle", "batch_ended", "next_wake"
]  # hooks of each batch


Call = tuple[str, Callable[..., Any]]
Calls = tuple[Call, ...]
IdleHooks = frozenset[tuple[str, str]]
"""Names of components, each with the name of a hook that has nothing to do: see ``Component.idle_hooks``."""
NOTHING_IDLE: Final[IdleHooks] = frozenset()
_NOBODY: Final[frozenset[str]] = frozenset()


@cache
def components() -> tuple[Component[Any], ...]:
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def component_calls(hook: str) -> Calls:
    """Functions of a hook with their component's name: components without the hook cost nothing."""
    found = ((one.name, getattr(one, hook)) for one in components())
    return tuple((name, call) for name, call in found if call is not None)


def job_calls(known: "EngineState | PlanSnapshot", hook: str, facts: JobFacts | None = None) -> Calls:
    """Return the functions of a hook about one job, each with the name of its component. Idle ones are left
    out, except for a job that names the component: see ``Component.idle_hooks``.
    """
    idle = known.idle_hooks
    if idle is None:
        idle = note_idle_hooks(known)
    return _job_calls(hook, idle, find_named(tuple(facts.resources)) if facts is not None else _NOBODY)


def working_calls(state: "EngineState", hook: str) -> Iterable[Call]:
    """Return the functions of a hook of the components with work, each with the name of its component."""
    return select_calls(hook)(state.parts)


def working_job_calls(state: "EngineState", hook: str, facts: JobFacts) -> Iterable[Call]:
    """Return those that have work, as ``working_calls``, and are not idle, as ``job_calls``."""
    idle = state.idle_hooks
    if idle is None:
        idle = note_idle_hooks(state)
    return select_calls(hook, idle, find_named(tuple(facts.resources)))(state.parts)


def find_idle_hooks(state: "EngineState") -> IdleHooks:
    """Return the hooks that are idle now, each with the name of its component."""
    having = ((one.name, one.idle_hooks) for one in components())
    return frozenset((name, hook) for name, find in having if find is not None for hook in find(state))


def note_idle_hooks(known: "EngineState | PlanSnapshot") -> IdleHooks:
    state = cast("EngineState", known)  # a snapshot has them
    state.idle_hooks = _intern(find_idle_hooks(state))
    return state.idle_hooks


@cache
def _intern(hooks: IdleHooks) -> IdleHooks:
    """Return the first of equal sets: keys of caches with it are found by identity, not by all members."""
    return hooks


@lru_cache(maxsize=10_000)
def find_named(resources: tuple[str, ...]) -> frozenset[str]:
    """Return the components that a job with these resources names."""
    names = {name.strip().lower() for name in resources}
    return frozenset(one.name for one in components() if not one.named_by.isdisjoint(names))


@cache
def _job_calls(hook: str, idle: IdleHooks, named: frozenset[str]) -> Calls:
    return tuple(call for call in component_calls(hook) if call[0] in named or (call[0], hook) not in idle)


def hook_work_fields(component: Component[Any], hook: str) -> tuple[str, ...]:
    """The fields of a component's state that hold the work of a hook; empty: it is always called."""
    found = component.hook_fields.get(hook)
    if found is None:
        found = component.work_fields if hook in get_args(BatchHook) else ()
    return found


@cache
def select_calls(
    hook: str, idle: IdleHooks = NOTHING_IDLE, named: frozenset[str] = _NOBODY
) -> Callable[[Mapping[type[Any], Any]], Iterable[Call]]:
    """Return a generator of the functions of a hook with work, written for the declared fields: a loop over
    the components with ``getattr`` takes several times as long, and each job needs some twenty such passes.
    What is called in each batch gives it the parts itself, which saves a call.
    """
    calls = _job_calls(hook, idle, named)
    by_name = {one.name: one for one in components()}
    fields = {name: () if name in named else hook_work_fields(by_name[name], hook) for name, _ in calls}
    if not any(fields.values()):
        return lambda _parts: calls
    lines = [f"def {hook}(parts):"]
    names: dict[str, Any] = {}
    tests: list[str] = []
    for i, call in enumerate(calls):
        names |= {f"call{i}": call, f"kind{i}": by_name[call[0]].state}
        checks = [f"part.{field}" for field in fields[call[0]]]
        if checks:
            lines += [f" part = parts[kind{i}]", f" if {' or '.join(checks)}:"]
            first, *others = fields[call[0]]
            tests += [f"(part := parts[kind{i}]).{first}", *(f"part.{field}" for field in others)]
        lines.append(f"  yield call{i}" if checks else f" yield call{i}")
    if all(fields.values()):  # usually none has work: no generator then
        lines += ["def find(parts):", f" return {hook}(parts) if {' or '.join(tests)} else ()"]
    exec("\n".join(lines), names)
    return cast("Callable[..., Iterable[Call]]", names["find" if all(fields.values()) else hook])


@cache
def component_handlers() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}
