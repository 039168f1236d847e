"""TORQUE's resource requests: parser of a job's ``Resource_List``."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

from schedd.dialect.advres import advres_names, refuse_flags
from schedd.dialect.assemble import assemble, by_lower_name, divided, requested_walltime, sorted_amounts
from schedd.dialect.cost_limit import cost_limit_names
from schedd.dialect.deadline import deadline_names
from schedd.dialect.nodespec import (
    NodeSpecPart,
    normal_form,
    note_gpu_modes,
    parse_alternatives,
    parse_gpu_options,
    parse_nodes,
)
from schedd.dialect.partition import parse_names, parse_partitions
from schedd.dialect.qos import qos_names
from schedd.dialect.requested_resources import RequestedResources
from schedd.dialect.shared import check_shared, shared_names
from schedd.dialect.span import Span, parse_integer
from schedd.dialect.throughput import work_names
from schedd.dialect.topology import TOPOLOGY, parse_topology
from schedd.dialect.torque_access import access_policy
from schedd.dialect.torque_names import ADDED_BY_THE_SERVER, plain_names, refuse_unplanned
from schedd.dialect.torque_tasks import parse_tasks
from schedd.model.request import Chunk, NodeSets, Place, Request
from schedd.wire.job_extensions import extension_resources
from schedd.wire.quick_init import quick_replace

_GRES: Final = re.compile(r"(?:^|[+%&,])(?P<name>[^:+=%&,]+)(?:[:=](?P<amount>[^+%&,]*))?(?=$|[+%&,])")
_SETS: Final = re.compile(r"(oneof|firstof|anyof):feature:(.+)", re.IGNORECASE)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_LONGEST_KEPT: Final = 200  # characters of a value of ``nodes=`` whose chunks are remembered


def parse_torque(
    resources: Mapping[str, str],
    *,
    defaults: Mapping[str, str] = _NONE,
    node_rule: Literal["exact", "pack"] = "exact",
    exclusive: bool = False,
    mem_per_core_default: int = 0,
    known_nodes: Collection[str] = (),
    generic: Collection[str] = (),
    shared: Collection[str] = (),
    extensions: str = "",
    obeyed: Collection[str] = (),
) -> Request:
    """Parse the request of a TORQUE job; its meaning is specified in ``docs/reference/requests.md``.

    ``resources`` is the job's ``Resource_List`` (or a user's input), ``defaults`` the ``resources_default``
    of queue and server, ``extensions`` the ``-W x=`` string. ``exclusive``: the job was submitted with ``qsub
    -n``. ``mem_per_core_default`` (KiB) is planned for jobs without a memory request, at most their vmem.
    ``known_nodes``: names of all nodes (a set is fastest). ``generic``: node-locked resources in the plan.
    ``shared``: resources of the whole cluster, and ``obeyed`` others, are not part of the request. Raises
    RequestError.
    """
    amounts = by_lower_name(generic)
    named = plain_names({**extension_resources(extensions), **resources} if extensions else resources)
    requested = RequestedResources(_split_gres(named, {"gpus", *amounts}), defaults)
    requested.ignore(obeyed)
    refuse_unplanned(requested)
    refuse_flags(requested.values)
    _refuse_unknown_gres(requested, shared)
    requested.ignore(ADDED_BY_THE_SERVER)
    if requested_walltime(requested, "minwclimit") is not None and "walltime" not in requested:
        requested.note("minwclimit has no effect without a walltime")
    requested.ignore(
        deadline_names(requested.values) | cost_limit_names(requested.values) | advres_names(requested.values)
    )
    requested.ignore(work_names(requested.values) | qos_names(requested.values))
    if shared:
        check_shared(requested.values, shared)
        requested.ignore(shared_names(requested.values, shared))
    chosen, about = _geometry(requested)
    place = Place.FREE
    if chosen == "tasks":
        tasks = parse_tasks(about, requested, amounts)
        chunks, place = list(tasks.chunks), Place.SCATTER if tasks.scatter else Place.FREE
        exclusive = exclusive or tasks.exclusive
    elif chosen == "nodes":
        chunks, exclusive = _node_chunks(
            about, requested, known_nodes, amounts, exclusive=exclusive, rule=node_rule
        )
        place = Place.SCATTER if node_rule == "exact" else Place.FREE
    elif chosen == "procs":
        chunks = [Chunk(count=parse_integer(about, "procs="))]
    else:
        chunks, place = [Chunk(cpus=parse_integer(about, "ncpus="))], Place.PACK
    _note_unfollowed(requested, chosen, chunks)

    chunks = _add_queue_properties(chunks, requested, known_nodes, amounts)
    chunks = _with_job_totals(chunks, requested, amounts)
    chunks = _on_named_nodes(chunks, requested, known_nodes, obeyed)
    chunks = _with_memory(chunks, requested, mem_per_core_default)
    chunks, sets = _restrict_to_set(chunks, requested)
    if sets is None and (span := requested.get(TOPOLOGY)) is not None:
        sets = parse_topology(span)
    policy = access_policy(requested, exclusive=exclusive)
    request = assemble(
        chunks,
        Place.SCATTER if policy.one_task_per_node else place,
        exclusive=policy.exclusive,
        walltime=requested_walltime(requested),
        requested=requested,
        about=about,
    )
    return replace(request, together=sets) if sets is not None and request.units > 1 else request


def _split_gres(resources: Mapping[str, str], known: Collection[str]) -> Mapping[str, str]:
    """Convert the ``known`` parts of ``gres=gpus:4+matlab:2`` to separate resources.

    The servers store ``qsub -l gpus=4`` in ``gres``. An explicit separate resource takes precedence.
    """
    names = [name for name in resources if name.lower() == "gres"]
    if not names:
        return resources
    text = resources[names[0]]
    found = {name: value for name, value in resources.items() if name.lower() != "gres"}
    rest = text
    for part in _GRES.finditer(text):
        name = part["name"].lower()
        if name in known and name not in found:
            found[name] = part["amount"] or "1"
            rest = rest.replace(part[0], "", 1)
    return {**found, "gres": rest.strip("+%&,")}


def _refuse_unknown_gres(requested: RequestedResources, shared: Collection[str]) -> None:
    """Raise RequestError for a generic resource that neither a node reports nor the site counts."""
    if (text := requested.values.get("gres")) is None:
        return
    counted = {name.lower() for name in shared}
    names = [part["name"].strip() for part in _GRES.finditer(text)]
    unknown = [name for name in names if not name.isdecimal() and name.lower() not in counted]
    if unknown:
        raise requested.span_with_name("gres").error(
            f"no node reports {unknown[0]} and the site does not count it",
            "gpus, resources that nodes report as gres, and the site's licences",
        )


def _add_queue_properties(
    chunks: list[Chunk], requested: RequestedResources, known_nodes: Collection[str], amounts: Collection[str]
) -> list[Chunk]:
    """Add the properties in ``resources_default.neednodes`` of the queue (or the server), which maps queues
    to nodes.

    In a job's own list, the server uses this name for a copy of ``nodes``, which is ignored. Raises
    RequestError for more than one kind of nodes.
    """
    text = requested.defaults.get("neednodes", "")
    if not text:
        return chunks
    parts = parse_nodes(Span.from_text(text, "neednodes"), known_nodes=known_nodes, amounts=amounts).parts
    if len(parts) > 1:
        raise Span.from_text(text, "neednodes").error(
            "this default of the queue or the server names several kinds of nodes",
            "properties that every node has, for example neednodes=bigmem",
        )
    wanted = parts[0].features
    return [
        replace(chunk, features=normal_form((*chunk.features, *wanted))) if wanted else chunk
        for chunk in chunks
    ]


def _geometry(requested: RequestedResources) -> tuple[str, Span]:
    """Choose among tasks (``qsub -L``), nodes, procs and ncpus: explicit values before defaults, then in this
    order.

    The server copies its defaults into a job's list, so a value equal to the default counts as a default.
    """
    names = ("tasks", "nodes", "procs", "ncpus")
    wishes = [
        name
        for name in names
        if requested.own.get(name, requested.defaults.get(name)) != requested.defaults.get(name)
    ]
    for name in (*wishes, *names):
        if (span := requested.get(name)) is not None:
            return name, span
    return "nodes", Span.from_text("1", "nodes")


def _note_unfollowed(requested: RequestedResources, chosen: str, chunks: Sequence[Chunk]) -> None:
    """Add a remark for each ignored contradictory value; equivalent values and defaults need none."""
    cores = sum([chunk.count * chunk.cpus for chunk in chunks])
    for name in ("nodes", "procs", "ncpus"):
        if name == chosen or (span := requested.get(name)) is None:
            continue
        default = str(span) == requested.defaults.get(name)
        if not default and (name == "nodes" or parse_integer(span, f"{name}=") != cores):
            requested.note(f"{name}={span.brief()} was not followed: {chosen}= wins")


def _node_chunks(
    span: Span,
    requested: RequestedResources,
    known_nodes: Collection[str],
    amounts: Mapping[str, str],
    *,
    exclusive: bool,
    rule: str,
) -> tuple[list[Chunk], bool]:
    text = str(span)
    find = _find_node_chunks if len(text) <= _LONGEST_KEPT else _find_node_chunks.__wrapped__
    chunks, of_spec, notes = find(text, frozenset(known_nodes), tuple(amounts.items()), rule)
    for note in notes:
        requested.note(note)
    if of_spec is False and exclusive:
        requested.note("#shared was not followed: the job asks for whole nodes")
    return list(chunks), exclusive or of_spec is True


@lru_cache(maxsize=4096)
def _find_node_chunks(
    text: str, known_nodes: frozenset[str], spellings: tuple[tuple[str, str], ...], rule: str
) -> tuple[tuple[Chunk, ...], bool | None, tuple[str, ...]]:
    """Return the chunks of a value of ``nodes=``, whether it asks for whole nodes (None: it does not say),
    and remarks. Users repeat these values. Raises RequestError.
    """
    span, amounts, noted = Span.from_text(text, "nodes"), dict(spellings), RequestedResources({}, {})
    spec = parse_nodes(span, known_nodes=known_nodes, amounts={"mics", *amounts})
    parts = _hosts_once(spec.parts, noted) if rule == "exact" else spec.parts
    note_gpu_modes(noted, spec.gpu_modes)
    chunks = []
    for part in parts:
        if "mics" in part.amounts and "mics" not in amounts:
            raise span.error("no node reports mics", "ppn=, gpus=, a property or a node's name")
        named = {amounts[name]: amount for name, amount in part.amounts.items()}
        chunks.append(
            Chunk(
                count=part.count,
                cpus=part.cores,
                gpus=part.gpus,
                resources=sorted_amounts(named),
                features=normal_form(part.features),
            )
        )
    return tuple(chunks), spec.exclusive, tuple(noted.notes)


def _hosts_once(parts: Sequence[NodeSpecPart], requested: RequestedResources) -> list[NodeSpecPart]:
    """Merge parts with the same node into one unit: a node cannot be two nodes."""
    first: dict[str, NodeSpecPart] = {}
    kept = []
    for part in parts:
        known = first.get(part.host) if part.host and part.count == 1 else None
        if known is None:
            kept.append(part)
            if part.host:
                first[part.host] = part
            continue
        known.ppn += part.ppn
        known.gpus += part.gpus
        known.features += part.features
        for name, amount in part.amounts.items():
            known.amounts[name] = known.amounts.get(name, 0) + amount
        requested.note(f"{part.host} is named more than once: planned as one part with all its cores")
    return kept


def _with_job_totals(
    chunks: list[Chunk], requested: RequestedResources, amounts: Mapping[str, str]
) -> list[Chunk]:
    """Add gpus and generic resources that are requested for the whole job."""
    if (span := requested.get("gpus")) is not None:
        span, words = span.partition(":")
        modes, types = parse_gpu_options(words) if words is not None else (frozenset(), ())
        if any(chunk.gpus for chunk in chunks):
            requested.note(f"gpus={span.brief()} was not followed: nodes= names gpus")
        else:
            share = divided(span, chunks)
            note_gpu_modes(requested, modes)
            chunks = [
                replace(chunk, gpus=share, features=normal_form((*chunk.features, *types)))
                for chunk in chunks
            ]
    for name in sorted(amounts):
        if name == "gpus" or (span := requested.get(name)) is None:
            continue
        share = divided(span, chunks, size=not str(span)[-1].isdigit())
        if share:
            chunks = [_plus(chunk, amounts[name], share) for chunk in chunks]
    if (span := requested.get("mics")) is not None and "mics" not in amounts:
        raise span.error("no node reports mics", "gpus=N, or leave it out")
    return chunks


def _on_named_nodes(
    chunks: list[Chunk],
    requested: RequestedResources,
    known_nodes: Collection[str],
    obeyed: Collection[str],
) -> list[Chunk]:
    """Add the features, partition and host that are requested for the whole job."""
    wanted: list[frozenset[str]] = []
    if (span := requested.get("feature")) is not None:
        wanted += [parse_alternatives(piece) for piece in span.split(":")]
    if "partition" not in obeyed and (span := requested.get("partition")) is not None:
        wanted += [partitions] if (partitions := parse_partitions(span)) else []
    if (span := requested.get("host")) is not None:
        host = str(span)
        wanted.append(frozenset({host}) if host in known_nodes else parse_alternatives(span))
    if (span := requested.get("excludenodes")) is not None:
        wanted += [frozenset({f"!{name}"}) for name in sorted(parse_names(span))]
    if not wanted:
        return chunks
    return [replace(chunk, features=normal_form((*chunk.features, *wanted))) for chunk in chunks]


def _restrict_to_set(
    chunks: list[Chunk], requested: RequestedResources
) -> tuple[list[Chunk], NodeSets | None]:
    """Restrict chunks to the sets in ``nodeset=ONEOF:FEATURE:a:b``; return these. Raises RequestError."""
    if (span := requested.get("nodeset")) is None:
        return chunks, None
    match = _SETS.fullmatch(str(span))
    if match is None:
        raise span.error(
            "this set of nodes is not planned, and without it the job would run elsewhere",
            "ONEOF:FEATURE:PROPERTY:PROPERTY, FIRSTOF or ANYOF",
        )
    names = frozenset(parse_names(replace(span, start=span.end - len(match[2]))))
    chunks = [replace(chunk, features=normal_form((*chunk.features, names))) for chunk in chunks]
    if match[1].lower() == "anyof":
        return chunks, None
    return chunks, NodeSets(named=tuple((name, frozenset({name})) for name in sorted(names)), wait=None)


def _plus(chunk: Chunk, name: str, share: int) -> Chunk:
    """Add an amount to the chunk, unless it has its own."""
    return replace(chunk, resources=sorted_amounts({name: share, **dict(chunk.resources)}))


def _with_memory(
    chunks: Sequence[Chunk], requested: RequestedResources, mem_per_core_default: int
) -> list[Chunk]:
    """Set mem (vmem) to the larger of the job's total divided by cores, and pmem (pvmem) times the cores.

    Memory that a chunk already has (of tasks, ``qsub -L``) remains.
    """
    cores = sum([chunk.count * chunk.cpus for chunk in chunks])
    mem, pmem, vmem, pvmem = map(requested.size, ("mem", "pmem", "vmem", "pvmem"))
    assumed = mem_per_core_default if "mem" not in requested and "pmem" not in requested else 0
    sized = []
    for chunk in chunks:
        wanted = max(chunk.mem, -(-mem * chunk.cpus // cores), pmem * chunk.cpus)
        virtual = max(chunk.vmem, -(-vmem * chunk.cpus // cores), pvmem * chunk.cpus)
        default = assumed * chunk.cpus
        sized.append(
            quick_replace(chunk, mem=wanted or (min(default, virtual) if virtual else default), vmem=virtual)
        )
    return sized
