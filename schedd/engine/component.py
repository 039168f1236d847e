"""The component protocol: what a feature adds to the engine.

A feature's folder has a module ``component``, which declares a ``Component`` with the name ``COMPONENT``.
The engine calls components at fixed points, in the order of ``schedd/feature_list.py``, and knows none by
name. An error in a component follows the same rules as one in the engine: see ``failing.py``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from schedd.feature_list import feature_modules
from schedd.model import Node, WaitingFor
from schedd.plan.schema import Arrays, arrays_below, fork_part, load_part, save_part
from schedd.policy.economy import Draw
from schedd.policy.limits import Limit
from schedd.wire import Book, JobFacts, NodeChanged

if TYPE_CHECKING:
    from collections.abc import Generator

    from schedd.engine.facts.booking import Booking
    from schedd.engine.facts.intake import Understood
    from schedd.engine.facts.records import JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.view import Published

__all__ = [
    "AlertKind",
    "Component",
    "awaits",
    "components",
    "empty_parts",
    "fork_parts",
    "handlers_of_components",
    "last_place_checks",
    "lasting_fields",
    "leave_components",
    "limits_of_components",
    "load_parts",
    "measured_draws",
    "node_details",
    "published_parts",
    "rebuilt_part",
    "save_parts",
    "slots_of_components",
    "wait_of_components",
]

_S = TypeVar("_S")


@dataclass(frozen=True, slots=True)
class AlertKind:
    """A kind of alert: what it says in general, and whether the cause of such an alert is still there."""

    text: str
    lasts: Callable[["EngineState", str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component(Generic[_S]):
    """What one feature adds to the engine. All but name and state may be left out."""

    name: str
    """Unique. It is also the name of the feature's step, which is left out for a while after it failed."""
    state: type[_S]
    """A dataclass, of which all fields have a default. Each says how it is copied and saved: see ``declared``
    in ``plan/schema.py``. One with ``carried`` stays when the plan is rebuilt, one with ``lasting`` when a
    checkpoint cannot be read."""
    handlers: Mapping[type[Any], Callable[["EngineState", Any], None]] = field(default_factory=dict)
    """By type of event: what it does. A type of event has one handler in the whole engine."""
    begin: Callable[["EngineState"], None] | None = None
    """Called when the engine begins: with nothing, or with lasting facts of an earlier one."""
    before_events: Callable[["EngineState", str], None] | None = None
    """Called in each batch before its events are handled, with the batch's first event: time has passed."""
    nodes_reported: Callable[["EngineState", Sequence[NodeChanged]], None] | None = None
    """Called before the plan takes over what the server reports of nodes."""
    nodes_replaced: Callable[["EngineState"], None] | None = None
    """Called when the plan has other nodes than before."""
    planned_node: Callable[["EngineState", str, Node], Node] | None = None
    """Returns the node as the plan is to see it, given as it would be without the component."""
    is_away: Callable[["EngineState", str], bool] | None = None
    """Whether a node is down on purpose, and comes back when a job needs it."""
    closed_because: Callable[["EngineState", str], str] | None = None
    """Why a node gets no new jobs, to follow "node n1 is"; empty where the component does not close it."""
    closing: Callable[["EngineState"], Mapping[str, str]] | None = None
    """Nodes that are up and get no new jobs, each with why."""
    site_changed: Callable[["EngineState"], None] | None = None
    """Called when another policy of the site is in force."""
    limits: Callable[["EngineState"], Iterable[Limit]] | None = None
    """Limits that hold beside those of the server and the site. The component calls ``gather_limits`` of the
    state, and then ``limits_changed``, when they are others than before."""
    must_wait: Callable[["EngineState", "JobRecord"], WaitingFor | None] | None = None
    """Called before a job gets a place in the plan: what it must wait for; None: it may be planned."""
    must_wait_in_what_if: Callable[["Published", JobFacts, "Understood", str], WaitingFor | None] | None = (
        None
    )
    """The same for a job that is only asked about, instead of the job with this id (empty: of none)."""
    goes_last: Callable[["EngineState", str], bool] | None = None
    """Whether a job is planned after all others, whatever its priority."""
    job_holds_resources: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when a job is dispatched or runs, and when what it holds is another amount."""
    run_ended: Callable[["EngineState", "JobRecord", int], None] | None = None
    """Called when a run ended, with the moment."""
    job_left_plan: Callable[["EngineState", str], None] | None = None
    """Called when a job, or a booking by its key, has no place in the plan any more and does not run."""
    booking_requested: Callable[["EngineState", Book, str, JobFacts, "Understood"], str] | None = None
    """Called before a booking that costs something is made, with its key: why it cannot be; empty: it can."""
    booking_began: Callable[["EngineState", "Booking", str], None] | None = None
    """Called at the start of a booking, with its key."""
    before_dispatch: Callable[["EngineState", str], None] | None = None
    """Called at the end of each batch, before jobs that are due are started."""
    now_and_then: Callable[["EngineState"], None] | None = None
    """Called about once a minute, to forget what is past."""
    settle: Callable[["EngineState", str], None] | None = None
    """Called at the end of each batch, after all jobs that are due were started."""
    next_wake: Callable[["EngineState"], int] | None = None
    """When the engine is to be called again though no event arrives; FOREVER: never."""
    slots: Callable[["EngineState"], Iterable[int]] | None = None
    """Slots of the plan that the component holds: each takes nodes for a time, and is no job."""
    alerts: Mapping[str, "AlertKind"] = field(default_factory=dict)
    """The kinds of alerts that the component raises, by name."""
    published: Callable[["EngineState"], object] | None = None
    """A frozen value that other threads may read, found again by its type."""
    measured_draws: Callable[["EngineState"], Mapping[str, Draw]] | None = None
    """By node: the watts that were measured, which count before those of the settings."""
    node_details: Callable[["EngineState"], Mapping[str, Mapping[str, Any]]] | None = None
    """By node and field of its view: a value that is not the default one."""
    open_decisions: Mapping[type[Any], Callable[["EngineState", Any], bool]] = field(default_factory=dict)
    """By type of decision: whether what it led to is still awaited."""
    without_plan: Callable[[_S], None] | None = None
    """Removes references to slots from the state: the plan is rebuilt without them."""


@cache
def components() -> tuple[Component[Any], ...]:
    """The components of all features."""
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def last_place_checks() -> tuple[Callable[["EngineState", str], bool], ...]:
    """The functions ``goes_last`` of all components: they are asked for each job that is ranked."""
    return tuple(one.goes_last for one in components() if one.goes_last is not None)


@cache
def handlers_of_components() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}


def wait_of_components(state: "EngineState", record: "JobRecord") -> WaitingFor | None:
    """What a job must wait for before it may be planned; None: no component lets it wait."""
    for one in components():
        wait = one.must_wait(state, record) if one.must_wait is not None else None
        if wait is not None:
            return wait
    return None


def leave_components(state: "EngineState", key: str) -> None:
    """A job or booking has no place in the plan any more, and does not run."""
    for one in components():
        if one.job_left_plan is not None:
            one.job_left_plan(state, key)


def limits_of_components(state: "EngineState") -> tuple[Limit, ...]:
    """The limits that components add."""
    return tuple(limit for one in components() if one.limits is not None for limit in one.limits(state))


def slots_of_components(state: "EngineState") -> list[int]:
    """The slots that components hold."""
    return [slot for one in components() if one.slots is not None for slot in one.slots(state)]


def published_parts(state: "EngineState") -> dict[type[Any], object]:
    """What other threads may read of the components, by its type."""
    found = [one.published(state) for one in components() if one.published is not None]
    return {type(value): value for value in found}


def measured_draws(state: "EngineState") -> dict[str, Draw]:
    """By node: the watts that components measured."""
    found: dict[str, Draw] = {}
    for one in components():
        if one.measured_draws is not None:
            found |= one.measured_draws(state)
    return found


def node_details(state: "EngineState") -> dict[str, dict[str, Any]]:
    """By node: what views of it show beside what the server says, by field."""
    found: dict[str, dict[str, Any]] = {}
    for one in components():
        for name, values in one.node_details(state).items() if one.node_details is not None else ():
            found[name] = {**found.get(name, {}), **values}
    return found


def awaits(state: "EngineState", decision: Any) -> bool | None:
    """Whether what the decision led to is still awaited; None for a decision of no component."""
    for one in components():
        check = one.open_decisions.get(type(decision))
        if check is not None:
            return check(state, decision)
    return None


# ---- their states -------------------------------------------------------------------------------


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


def lasting_fields(one: Component[Any]) -> list[str]:
    """Names of the fields whose values outlive a checkpoint that cannot be read."""
    return [each.name for each in fields(one.state) if each.metadata.get("lasting")]


def rebuilt_part(one: Component[_S], before: _S) -> _S:
    """The component's state for a plan that is rebuilt: fields that are not carried over begin anew."""
    part = one.state()
    for each in fields(cast("Any", one.state)):
        if each.metadata.get("carried"):
            setattr(part, each.name, getattr(before, each.name))
    if one.without_plan is not None:
        one.without_plan(part)
    return part
