"""Reader of machine files: one line per cluster of equal nodes, tab separated."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schedd.replay.text_lines import read_lines
from schedd.replay.workload import TraceError

_PROPERTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_RESOURCE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FIELDS = ("id", "cluster", "nodes", "CPUs per node", "speed", "KiB of memory per node")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """``nodes`` equal nodes of one cluster, each with ``cpus`` processors and ``mem`` KiB (0: unknown).

    ``speed`` is relative to the machine on which the log's run times were measured. All its nodes have the
    ``properties``.
    """

    id: int
    cluster: str
    nodes: int
    cpus: int
    speed: float
    mem: int
    properties: tuple[str, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()
    """Amounts of other resources of each node, such as gpus."""

    @property
    def procs(self) -> int:
        return self.nodes * self.cpus


def read_machines(path: Path) -> tuple[NodeGroup, ...]:
    """Return the node groups of the file `path`: id, cluster, nodes, CPUs per node, speed, KiB of memory per
    node, perhaps properties between commas, and perhaps amounts of other resources (`gpus=4,fpga=1`).

    Blank lines and lines that begin with ``#`` or ``;`` are ignored. Raises TraceError with line and field.
    """
    groups: list[NodeGroup] = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            try:
                group = _group(line.rstrip("\r\n"))
            except ValueError as error:
                raise TraceError(f"{path}, line {number}: {error}") from None
            if any(group.cluster == other.cluster for other in groups):
                raise TraceError(f"{path}, line {number}: cluster {group.cluster!r} is defined twice")
            groups.append(group)
    if not groups:
        raise TraceError(
            f"{path}: the file has no machine; a line has, separated by tabs, {', '.join(_FIELDS)}"
        )
    return tuple(groups)


def _group(line: str) -> NodeGroup:
    fields = [field.strip() for field in line.rstrip("\t").split("\t")]
    if not len(_FIELDS) <= len(fields) <= len(_FIELDS) + 2:
        raise ValueError(
            f"{len(fields)} fields between tabs where {len(_FIELDS)} are needed: {', '.join(_FIELDS)}; and "
            "perhaps properties and resources"
        )
    named = [*fields, "", ""][len(_FIELDS)]
    properties = tuple(word.strip() for word in named.split(",")) if named else ()
    if wrong := [word for word in properties if not _PROPERTY.fullmatch(word)]:
        raise ValueError(f"property {wrong[0]!r}: write names without blanks, separated by commas")
    if not fields[1] or any(c.isspace() for c in fields[1]):
        raise ValueError(f"cluster {fields[1]!r}: write a name without blanks")
    try:
        speed = float(fields[4])
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed {fields[4]!r}: write a number above 0")
    return NodeGroup(
        id=_count(fields, 0, at_least=0),
        cluster=fields[1],
        nodes=_count(fields, 2, at_least=1),
        cpus=_count(fields, 3, at_least=1),
        speed=speed,
        mem=_count(fields, 5, at_least=0),
        properties=properties,
        resources=tuple(_resources([*fields, "", ""][len(_FIELDS) + 1])),
    )


def _resources(text: str) -> Iterator[tuple[str, int]]:
    seen = set()
    for word in filter(None, (one.strip() for one in text.split(","))):
        name, _, amount = word.partition("=")
        if not _RESOURCE.fullmatch(name) or not (amount.isascii() and amount.isdigit() and int(amount)):
            raise ValueError(f"resource {word!r}: write a name and a number, as in gpus=4")
        if name in seen or name in ("ncpus", "mem", "vmem"):
            raise ValueError(f"resource {word!r}: it is defined twice")
        seen.add(name)
        yield name, int(amount)


def _count(fields: list[str], at: int, at_least: int) -> int:
    text = fields[at]
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise ValueError(f"{_FIELDS[at]} {text!r}: write a whole number of at least {at_least}")
    return int(text)
