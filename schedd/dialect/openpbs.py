"""OpenPBS's resource requests: ``select`` and ``place``, or the older ``nodes`` and ``ncpus``."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from schedd.dialect.advres import advres_names, refuse_flags
from schedd.dialect.assemble import assemble, by_lower_name, requested_walltime, sorted_amounts
from schedd.dialect.cost_limit import cost_limit_names
from schedd.dialect.deadline import deadline_names
from schedd.dialect.openpbs_nodes import nodes_chunks
from schedd.dialect.partition import NODE_PARTITION, PARTITION, parse_partitions
from schedd.dialect.qos import qos_names
from schedd.dialect.requested_resources import RequestedResources, parse_amount, parse_typed
from schedd.dialect.selectspec import PlaceSpec, SelectChunk, parse_place, parse_select
from schedd.dialect.shared import check_shared, shared_names
from schedd.dialect.sharing import NodeKind, shared_or_not
from schedd.dialect.span import Span, parse_integer
from schedd.dialect.throughput import work_names
from schedd.dialect.topology import TOPOLOGY, parse_topology
from schedd.dialect.units import parse_size, resembles_amount
from schedd.model.request import Chunk, NodeSets, Place, Request
from schedd.wire import NO_TYPES, ResourceTypes
from schedd.wire.resources import OWN_VNODE, is_adapter_amount

_NOT_FOR_THE_PLAN: Final = frozenset({"mpiprocs", "ompthreads", "nchunk"})
"""Resources that control how processes are started inside chunks."""

VSCATTER_NOTE: Final = "vscatter is planned as scatter on hosts with several vnodes, which is stricter"

_TRUE: Final = frozenset({"true", "t", "y", "1"})
_FALSE: Final = frozenset({"false", "f", "n", "0"})  # spellings of booleans that the server accepts

_ONE_NODE: Final = frozenset({"host", "vnode"})
"""Resources with a distinct value on every node: with `group=` of one of them, a job runs on one node."""

_SAID: Final = {True: frozenset({"excl"}), False: frozenset[str]()}

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_LEVELS: Final[Mapping[str, Collection[int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Site:
    """The site's resources; ``amounts`` has the original spelling by lower-case name.

    ``has_server``: a server reports types, so a resource without a type causes a remark.
    """

    amounts: Mapping[str, str]
    types: ResourceTypes
    levels: Mapping[str, Collection[int]]
    has_server: bool
    chunk_defaults: Mapping[str, str]
    mem_per_core_default: int
    shared: frozenset[str]


def parse_openpbs(
    resources: Mapping[str, str],
    *,
    schedselect: str = "",
    defaults: Mapping[str, str] = _NONE,
    chunk_defaults: Mapping[str, str] = _NONE,
    mem_per_core_default: int = 0,
    known_nodes: Collection[str] = (),
    generic: Collection[str] = (),
    shared: Collection[str] = (),
    types: ResourceTypes | None = None,
    levels: Mapping[str, Collection[int]] = _NO_LEVELS,
    kinds: Collection[NodeKind] = (),
    runs: bool = False,
    obeyed: Collection[str] = (),
) -> Request:
    """Parse the request of an OpenPBS job. Its meaning is specified in ``docs/reference/requests.md``.

    ``resources`` is the job's ``Resource_List`` (or a user's input). ``schedselect``, the server's select
    with defaults filled in, overrides ``select``; the server writes it when it queues a job and adds its
    defaults to the list, so no default of a later time applies, except the nodes of a queue. ``defaults`` are
    ``resources_default``, ``chunk_defaults`` the ``default_chunk`` of queue and server. ``shared``: names of
    resources of the whole cluster, which are not part of the request. ``mem_per_core_default`` (KiB) is
    planned for chunks without a memory request, at most their vmem. ``known_nodes`` distinguishes hosts from
    properties in ``nodes=``. ``generic``: node-locked resources in the plan. ``types``: types of the server's
    resources; None: there is no server, and the form of a value decides. ``levels``: values on nodes of
    resources that jobs do not consume. ``kinds``: node classes, if the sharing of some nodes is decided by
    the node. ``runs``: the job has started. ``obeyed``: requested resources that others obey. Raises
    RequestError.
    """
    if schedselect.strip():
        resources = {**resources, "select": schedselect}
        defaults = {name: text for name, text in defaults.items() if name == "neednodes"}
    requested = RequestedResources(resources, defaults)
    refuse_flags(requested.values)
    requested.ignore(obeyed)
    requested.ignore(
        {
            "schedselect",
            *deadline_names(requested.values),
            *cost_limit_names(requested.values),
            *work_names(requested.values),
            *advres_names(requested.values),
            *qos_names(requested.values),
        }
    )
    if shared:
        check_shared(requested.values, shared, types or NO_TYPES)
        requested.ignore(shared_names(requested.values, shared))
    site = _Site(
        by_lower_name(generic),
        types or NO_TYPES,
        levels,
        types is not None,
        {name.strip().lower(): value for name, value in chunk_defaults.items()},
        mem_per_core_default,
        frozenset(name.lower() for name in shared),
    )
    usual = PlaceSpec()
    if (about := requested.get("select")) is not None:
        selected = parse_select(about)
        chunks = [_planned(chunk, requested, site) for chunk in selected]
        summed = {name for chunk in selected for name, _ in chunk.resources}
        requested.ignore({"nodes", *summed})  # the server writes the sums of all chunks there
        requested.ignore(
            name for name in requested.names if site.types.is_host_resource(name) or name in _NOT_FOR_THE_PLAN
        )
    elif (about := requested.get("nodes")) is not None:
        chunks, exclusive = nodes_chunks(about, requested, known_nodes)
        chunks = [_with_default_memory(chunk, mem_per_core_default) for chunk in chunks]
        usual = PlaceSpec(Place.SCATTER, exclusive)
    else:
        about = requested.get("ncpus") or Span.from_text("1", "ncpus")
        usual = PlaceSpec(Place.PACK)
        names = [
            name
            for name in requested.names
            if site.types.is_host_resource(name) or name in site.amounts or name in _NOT_FOR_THE_PLAN
            if name not in obeyed
        ]
        spans = ((name, requested.get(name)) for name in names)
        chunks = [_planned(SelectChunk(1, tuple((n, s) for n, s in spans if s is not None)), requested, site)]
    chunks = _add_queue_properties(chunks, requested)
    for name in (PARTITION, NODE_PARTITION):
        if name not in obeyed and not site.types.is_host_resource(name):
            chunks = _in_partitions(chunks, requested, name)
    placing = parse_place(span) if (span := requested.get("place")) is not None else usual
    requested.ignore({"nodect"})
    exclusive = placing.exclusive
    if "excl" in placing.words and OWN_VNODE in generic:
        requested.note("excl is planned as exclhost on hosts with several vnodes, which is stricter")
    several = sum(chunk.count for chunk in chunks) > 1
    if "vscatter" in placing.words and OWN_VNODE in generic and several:
        # The adapter reports `free` and an own vnode for each chunk where there are too few hosts.
        requested.note(VSCATTER_NOTE)
    if kinds:
        exclusive, chunks, note = shared_or_not(placing.words or _SAID[exclusive], chunks, kinds)
        if note:
            requested.note(note)
    wish = parse_topology(span) if (span := requested.get(TOPOLOGY)) is not None else None
    request = assemble(
        chunks,
        placing.place,
        exclusive=exclusive,
        walltime=_walltime(requested, runs=runs),
        requested=requested,
        about=about,
    )
    if placing.group.lower() in _ONE_NODE:
        return replace(request, place=Place.PACK) if request.place is Place.FREE else request
    if wish is not None and not placing.group and request.units > 1 and request.place is not Place.PACK:
        return replace(request, together=wish)
    if placing.group and request.units > 1 and request.place is not Place.PACK:
        return replace(request, together=NodeSets(by=placing.group.lower(), wait=None))
    return request


def _add_queue_properties(chunks: list[Chunk], requested: RequestedResources) -> list[Chunk]:
    """Add the property in the queue's default ``neednodes``, which binds vnodes to queues."""
    wanted = requested.defaults.get("neednodes")
    requested.ignore({"neednodes"})
    if wanted is None:
        return chunks
    feature = frozenset({wanted})
    return [
        replace(chunk, features=tuple(sorted({*chunk.features, feature}, key=sorted))) for chunk in chunks
    ]


def _in_partitions(chunks: list[Chunk], requested: RequestedResources, resource: str) -> list[Chunk]:
    """Restrict chunks to the partitions that this resource requests for the whole job: without partitions of
    the site, nodes with a property or a resource ``partition`` of that name.
    """
    span = requested.get(resource)
    names = parse_partitions(span) if span is not None else frozenset()
    if not names:
        return chunks
    wanted = names | {f"{PARTITION}={name}" for name in names}
    return [replace(chunk, features=(*chunk.features, wanted)) for chunk in chunks]


def _planned(chunk: SelectChunk, requested: RequestedResources, site: _Site) -> Chunk:
    """Return the planned form of a chunk: its resources, completed by the site's defaults."""
    planned = Chunk(count=chunk.count)
    amounts: dict[str, int] = {}
    features: set[frozenset[str]] = set()
    given = dict(chunk.resources)
    defaults = {
        name: Span.from_text(value, name) for name, value in site.chunk_defaults.items() if value.strip()
    }
    for name, span in {**defaults, **given}.items():
        if name == "ncpus":
            planned = replace(planned, cpus=parse_integer(span.inner(), "ncpus=", least=0))
        elif name == "ngpus":
            planned = replace(planned, gpus=parse_integer(span.inner(), "ngpus=", least=0))
        elif name == "mem":
            planned = replace(planned, mem=parse_size(span.inner()))
        elif name == "vmem":
            planned = replace(planned, vmem=parse_size(span.inner()))
        elif name == "host":  # its case does not matter, unlike that of any other string
            features.add(frozenset({span.unquoted(), span.unquoted().lower()}))
        elif name == "vnode":
            features.add(frozenset({span.unquoted()}))
        elif name in _NOT_FOR_THE_PLAN or (name in site.shared and name not in site.amounts):
            pass
        elif site.types.is_amount(name):
            amount = parse_typed(span.inner(), site.types.resource_type(name))
            if site.types.is_level(name) and name not in site.amounts:
                if amount:
                    enough = frozenset(f"{name}={one}" for one in site.levels.get(name, ()) if one >= amount)
                    features.add(enough or frozenset({f"{name}>={span.unquoted()}"}))
                continue
            amounts[site.amounts.get(name, site.types.spelled(name))] = amount
        elif not site.types.resource_type(name) and name in site.amounts:
            amounts[site.amounts[name]] = parse_amount(span)
            _note_unknown_type(name, "a number", requested, site)
        else:
            _add_feature(name, span, features, requested, site)
    planned = replace(
        planned,
        resources=sorted_amounts({name: amount for name, amount in amounts.items() if amount}),
        features=tuple(sorted(features, key=sorted)),
    )
    return (
        planned
        if "mem" in given or "mem" in defaults
        else _with_default_memory(planned, site.mem_per_core_default)
    )


def _add_feature(
    name: str, span: Span, features: set[frozenset[str]], requested: RequestedResources, site: _Site
) -> None:
    """Add a boolean or a string. As in the server, False also matches a node without the resource."""
    value = span.unquoted()
    kind = site.types.resource_type(name)
    if not kind:
        if value.lower() in ("true", "false"):
            kind = "boolean"
            _note_unknown_type(name, "a boolean", requested, site)
        elif resembles_amount(value):
            requested.note(f"not planned: {name}={span.brief()}")
            _note_unknown_type(name, "a number", requested, site)
            return
        else:
            _note_unknown_type(name, "a string", requested, site)
    if kind != "boolean":
        features.add(frozenset({f"{name}={value}"}))
    elif value.lower() in _TRUE:
        features.add(frozenset({f"{name}=True"}))
    elif value.lower() in _FALSE:
        features.add(frozenset({f"!{name}=True"}))
    else:
        raise span.error(f"{name}= needs True or False, not {span.shown()}", "True or False")


def _note_unknown_type(name: str, read_as: str, requested: RequestedResources, site: _Site) -> None:
    if site.has_server and not is_adapter_amount(name):
        requested.note(f"the server does not tell the type of {name}; it was read as {read_as}")


def _with_default_memory(chunk: Chunk, per_core: int) -> Chunk:
    """Add the site's default to a chunk without a memory request, at most its virtual memory."""
    if chunk.mem or not per_core:
        return chunk
    default = per_core * chunk.cpus
    return replace(chunk, mem=min(default, chunk.vmem) if chunk.vmem else default)


def is_shrinkable(resources: Mapping[str, str]) -> bool:
    """Return whether the scheduler sets the walltime of the job at its start (min_walltime, max_walltime)."""
    return "min_walltime" in resources or "max_walltime" in resources


def _walltime(requested: RequestedResources, *, runs: bool) -> int | None:
    """Return the walltime for the plan.

    For a waiting shrinkable job (min_walltime), this is the max_walltime: the walltime is set to it at the
    start. For any other job, and without a max_walltime, it is the soft walltime, the owner's own estimate;
    else the walltime.
    """
    walltime = requested_walltime(requested)
    soft = requested_walltime(requested, "soft_walltime")
    longest = requested_walltime(requested, "max_walltime")
    shortest = requested_walltime(requested, "min_walltime")
    if longest is not None and not runs:
        requested.note("its walltime is set at its start, at most to its max_walltime")
        return longest
    if soft is not None and (walltime is None or soft < walltime):
        requested.note("planned with its soft_walltime; beyond it the plan is moved as for any overrun")
        return soft
    if shortest is not None and walltime is not None and not runs:
        return max(walltime, shortest)
    return walltime
