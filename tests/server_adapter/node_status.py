"""Status of a node as a frozen value, parsed attribute by attribute.

Unknown attributes are kept as text in `other`. A known one with a malformed value counts as absent and is
named in `unreadable`, so that one odd value never hides an object (protocol document, section 6).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from server_adapter.torque import notation as read

T = TypeVar("T")
Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node. Memory in KiB: `memory` physical, `total_memory` with swap; None until its mom reported."""

    name: str
    states: tuple[str, ...] = ()
    slots: int = 0
    properties: tuple[str, ...] = ()
    jobs: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    gpus: int = 0
    memory: int | None = None
    total_memory: int | None = None
    available_memory: int | None = None
    cores: int | None = None
    load: float | None = None
    reported: int | None = None
    mom_jobs: tuple[str, ...] = ()
    power: str = ""
    other: Values = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        """Slots held by jobs."""
        return sum(self.jobs.values())

    @property
    def down(self) -> bool:
        """Whether the server has lost the node."""
        return "down" in self.states or "unknown" in self.states

    @property
    def offline(self) -> bool:
        """Whether an admin has taken the node out of service."""
        return "offline" in self.states


def parse_node(name: str, values: Values) -> NodeStatus:
    """Return a node from its attributes, with its mom's report."""
    fields = AttributeFields(values)
    status = fields.text("status")
    report = AttributeFields(read.node_status(status))
    none: int | None = None
    no_load: float | None = None
    return NodeStatus(
        name=name,
        states=read.split_list(fields.text("state")),
        slots=fields.number("np") or 0,
        properties=read.split_list(fields.text("properties")),
        jobs=fields.parse("jobs", read.node_jobs, {}),
        note=fields.text("note"),
        gpus=fields.number("gpus") or 0,
        memory=report.parse("physmem", read.kib, none),
        total_memory=report.parse("totmem", read.kib, none),
        available_memory=report.parse("availmem", read.kib, none),
        cores=report.number("ncpus"),
        load=report.parse("loadave", float, no_load),
        reported=report.number("rectime"),
        mom_jobs=tuple(sorted(read.mom_jobs(status) or ())),
        power=fields.text("power_state"),
        other=fields.other,
        unreadable=fields.unreadable + tuple(f"status.{key}" for key in report.unreadable),
    )


class AttributeFields:
    """Parses attributes of an object one by one, and records malformed ones."""

    def __init__(self, values: Values) -> None:
        self._left = dict(values)
        self._unreadable: list[str] = []

    def text(self, key: str) -> str:
        return self._left.pop(key, "")

    def parse(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """Return the parsed value, or `default` if it is absent or malformed."""
        text = self._left.pop(key, None)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError:
            self._unreadable.append(key)
            return default

    def number(self, key: str) -> int | None:
        empty: int | None = None
        return self.parse(key, int, empty)

    def group(self, name: str) -> dict[str, str]:
        """All `name.resource` values by resource."""
        prefix = name + "."
        keys = [key for key in self._left if key.startswith(prefix)]
        return {key[len(prefix) :]: self._left.pop(key) for key in keys}

    @property
    def other(self) -> Values:
        return self._left

    @property
    def unreadable(self) -> tuple[str, ...]:
        return tuple(self._unreadable)
