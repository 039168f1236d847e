"""Resource requests of jobs: `select` and `place`, their derivation from older notations, and their sums."""

from collections.abc import Mapping
from functools import lru_cache

from schedd.wire import BUILT_IN, ResourceFacts, ResourceTypes
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.openpbs.notation import boolean, format_amount, kib, parse_amount, select, unquote

KNOWN = frozenset(
    [
        *("select", "place", "nodes", "walltime", "soft_walltime", "min_walltime", "max_walltime", "cput"),
        *("pcput", "ncpus", "mem", "vmem", "pmem", "pvmem", "ngpus", "nodect", "mpiprocs", "ompthreads"),
        *("nice", "file", "host", "vnode", "arch", "software", "naccelerators", "accelerator_memory"),
        *("hbmem", "eoe", "aoe", "nchunk", "resv", "preempt_targets", "mpparch", "energy"),
    ]
)
"""Built-in resources of every server."""

_DEFINED = {name: facts for name, facts in BUILT_IN.items() if name in KNOWN}


@lru_cache(maxsize=64)
def _types(custom: tuple[tuple[str, tuple[str, str]], ...]) -> ResourceTypes:
    return ResourceTypes({**_DEFINED, **{name: ResourceFacts(kind, flag) for name, (kind, flag) in custom}})


def resource_types(cluster: PbsCluster) -> ResourceTypes:
    """Return the types of the server's resources, built-in and custom."""
    return _types(tuple(cluster.resources.items()))


def is_known(cluster: PbsCluster, name: str) -> bool:
    """Whether the server has a resource of this name, in whatever case it is written."""
    return name.lower() in KNOWN or resource_types(cluster).spelled(name) in cluster.resources


def is_value(cluster: PbsCluster, name: str, text: str) -> bool:
    """Whether the text is a value of the resource's type."""
    types = resource_types(cluster)
    kind = types.resource_type(name)
    if kind == "boolean":
        return boolean(name, text, types) is not None
    return kind not in ("long", "size", "float") or parse_amount(name, text, types) is not None


TIMES = frozenset({"walltime", "soft_walltime", "min_walltime", "max_walltime", "cput", "pcput"})
_CHUNK = ("mem", "vmem", "ngpus", "arch", "host", "mpiprocs", "ompthreads")
_PLACES = frozenset({"free", "pack", "scatter", "vscatter", "excl", "exclhost", "shared"})
_UNITS = ("kb", "mb", "gb", "tb")


def check_place(text: str) -> None:
    """Raise ValueError for a malformed `place`."""
    if not all(word in _PLACES or word.startswith("group=") for word in text.split(":")):
        raise ValueError(text)


def complete(cluster: PbsCluster, given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Resource_List as the server keeps it: with `select`, `place`, their sums, and the defaults.

    `defaults` are the queue's, or the server's where it has none. Raises ValueError for a `select` or `place`
    that cannot be read.
    """
    resources = dict(given)
    nodes = resources.get("nodes")
    if "select" not in resources:
        if nodes is not None:
            resources["select"] = _select_from_nodes(nodes, resources)
            resources.setdefault("place", "scatter")
        else:
            wanted = {name: defaults[name] for name in ("ncpus", "mem") if name in defaults} | resources
            resources["select"] = _single(wanted, cluster)
            if "ncpus" in resources or "mem" in resources:
                resources.setdefault("place", "pack")
    for name, value in defaults.items():
        if name not in _CHUNK and name not in ("ncpus", "nodes", "select"):
            resources.setdefault(name, value)
    resources.setdefault("place", "free")
    check_place(resources["place"])
    return resources | sums(cluster, schedselect(cluster, resources["select"]))


def schedselect(cluster: PbsCluster, text: str) -> str:
    """The select with the server's defaults for each chunk filled in. Raises ValueError."""
    chunks = []
    defaults = {
        key.partition(".")[2]: value
        for key, value in cluster.attributes.items()
        if key.startswith("default_chunk.")
    }
    for count, asked in select(text):
        named = {name.lower() for name in asked}  # as the user wrote them, in any case
        chunks.append(_written(count, asked | {k: v for k, v in defaults.items() if k.lower() not in named}))
    return "+".join(chunks)


def sums(cluster: PbsCluster, text: str) -> dict[str, str]:
    """What all chunks take together: amounts, sizes in the largest unit that is exact, and `nodect`."""
    total: dict[str, int] = {}
    units = 0
    for count, asked in select(text):
        units += count
        for name, taken in amounts(cluster, asked).items():
            total[name] = total.get(name, 0) + count * taken
    found = {"nodect": str(units)}
    types = resource_types(cluster)
    for name, taken in total.items():
        size = types.resource_type(name) == "size"
        found[name] = written_size(taken) if size else format_amount(name, taken, types)
    return found


def amounts(cluster: PbsCluster, resources: Mapping[str, str]) -> dict[str, int]:
    """Return the amounts charged for a chunk: sizes in KiB, whole numbers; strings and booleans are left out.

    Raises ValueError for a value that does not fit the resource's type.
    """
    types = resource_types(cluster)
    found = {}
    for name, value in resources.items():
        if types.is_amount(name) and name not in TIMES:
            taken = parse_amount(name, unquote(value), types)
            if taken is None:
                raise ValueError(f"{name}={value}")
            found[types.spelled(name)] = taken
    return found


def written_size(parse_amount: int) -> str:
    """KiB in the largest unit that is exact."""
    at = 0
    while parse_amount and parse_amount % 1024 == 0 and at + 1 < len(_UNITS):
        parse_amount, at = parse_amount // 1024, at + 1
    return f"{parse_amount}{_UNITS[at]}"


def _written(count: int, asked: Mapping[str, str]) -> str:
    return ":".join([str(count), *[f"{name}={value}" for name, value in asked.items()]])


def _single(resources: Mapping[str, str], cluster: PbsCluster) -> str:
    asked = {name: value for name, value in resources.items() if name in _CHUNK or name in cluster.resources}
    asked["ncpus"] = resources.get("ncpus", "1")
    return _written(1, dict(sorted(asked.items())))


def _firsts(nodes: str) -> list[str]:
    return [part.partition(":")[0] for part in nodes.split("+")]


def _select_from_nodes(nodes: str, resources: Mapping[str, str]) -> str:
    """Convert `nodes=2:ppn=4:big` to chunks; `mem` is divided over all, `pmem` counts per core."""
    chunks = []
    units = sum(int(first) if first.isdecimal() else 1 for first in _firsts(nodes))
    for part in nodes.split("+"):
        first, *words = part.split(":")
        count, asked = 1, {"ncpus": "1"}
        if first.isdecimal():
            count = int(first)
        else:
            asked["host"] = first
        for word in words:
            name, _, value = word.partition("=")
            if name == "ppn":
                asked |= {"ncpus": value, "mpiprocs": value}
            else:
                asked[name] = value or "True"
        if "mem" in resources:
            asked["mem"] = f"{kib(resources['mem']) // units}kb"
        elif "pmem" in resources:
            asked["mem"] = f"{int(asked['ncpus']) * kib(resources['pmem'])}kb"
        chunks.append(_written(count, asked))
    return "+".join(chunks)
