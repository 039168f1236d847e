"""The older ``nodes=`` as OpenPBS converts it to chunks (its ``cvt_nodespec_to_select``)."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from schedd.dialect.nodespec import NodesRequest, normal_form, note_gpu_modes, parse_nodes
from schedd.dialect.requested_resources import RequestedResources
from schedd.dialect.span import Span, parse_integer
from schedd.model.request import Chunk, Features


def nodes_chunks(
    span: Span, requested: RequestedResources, known_nodes: Collection[str]
) -> tuple[list[Chunk], bool]:
    """Return the chunks of a ``nodes=`` value, and whether the nodes are exclusive (``#excl``).

    A part becomes ``N:ncpus=P`` with P = ppn * cpp, a property ``p`` becomes ``p=True``, a name in
    ``known_nodes`` the host. The job's mem and vmem are divided over its nodes, its ncpus over the tasks.
    Without ``known_nodes`` a name matches both. Raises RequestError.
    """
    nodes = known_nodes if isinstance(known_nodes, AbstractSet) else frozenset(known_nodes)
    spec = parse_nodes(span, known_nodes=nodes, amounts=("cpp", "ncpus"))
    factor = _cores_per_task(spec, requested)
    units = sum(part.count for part in spec.parts)
    mem, vmem = (-(-requested.size(name) // units) for name in ("mem", "vmem"))
    note_gpu_modes(requested, spec.gpu_modes)
    chunks = [
        Chunk(
            count=part.count,
            cpus=part.cores * factor,
            mem=mem,
            vmem=vmem,
            gpus=part.gpus,
            features=_as_resources(part.features, nodes),
        )
        for part in spec.parts
    ]
    return chunks, spec.exclusive is True


def _cores_per_task(spec: NodesRequest, requested: RequestedResources) -> int:
    """Return the cores of each task if the job also requests ncpus; else 1."""
    wanted = requested.get("ncpus")
    if wanted is None or "ncpus" not in requested.own:
        return 1
    cores = parse_integer(wanted, "ncpus=")
    tasks = sum(part.count * part.cores for part in spec.parts)
    counted = any(part.given & {"cpp", "ncpus"} for part in spec.parts)
    if (counted and cores != tasks) or cores % tasks:
        raise wanted.error(
            f"{cores} cores cannot be divided over the {tasks} tasks of nodes=", f"a multiple of {tasks}"
        )
    return cores // tasks


def _as_resources(features: Iterable[frozenset[str]], nodes: AbstractSet[str]) -> Features:
    return normal_form([frozenset(_names(alternatives, nodes)) for alternatives in features])


def _names(alternatives: frozenset[str], nodes: AbstractSet[str]) -> Iterable[str]:
    for name in alternatives:
        bare = name.removeprefix("!")
        if bare in nodes or (not nodes and not name.startswith("!")):
            yield name
        if bare not in nodes:
            yield f"{name}=True"
