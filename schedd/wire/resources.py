"""Resources defined by a server: types and flags. Names are case-insensitive."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Final

OWN_VNODE: Final = "own_vnode"
"""Amount that the adapter adds to hosts: number of vnodes, for chunks that need a vnode each."""
GPUS_OF: Final = "gpus_of_"
"""Beginning of amounts that the adapter adds to hosts: gpus of the vnodes with one value of a resource."""
CPUS_OF: Final = "cpus_of_"
"""Beginning of amounts that the adapter adds to hosts: cores of the vnodes with one value of a resource."""
OF_QUEUE: Final = "of_queue"
"""A vnode with a ``queue`` has the properties ``of_queue=NAME`` and ``of_queue=True``."""
SORT_PRIORITY: Final = "sort_priority"
"""A vnode with a ``Priority`` has the property ``sort_priority=5``."""
RESERVATION: Final = "resv"
"""A vnode of a reservation has the property ``resv=R12``."""
A_VNODE_OF: Final = "a_vnode_of_"
"""Beginning of the name of a vnode that no node has: no vnode is large enough for a chunk."""
VNODES_FOR: Final = A_VNODE_OF + "chunks="
"""Beginning of such a name: fewer vnodes can hold these chunks of ``vscatter`` than there are chunks."""

FLOAT_PARTS: Final = 1_000_000  # parts per unit in which amounts of type float are counted


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """A resource as defined by the server.

    ``type`` is ``long``, ``size``, ``float``, ``boolean``, ``string`` or ``string_array``; ``flags`` are
    qmgr's letters: ``h`` for host level, ``n`` and ``f`` for consumable on nodes, ``q`` on queues and server.
    """

    type: str
    flags: str = ""


_AMOUNTS: Final = frozenset({"long", "size", "float"})

BUILT_IN: Final[Mapping[str, ResourceFacts]] = MappingProxyType(
    {
        **dict.fromkeys(("mem", "vmem", "hbmem", "accelerator_memory"), ResourceFacts("size", "hqn")),
        **dict.fromkeys(("ncpus", "ngpus", "naccelerators"), ResourceFacts("long", "hqn")),
        **dict.fromkeys(("mpiprocs", "ompthreads"), ResourceFacts("long", "h")),
        **dict.fromkeys(("arch", "host", "vnode"), ResourceFacts("string", "h")),
        "resv": ResourceFacts("string", "h"),  # added by the adapter to the chunks of a reservation's jobs
        **dict.fromkeys(("accelerator_model", "accelerator_group"), ResourceFacts("string", "h")),
        **dict.fromkeys(("aoe", "eoe", "vntype"), ResourceFacts("string_array", "h")),
        **dict.fromkeys(("file", "pmem", "pvmem"), ResourceFacts("size")),
        **dict.fromkeys(("cput", "pcput", "nice", "nodect", "nchunk"), ResourceFacts("long")),
        **dict.fromkeys(("walltime", "soft_walltime", "min_walltime"), ResourceFacts("long")),
        **dict.fromkeys(("max_walltime", "cpupercent", "hpm", "ssinodes"), ResourceFacts("long")),
        **dict.fromkeys(("select", "place", "nodes", "software", "site"), ResourceFacts("string")),
        **dict.fromkeys(("nodemask", "partition"), ResourceFacts("string")),
        **dict.fromkeys(("resc", "preempt_targets"), ResourceFacts("string_array")),
        "accelerator": ResourceFacts("boolean", "h"),
        "energy": ResourceFacts("float"),
    }
)
"""Resources of every server with typed resources, used if the server does not report its own."""


_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9_]")


def gpu_amount_name(name: str, value: str) -> str:
    """Return the name of the amount of gpus with this value of a resource."""
    return GPUS_OF + _NOT_IN_A_NAME.sub("_", f"{name}_{value}".lower())


def cpu_amount_name(name: str, value: str) -> str:
    """Return the name of the amount of cores with this value of a resource."""
    return CPUS_OF + _NOT_IN_A_NAME.sub("_", f"{name}_{value}".lower())


def describe_amount(name: str) -> str:
    """Return the name of an amount for people: amounts of the adapter are cpus, gpus or vnodes."""
    if name == OWN_VNODE:
        return "vnodes"
    return "cpus" if name.startswith(CPUS_OF) else "gpus" if name.startswith(GPUS_OF) else name


def is_adapter_amount(name: str) -> bool:
    """Return whether the adapter, not the server, defines this amount of nodes."""
    return name == OWN_VNODE or name.startswith((GPUS_OF, CPUS_OF))


def is_adapter_property(name: str) -> bool:
    """Return whether the adapter, not the site, defines this property of nodes, or its negation."""
    return name.removeprefix("!").startswith((f"{OF_QUEUE}=", f"{RESERVATION}=", A_VNODE_OF))


_ADDED: Final = re.compile(
    rf":(?:{CPUS_OF}|{GPUS_OF})[a-z0-9_]+=[0-9]+|:{OWN_VNODE}=1|:vnode={A_VNODE_OF}[^:+]*"
)


def submitted_resources(resources: Mapping[str, str]) -> Mapping[str, str]:
    """Return a job's resources without what the adapter has added to its chunks."""
    found = {}
    for name in ("select", "schedselect"):
        text = resources.get(name, "")
        if ("_of_" in text or OWN_VNODE in text) and (shown := _ADDED.sub("", text)) != text:
            found[name] = shown
    if not found:
        return resources
    if "place" in resources and any(OWN_VNODE in resources[name] for name in found):
        words = resources["place"].split(":")
        found["place"] = ":".join(["vscatter" if word == "free" else word for word in words])
    return {**resources, **found}


_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_MOST_PARTS: Final = 2**50


def float_parts(text: str) -> int | None:
    """Return a float value in ``FLOAT_PARTS``, rounded and limited; None if it is not a number."""
    if _FLOAT.fullmatch(text) is None:
        return None
    parts = Decimal(text) * FLOAT_PARTS
    return round(max(Decimal(-_MOST_PARTS), min(parts, Decimal(_MOST_PARTS))))


_OF_PROCESSES: Final = frozenset({"mpiprocs", "ompthreads", "nchunk"})
"""Resources that describe processes, not nodes."""

_CHUNK_NAME: Final = re.compile(
    r"(?:\"[^\"]*\"|'[^']*'|(?P<name>(?<=[:+])[A-Za-z][\w-]*(?==)|^[A-Za-z][\w-]*(?==)))"
)


class ResourceTypes:
    """Resources reported by the server and built-in ones. Immutable."""

    __slots__ = ("_known", "levels", "reported", "spelled_select", "units")

    def __init__(self, reported: Mapping[str, ResourceFacts] = MappingProxyType({})) -> None:
        self.reported = reported
        self._known = {
            name.lower(): (name, facts) for source in (BUILT_IN, reported) for name, facts in source.items()
        }
        self.levels = frozenset(
            name
            for name, (_, facts) in self._known.items()
            if facts.type in _AMOUNTS and "h" in facts.flags and not {"n", "f"} & set(facts.flags)
        ).difference(_OF_PROCESSES)
        """Lower-case names of host resources that are compared and not consumed: see ``is_level``."""
        self.units = {name: one.type for name, one in reported.items() if one.type in ("size", "float")}
        """Type of the amount by resource, ``size`` or ``float``, for amounts that are not plain numbers."""
        self.spelled_select = lru_cache(maxsize=20_000)(self._spelled_select)
        """Return a ``select`` with resource names in the server's spelling."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceTypes) and self.reported == other.reported

    def __hash__(self) -> int:
        return hash(frozenset(self.reported))

    def spelled(self, name: str) -> str:
        """Return the name in the server's spelling, or unchanged if unknown."""
        found = self._known.get(name.lower())
        return name if found is None else found[0]

    def resource_type(self, name: str) -> str:
        """Return the type of a resource; empty if unknown."""
        found = self._known.get(name.lower())
        return "" if found is None else found[1].type

    def is_amount(self, name: str) -> bool:
        """Return whether the resource is numeric."""
        return self.resource_type(name) in _AMOUNTS

    def is_level(self, name: str) -> bool:
        """Return whether a host number is compared, not consumed (flags without ``n`` and ``f``)."""
        return name.lower() in self.levels

    def is_host_resource(self, name: str) -> bool:
        """Return whether chunks may request it (flag ``h``)."""
        found = self._known.get(name.lower())
        return found is not None and "h" in found[1].flags

    def _spelled_select(self, text: str) -> str:
        return _CHUNK_NAME.sub(
            lambda found: self.spelled(found["name"]) if found["name"] else found.group(), text
        )


NO_TYPES: Final = ResourceTypes()  # types of a server that does not report its resources
