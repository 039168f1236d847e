"""Dialects of the server families: request syntax and the meaning of codes."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from schedd.dialect.errors import RequestError
from schedd.dialect.moldable import sets_walltime_in_torque
from schedd.dialect.openpbs import is_shrinkable, parse_openpbs
from schedd.dialect.sharing import NodeKind
from schedd.dialect.torque import parse_torque
from schedd.model import Request
from schedd.wire import NO_TYPES, ResourceTypes
from schedd.wire.quick_init import quick_init

Family = Literal["torque", "openpbs"]

KILLED: Final = 271  # exit status of a killed job (256 + SIGTERM), in both families


@quick_init
@dataclass(frozen=True, slots=True)
class Site:
    """Context for parsing a request: rules of the site, and resources of the nodes and the cluster.

    ``mem_per_core`` (KiB) is planned for jobs without a memory request. ``pack``: units of one request may
    share a node even if the family's default is one node per unit. ``kinds``: the node classes, if the
    sharing of some nodes is decided by the node. ``types``: types of an OpenPBS server's resources.
    ``levels``: values on nodes of resources that jobs do not consume, by name in lower case. ``obeyed``:
    requested resources that others obey; they are no part of the request.
    """

    defaults: Mapping[str, str]
    pack: bool = False
    mem_per_core: int = 0
    known_nodes: Collection[str] = ()
    generic: Collection[str] = ()
    shared: Collection[str] = ()
    kinds: Collection[NodeKind] = ()
    types: ResourceTypes = NO_TYPES
    levels: Mapping[str, Collection[int]] = field(default_factory=dict)
    obeyed: Collection[str] = ()


class DescribedRequest(Protocol):
    """The facts of a job that determine its request."""

    @property
    def family(self) -> str: ...

    @property
    def resources(self) -> Mapping[str, str]: ...

    @property
    def exclusive(self) -> bool: ...

    @property
    def state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """Parser and codes of one server family.

    Codes of refused runs: ``busy``: temporary, the same run may succeed soon; ``changed``: the job was
    altered after the decision; ``refused_by_node``: refused by the daemon of a node (a prologue, an execjob
    hook, a full disk); ``refused_by_hook``: refused by a hook that the server runs before a start.
    ``no_fault``: exit statuses that are no evidence against the node.
    """

    name: str
    read: Callable[[DescribedRequest, Site], Request]
    busy: frozenset[int]
    changed: frozenset[int]
    refused_by_node: frozenset[int]
    refused_by_hook: frozenset[int]
    no_fault: frozenset[int]
    reports_types: bool  # whether the server reports the types of its resources
    is_shrinkable: Callable[[Mapping[str, str]], bool]
    """Whether the scheduler sets the walltime of a job with this resource list."""

    def is_busy(self, code: int) -> bool:
        """Return whether a run refused with this code should be retried at once on the same nodes."""
        return code in self.busy

    def is_changed(self, code: int) -> bool:
        """Return whether a run was refused because the job was altered after the decision."""
        return code in self.changed

    def is_refused_by_node(self, code: int) -> bool:
        """Whether a run was refused by the daemon of a node, not by the server."""
        return code in self.refused_by_node

    def is_refused_by_hook(self, code: int) -> bool:
        """Return whether a run was refused by a hook of the site, which may accept it a minute later."""
        return code in self.refused_by_hook

    def is_job_specific(self, code: int) -> bool:
        """Return whether a refusal with this code is known to have its cause in the job or its nodes."""
        return code in self.busy | self.changed | self.refused_by_node | self.refused_by_hook

    def speaks_against_node(self, exit_status: int) -> bool:
        """Return whether a job with this exit status may have failed because of its node."""
        return exit_status not in self.no_fault


def _read_torque(facts: DescribedRequest, site: Site) -> Request:
    return parse_torque(
        facts.resources,
        defaults=site.defaults,
        node_rule="pack" if site.pack else "exact",
        exclusive=facts.exclusive,
        mem_per_core_default=site.mem_per_core,
        known_nodes=site.known_nodes,
        generic=site.generic,
        shared=site.shared,
        obeyed=site.obeyed,
    )


def _read_openpbs(facts: DescribedRequest, site: Site) -> Request:
    return parse_openpbs(
        facts.resources,
        schedselect=facts.resources.get("schedselect", ""),
        defaults=site.defaults,
        mem_per_core_default=site.mem_per_core,
        known_nodes=site.known_nodes,
        generic=site.generic,
        shared=site.shared,
        kinds=site.kinds,
        types=site.types,
        levels=site.levels,
        obeyed=site.obeyed,
        runs=facts.state in ("R", "E", "S"),
    )


DIALECTS: Final[Mapping[str, Dialect]] = {
    "torque": Dialect(
        name="torque",
        read=_read_torque,
        busy=frozenset({15046, 15134}),  # RESCUNAV; BUSY
        changed=frozenset(),
        refused_by_node=frozenset({15043}),  # MOMREJECT
        refused_by_hook=frozenset(),
        # success; 256 + SIGKILL and + SIGTERM: a deletion; memory, walltime, or processor time exceeded
        no_fault=frozenset({0, 265, KILLED, -10, -11, -12}),
        reports_types=False,
        is_shrinkable=sets_walltime_in_torque,
    ),
    "openpbs": Dialect(
        name="openpbs",
        read=_read_openpbs,
        busy=frozenset({15044, 15208, 15227}),  # RESCUNAV; TRYAGAIN; NODE_BUSY
        changed=frozenset({15157}),  # NORUNALTEREDJOB: altered since the scheduler has read it
        # MOMREJECT; an incomplete hook; root's scripts; a hook that rejects, or wants a rerun or a deletion
        refused_by_node=frozenset({15041, 15167, 15168, 15169, 15170, 15171}),
        refused_by_hook=frozenset({15136}),  # HOOKERROR: a runjob hook
        # as above; cores in a burst or in sum, vmem, mem, processor time, or walltime exceeded; a rerun on
        # request (qrerun, a preemption, a busy workstation); a checkpoint, and a return to continue from it
        no_fault=frozenset({0, 265, KILLED, *range(-29, -23), -11, -12, -15}),
        reports_types=True,
        is_shrinkable=is_shrinkable,
    ),
}
_FIRST: Final = DIALECTS["torque"]


def _read_unknown(facts: DescribedRequest, site: Site) -> Request:
    del site
    raise RequestError(f"requests of servers of the family {facts.family!r} are not understood here")


def _never_shrinkable(resources: Mapping[str, str]) -> bool:
    del resources
    return False


_UNKNOWN: Final = Dialect(
    name="",
    read=_read_unknown,
    busy=frozenset(),
    changed=frozenset(),
    refused_by_node=frozenset(),
    refused_by_hook=frozenset(),
    no_fault=frozenset({0}),
    reports_types=False,
    is_shrinkable=_never_shrinkable,
)


def request_family(resources: Mapping[str, str]) -> str:
    """Return the family of a request: only OpenPBS has ``select``."""
    return "openpbs" if "select" in resources else _FIRST.name


def find_dialect(family: str) -> Dialect:
    """Return the dialect of a server's family; an empty name stands for TORQUE, the first supported family.

    For an unknown family, all requests are invalid and all codes are plain refusals.
    """
    return DIALECTS.get(family, _UNKNOWN) if family else _FIRST
