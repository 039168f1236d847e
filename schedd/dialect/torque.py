"""TORQUE's resource requests: what ``qsub -l`` left in a job's ``Resource_List``, as a Request."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal

from schedd.dialect.advres import advres_names, refuse_flags
from schedd.dialect.asked import Asked
from schedd.dialect.assemble import assemble, by_lower_name, divided, resources_of, walltime_of
from schedd.dialect.cost_limit import cost_limit_names
from schedd.dialect.deadline import deadline_names
from schedd.dialect.nodespec import (
    NAME,
    NodeSpecPart,
    gpu_modes,
    normal_form,
    parse_alternatives,
    parse_nodes,
)
from schedd.dialect.shared import check_shared, shared_names
from schedd.dialect.span import Span, whole_number
from schedd.dialect.throughput import work_names
from schedd.dialect.torque_access import access_policy, extension_list
from schedd.dialect.torque_names import ADDED_BY_THE_SERVER, plain_names, refuse_unplanned
from schedd.model.request import Chunk, NodeSets, Place, Request

__all__ = ["parse_torque"]

_GRES: Final = re.compile(r"(?:^|[+%&,])(?P<name>[^:+=%&,]+)(?:[:=](?P<amount>[^+%&,]*))?(?=$|[+%&,])")
_SETS: Final = re.compile(r"(oneof|firstof|anyof):feature:(.+)", re.IGNORECASE)
_ANY: Final = frozenset({"all", "any", "default", "[all]", "[default]"})
"""Partitions that mean every node."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


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
) -> Request:
    """The request of a TORQUE job; its meaning is set out in ``docs/reference/requests.md``.

    ``resources`` is its ``Resource_List`` (or what a user would write), ``defaults`` the
    ``resources_default`` of queue and server, ``exclusive`` says it was submitted with ``qsub -n``,
    ``extensions`` is its ``-W x=`` string. ``mem_per_core_default`` in KiB is planned for jobs that ask
    for no memory, never more than their vmem. ``known_nodes`` are the names of all nodes (a set is read
    fastest), ``generic`` those of node-locked resources that the plan knows, ``shared`` those of resources
    of the whole cluster, which are no part of the request. Raises RequestError.
    """
    amounts = by_lower_name(generic)
    named = plain_names({**extension_list(extensions), **resources})
    asked = Asked(_one_by_one(named, {"gpus", *amounts}), defaults)
    refuse_unplanned(asked)
    refuse_flags(asked.values)
    _refuse_unknown_gres(asked, shared)
    asked.ignore(ADDED_BY_THE_SERVER)
    asked.ignore(deadline_names(asked.values) | cost_limit_names(asked.values) | advres_names(asked.values))
    asked.ignore(work_names(asked.values))
    if shared:
        check_shared(asked.values, shared)
        asked.ignore(shared_names(asked.values, shared))
    chosen, about = _geometry(asked)
    place = Place.FREE
    if chosen == "nodes":
        chunks, exclusive = _node_chunks(
            about, asked, known_nodes, amounts, exclusive=exclusive, rule=node_rule
        )
        place = Place.SCATTER if node_rule == "exact" else Place.FREE
    elif chosen == "procs":
        chunks = [Chunk(count=whole_number(about, "procs="))]
    else:
        chunks, place = [Chunk(cpus=whole_number(about, "ncpus="))], Place.PACK
    _note_unfollowed(asked, chosen, chunks)

    chunks = _on_nodes_of_the_queue(chunks, asked, known_nodes, amounts)
    chunks = _with_job_totals(chunks, asked, amounts)
    chunks = _on_named_nodes(chunks, asked, known_nodes)
    chunks = _with_memory(chunks, asked, mem_per_core_default)
    chunks, sets = _in_one_set(chunks, asked)
    policy = access_policy(asked, exclusive=exclusive)
    request = assemble(
        chunks,
        Place.SCATTER if policy.one_task_per_node else place,
        exclusive=policy.exclusive,
        walltime=walltime_of(asked),
        asked=asked,
        about=about,
    )
    return replace(request, together=sets) if sets is not None and request.units > 1 else request


def _one_by_one(resources: Mapping[str, str], known: Collection[str]) -> Mapping[str, str]:
    """With the parts of ``gres=gpus:4+matlab:2`` that are ``known`` as resources of their own.

    The servers keep ``qsub -l gpus=4`` that way. What the job names besides goes before it.
    """
    text = next((value for name, value in resources.items() if name.lower() == "gres"), None)
    if text is None:
        return resources
    found = {name: value for name, value in resources.items() if name.lower() != "gres"}
    rest = text
    for part in _GRES.finditer(text):
        name = part["name"].lower()
        if name in known and name not in found:
            found[name] = part["amount"] or "1"
            rest = rest.replace(part[0], "", 1)
    return {**found, "gres": rest.strip("+%&,")}


def _refuse_unknown_gres(asked: Asked, shared: Collection[str]) -> None:
    """Raise RequestError for a generic resource that no node reports and the site does not count."""
    if (text := asked.values.get("gres")) is None:
        return
    counted = {name.lower() for name in shared}
    names = [part["name"].strip() for part in _GRES.finditer(text)]
    unknown = [name for name in names if not name.isdecimal() and name.lower() not in counted]
    if unknown:
        raise asked.whole("gres").error(
            f"no node reports {unknown[0]} and the site does not count it",
            "gpus, resources that nodes report as gres, and the site's licences",
        )


def _on_nodes_of_the_queue(
    chunks: list[Chunk], asked: Asked, known_nodes: Collection[str], amounts: Collection[str]
) -> list[Chunk]:
    """With the properties that ``resources_default.neednodes`` of the queue (or the server) names.

    Raises RequestError where it names more than one kind of nodes.

    That is how queues are mapped to nodes. In a job's own list the server keeps its working copy of ``nodes``
    under this name, which says nothing new.
    """
    text = asked.defaults.get("neednodes", "")
    if not text:
        return chunks
    parts = parse_nodes(Span.of(text, "neednodes"), known_nodes=known_nodes, amounts=amounts).parts
    if len(parts) > 1:
        raise Span.of(text, "neednodes").error(
            "this default of the queue or the server names several kinds of nodes",
            "properties that every node has, for example neednodes=bigmem",
        )
    wanted = parts[0].features
    return [
        replace(chunk, features=normal_form((*chunk.features, *wanted))) if wanted else chunk
        for chunk in chunks
    ]


def _geometry(asked: Asked) -> tuple[str, Span]:
    """Which of nodes, procs and ncpus is followed: the job's own wishes before any default, then in order.

    The server writes its defaults into a job's list, so a value equal to the default counts as one.
    """
    names = ("nodes", "procs", "ncpus")
    wishes = [
        name for name in names if asked.own.get(name, asked.defaults.get(name)) != asked.defaults.get(name)
    ]
    for name in (*wishes, *names):
        if (span := asked.get(name)) is not None:
            return name, span
    return "nodes", Span.of("1", "nodes")


def _note_unfollowed(asked: Asked, chosen: str, chunks: Sequence[Chunk]) -> None:
    """Say which contradictory wish was not followed; one that says the same, or a default, needs no word."""
    cores = sum(chunk.count * chunk.cpus for chunk in chunks)
    for name in ("nodes", "procs", "ncpus"):
        if name == chosen or (span := asked.get(name)) is None:
            continue
        default = str(span) == asked.defaults.get(name)
        if not default and (name == "nodes" or whole_number(span, f"{name}=") != cores):
            asked.note(f"{name}={span.brief()} was not followed: {chosen}= wins")


def _node_chunks(
    span: Span,
    asked: Asked,
    known_nodes: Collection[str],
    amounts: Mapping[str, str],
    *,
    exclusive: bool,
    rule: str,
) -> tuple[list[Chunk], bool]:
    spec = parse_nodes(span, known_nodes=known_nodes, amounts={"mics", *amounts})
    parts = _hosts_once(spec.parts, asked) if rule == "exact" else spec.parts
    if spec.gpu_modes:
        asked.note(f"gpu mode {', '.join(sorted(spec.gpu_modes))}: left to the server")
    if spec.exclusive is False and exclusive:
        asked.note("#shared was not followed: the job asks for whole nodes")
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
                resources=resources_of(named),
                features=normal_form(part.features),
            )
        )
    return chunks, exclusive or spec.exclusive is True


def _hosts_once(parts: Sequence[NodeSpecPart], asked: Asked) -> list[NodeSpecPart]:
    """Parts that name the same node are one unit on it: a node cannot be two nodes."""
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
        asked.note(f"{part.host} is named more than once: planned as one part with all its cores")
    return kept


def _with_job_totals(chunks: list[Chunk], asked: Asked, amounts: Mapping[str, str]) -> list[Chunk]:
    """Gpus, generic resources and features that were asked for the job as a whole."""
    if (span := asked.get("gpus")) is not None:
        span, mode = span.partition(":")
        if mode is not None:
            asked.note(f"gpu mode {', '.join(gpu_modes(mode))}: left to the server")
        if any(chunk.gpus for chunk in chunks):
            asked.note(f"gpus={span.brief()} was not followed: nodes= names gpus")
        else:
            share = divided(span, chunks)
            chunks = [replace(chunk, gpus=share) for chunk in chunks]
    for name in sorted(amounts):
        if name == "gpus" or (span := asked.get(name)) is None:
            continue
        share = divided(span, chunks, size=not str(span)[-1].isdigit())
        if share:
            chunks = [_plus(chunk, amounts[name], share) for chunk in chunks]
    if (span := asked.get("mics")) is not None and "mics" not in amounts:
        raise span.error("no node reports mics", "gpus=N, or leave it out")
    return chunks


def _on_named_nodes(chunks: list[Chunk], asked: Asked, known_nodes: Collection[str]) -> list[Chunk]:
    """With the features, partition and host that were asked for the job as a whole."""
    wanted: list[frozenset[str]] = []
    if (span := asked.get("feature")) is not None:
        wanted += [parse_alternatives(piece) for piece in span.split(":")]
    if (span := asked.get("partition")) is not None and str(span).lower() not in _ANY:
        wanted.append(_any_of(span))
    if (span := asked.get("host")) is not None:
        host = str(span)
        wanted.append(frozenset({host}) if host in known_nodes else parse_alternatives(span))
    if (span := asked.get("excludenodes")) is not None:
        wanted += [frozenset({f"!{name}"}) for name in sorted(_any_of(span))]
    if not wanted:
        return chunks
    return [replace(chunk, features=normal_form((*chunk.features, *wanted))) for chunk in chunks]


def _any_of(span: Span) -> frozenset[str]:
    """The names of a list, joined by ``:``, ``,``, ``+`` or ``|``. Raises RequestError."""
    names = [name for name in re.split(r"[:,+|]", str(span).strip("[]")) if name]
    if not names or not all(NAME.fullmatch(name) for name in names):
        raise span.error(f"{span.shown()} is no list of names", "names joined by :")
    return frozenset(names)


def _in_one_set(chunks: list[Chunk], asked: Asked) -> tuple[list[Chunk], NodeSets | None]:
    """Nodes of the sets that ``nodeset=ONEOF:FEATURE:a:b`` names, and the sets. Raises RequestError."""
    if (span := asked.get("nodeset")) is None:
        return chunks, None
    match = _SETS.fullmatch(str(span))
    if match is None:
        raise span.error(
            "this set of nodes is not planned, and without it the job would run elsewhere",
            "ONEOF:FEATURE:PROPERTY:PROPERTY, FIRSTOF or ANYOF",
        )
    names = _any_of(replace(span, start=span.end - len(match[2])))
    chunks = [replace(chunk, features=normal_form((*chunk.features, names))) for chunk in chunks]
    if match[1].lower() == "anyof":
        return chunks, None
    return chunks, NodeSets(named=tuple((name, frozenset({name})) for name in sorted(names)), wait=None)


def _plus(chunk: Chunk, name: str, share: int) -> Chunk:
    """The chunk with an amount, unless it names one itself."""
    return replace(chunk, resources=resources_of({name: share, **dict(chunk.resources)}))


def _with_memory(chunks: Sequence[Chunk], asked: Asked, mem_per_core_default: int) -> list[Chunk]:
    """The larger of a share of mem (vmem) by cores, and of pmem (pvmem) times the cores on the node."""
    cores = sum(chunk.count * chunk.cpus for chunk in chunks)
    mem, pmem, vmem, pvmem = (asked.size(name) for name in ("mem", "pmem", "vmem", "pvmem"))
    assumed = mem_per_core_default if "mem" not in asked and "pmem" not in asked else 0
    sized = []
    for chunk in chunks:
        wanted = max(-(-mem * chunk.cpus // cores), pmem * chunk.cpus)
        virtual = max(-(-vmem * chunk.cpus // cores), pvmem * chunk.cpus)
        default = assumed * chunk.cpus
        sized.append(
            replace(chunk, mem=wanted or (min(default, virtual) if virtual else default), vmem=virtual)
        )
    return sized
