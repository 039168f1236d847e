"""Reader of machine files: one line per cluster of equal nodes, tab separated."""

import re
from dataclasses import dataclass
from pathlib import Path

from schedd.replay.text_lines import read_lines
from schedd.replay.workload import TraceError

_PROPERTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
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

    @property
    def procs(self) -> int:
        return self.nodes * self.cpus


def read_machines(path: Path) -> tuple[NodeGroup, ...]:
    """Return the node groups of the file `path`: id, cluster, nodes, CPUs per node, speed, KiB of memory per
    node, and perhaps properties between commas.

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
                raise TraceError(f"{path}, line {number}: cluster {group.cluster!r} was named before")
            groups.append(group)
    if not groups:
        raise TraceError(f"{path}: names no machine; a line holds, between tabs, {', '.join(_FIELDS)}")
    return tuple(groups)


def _group(line: str) -> NodeGroup:
    fields = [field.strip() for field in line.rstrip("\t").split("\t")]
    if len(fields) not in (len(_FIELDS), len(_FIELDS) + 1):
        raise ValueError(
            f"{len(fields)} fields between tabs where {len(_FIELDS)} are needed: {', '.join(_FIELDS)}; and "
            "perhaps properties"
        )
    properties = tuple(word.strip() for word in fields[6].split(",")) if len(fields) > len(_FIELDS) else ()
    if wrong := [word for word in properties if not _PROPERTY.fullmatch(word)]:
        raise ValueError(f"property {wrong[0]!r}: a name without blanks is needed, several between commas")
    if not fields[1] or any(c.isspace() for c in fields[1]):
        raise ValueError(f"cluster {fields[1]!r}: a name without blanks is needed")
    try:
        speed = float(fields[4])
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise ValueError(f"speed {fields[4]!r}: a number above 0 is needed")
    return NodeGroup(
        id=_count(fields, 0, at_least=0),
        cluster=fields[1],
        nodes=_count(fields, 2, at_least=1),
        cpus=_count(fields, 3, at_least=1),
        speed=speed,
        mem=_count(fields, 5, at_least=0),
        properties=properties,
    )


def _count(fields: list[str], at: int, at_least: int) -> int:
    text = fields[at]
    if not (text.isascii() and text.isdigit()) or int(text) < at_least:
        raise ValueError(f"{_FIELDS[at]} {text!r}: a whole number of at least {at_least} is needed")
    return int(text)
