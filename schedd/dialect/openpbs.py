"""OpenPBS's resource requests: ``select`` and ``place``, or the older ``nodes`` and ``ncpus``."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from schedd.dialect.advres import advres_names, refuse_flags
from schedd.dialect.asked import Asked, parse_amount, parse_typed
from schedd.dialect.assemble import assemble, by_lower_name, resources_of, walltime_of
from schedd.dialect.cost_limit import cost_limit_names
from schedd.dialect.deadline import deadline_names
from schedd.dialect.openpbs_nodes import nodes_chunks
from schedd.dialect.selectspec import Placing, SelectChunk, parse_place, parse_select
from schedd.dialect.shared import check_shared, shared_names
from schedd.dialect.sharing import NodeKind, shared_or_not
from schedd.dialect.span import Span, whole_number
from schedd.dialect.throughput import work_names
from schedd.dialect.units import looks_like_amount, parse_size
from schedd.model.request import Chunk, NodeSets, Place, Request
from schedd.wire import NO_TYPES, ResourceTypes

__all__ = ["is_shrinkable", "parse_openpbs"]

_NOT_FOR_THE_PLAN: Final = frozenset({"mpiprocs", "ompthreads", "nchunk"})
"""How a job's processes are started inside its chunks."""

_TRUE: Final = frozenset({"true", "t", "y", "1"})
_FALSE: Final = frozenset({"false", "f", "n", "0"})
"""How the server reads a boolean."""

_ONE_NODE: Final = frozenset({"host", "vnode"})
"""Of these every node has a value of its own: with `group=` of it a job is on one; scattered on none."""

_SAID: Final = {True: frozenset({"excl"}), False: frozenset[str]()}

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_LEVELS: Final[Mapping[str, Collection[int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Site:
    """What is known of the site's resources; names in lower case to their own spelling.

    ``told``: a server is at hand, so that a resource without a type deserves a remark.
    """

    amounts: Mapping[str, str]
    types: ResourceTypes
    levels: Mapping[str, Collection[int]]
    told: bool
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
) -> Request:
    """The request of an OpenPBS job; its meaning is set out in ``docs/reference/requests.md``.

    ``resources`` is its ``Resource_List`` (or what a user would write); ``schedselect``, the server's own
    select with the defaults filled in, goes before ``select``. ``defaults`` are ``resources_default``,
    ``shared`` are names of resources of the whole cluster, which are no part of the request;
    ``chunk_defaults`` the ``default_chunk`` of queue and server. ``mem_per_core_default`` in KiB is planned
    for chunks that ask for no memory, never more than their vmem. ``known_nodes`` tells hosts from
    properties in ``nodes=``; ``generic`` are node-locked resources that the plan knows; ``types`` those of
    the server's resources (None: there is no server, and the look of a value decides), ``levels`` the values
    on nodes of those that jobs do not use up; ``kinds`` those of the nodes where some are shared otherwise
    than jobs ask. ``runs``: the job has started. Raises RequestError.
    """
    asked = Asked({**resources, **({"select": schedselect} if schedselect.strip() else {})}, defaults)
    refuse_flags(asked.values)
    asked.ignore(
        {
            "schedselect",
            *deadline_names(asked.values),
            *cost_limit_names(asked.values),
            *work_names(asked.values),
            *advres_names(asked.values),
        }
    )
    if shared:
        check_shared(asked.values, shared, types or NO_TYPES)
        asked.ignore(shared_names(asked.values, shared))
    site = _Site(
        by_lower_name(generic),
        types or NO_TYPES,
        levels,
        types is not None,
        {name.strip().lower(): value for name, value in chunk_defaults.items()},
        mem_per_core_default,
        frozenset(name.lower() for name in shared),
    )
    usual = Placing()
    if (about := asked.get("select")) is not None:
        selected = parse_select(about)
        chunks = [_planned(chunk, asked, site) for chunk in selected]
        summed = {name for chunk in selected for name, _ in chunk.resources}
        asked.ignore({"nodes", *summed})  # the server writes the sums of all chunks there
        asked.ignore(
            name for name in asked.names if site.types.is_host_resource(name) or name in _NOT_FOR_THE_PLAN
        )
    elif (about := asked.get("nodes")) is not None:
        chunks, exclusive = nodes_chunks(about, asked, known_nodes)
        chunks = [_with_default_memory(chunk, mem_per_core_default) for chunk in chunks]
        usual = Placing(Place.SCATTER, exclusive)
    else:
        about = asked.get("ncpus") or Span.of("1", "ncpus")
        usual = Placing(Place.PACK)
        names = [
            name
            for name in asked.names
            if site.types.is_host_resource(name) or name in site.amounts or name in _NOT_FOR_THE_PLAN
        ]
        spans = ((name, asked.get(name)) for name in names)
        chunks = [_planned(SelectChunk(1, tuple((n, s) for n, s in spans if s is not None)), asked, site)]
    chunks = _on_nodes_of_the_queue(chunks, asked)
    placing = parse_place(span) if (span := asked.get("place")) is not None else usual
    asked.ignore({"nodect"})
    exclusive = placing.exclusive
    if kinds:
        exclusive, chunks, note = shared_or_not(placing.words or _SAID[exclusive], chunks, kinds)
        if note:
            asked.note(note)
    request = assemble(
        chunks,
        placing.place,
        exclusive=exclusive,
        walltime=_walltime(asked, runs=runs),
        asked=asked,
        about=about,
    )
    if placing.group.lower() in _ONE_NODE:
        return replace(request, place=Place.PACK) if request.place is Place.FREE else request
    if placing.group and request.units > 1 and request.place is not Place.PACK:
        return replace(request, together=NodeSets(by=placing.group.lower(), wait=None))
    return request


def _on_nodes_of_the_queue(chunks: list[Chunk], asked: Asked) -> list[Chunk]:
    """With the property that the queue's default of ``neednodes`` names: where its vnodes have a queue."""
    wanted = asked.defaults.get("neednodes")
    asked.ignore({"neednodes"})
    if wanted is None:
        return chunks
    feature = frozenset({wanted})
    return [
        replace(chunk, features=tuple(sorted({*chunk.features, feature}, key=sorted))) for chunk in chunks
    ]


def _planned(chunk: SelectChunk, asked: Asked, site: _Site) -> Chunk:
    """A chunk with what it asks for, and the site's defaults for what it does not name."""
    planned = Chunk(count=chunk.count)
    amounts: dict[str, int] = {}
    features: set[frozenset[str]] = set()
    given = dict(chunk.resources)
    defaults = {name: Span.of(value, name) for name, value in site.chunk_defaults.items() if value.strip()}
    for name, span in {**defaults, **given}.items():
        if name == "ncpus":
            planned = replace(planned, cpus=whole_number(span.inner(), "ncpus=", least=0))
        elif name == "ngpus":
            planned = replace(planned, gpus=whole_number(span.inner(), "ngpus=", least=0))
        elif name == "mem":
            planned = replace(planned, mem=parse_size(span.inner()))
        elif name == "vmem":
            planned = replace(planned, vmem=parse_size(span.inner()))
        elif name in ("host", "vnode"):
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
            _note_unknown_type(name, "a number", asked, site)
        else:
            _add_feature(name, span, features, asked, site)
    planned = replace(
        planned,
        resources=resources_of({name: amount for name, amount in amounts.items() if amount}),
        features=tuple(sorted(features, key=sorted)),
    )
    return (
        planned
        if "mem" in given or "mem" in defaults
        else _with_default_memory(planned, site.mem_per_core_default)
    )


def _add_feature(name: str, span: Span, features: set[frozenset[str]], asked: Asked, site: _Site) -> None:
    """A boolean or a string; as in the server, False also fits a node without the resource."""
    value = span.unquoted()
    kind = site.types.resource_type(name)
    if not kind:
        if value.lower() in ("true", "false"):
            kind = "boolean"
            _note_unknown_type(name, "a boolean", asked, site)
        elif looks_like_amount(value):
            asked.note(f"not planned: {name}={span.brief()}")
            _note_unknown_type(name, "a number", asked, site)
            return
        else:
            _note_unknown_type(name, "a string", asked, site)
    if kind != "boolean":
        features.add(frozenset({f"{name}={value}"}))
    elif value.lower() in _TRUE:
        features.add(frozenset({f"{name}=True"}))
    elif value.lower() in _FALSE:
        features.add(frozenset({f"!{name}=True"}))
    else:
        raise span.error(f"{name}= needs True or False, not {span.shown()}", "True or False")


def _note_unknown_type(name: str, read_as: str, asked: Asked, site: _Site) -> None:
    if site.told:
        asked.note(f"the server does not tell the type of {name}; it was read as {read_as}")


def _with_default_memory(chunk: Chunk, per_core: int) -> Chunk:
    """The site's default for a chunk that names no memory, no more than the virtual memory it names."""
    if chunk.mem or not per_core:
        return chunk
    default = per_core * chunk.cpus
    return replace(chunk, mem=min(default, chunk.vmem) if chunk.vmem else default)


def is_shrinkable(resources: Mapping[str, str]) -> bool:
    """Whether the scheduler sets the walltime of the job at its start (min_walltime, max_walltime)."""
    return "min_walltime" in resources or "max_walltime" in resources


def _walltime(asked: Asked, *, runs: bool) -> int | None:
    """The walltime by which a job is planned.

    Of a job that may be shrunk (min_walltime) and waits, its max_walltime: its walltime is set to that when
    it starts. Of any other, and without a max_walltime, the soft walltime, which is what its owner expects;
    else the walltime.
    """
    walltime = walltime_of(asked)
    soft = walltime_of(asked, "soft_walltime")
    longest = walltime_of(asked, "max_walltime")
    shortest = walltime_of(asked, "min_walltime")
    if longest is not None and not runs:
        asked.note("planned with its max_walltime, to which its walltime is set at its start")
        return longest
    if soft is not None and (walltime is None or soft < walltime):
        asked.note("planned with its soft_walltime; beyond it the plan is moved as for any overrun")
        return soft
    if shortest is not None and walltime is not None and not runs:
        return max(walltime, shortest)
    return walltime
