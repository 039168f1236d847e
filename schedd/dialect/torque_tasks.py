"""Requests by tasks, TORQUE 6's ``qsub -L tasks=N:lprocs=C:memory=M:gpus=G…``.

Several ``-L`` are joined by ``+``: ``tasks=2:lprocs=4+1:lprocs=8:gpus=1``. Amounts are for each task; tasks
share nodes unless they request otherwise. Grammar: ``req.cpp`` of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from schedd.dialect.assemble import sorted_amounts
from schedd.dialect.nodespec import normal_form, note_gpu_modes, parse_alternatives, parse_gpu_options
from schedd.dialect.requested_resources import RequestedResources, parse_amount
from schedd.dialect.span import Span, parse_integer
from schedd.dialect.units import parse_size
from schedd.model.request import Chunk

_ALLOWED: Final = "lprocs=, memory=, swap=, gpus=, mics=, gres=, feature=, place=, maxtpn=, a gpu mode, pack"
_LAUNCH: Final = frozenset(
    {
        "usecores",
        "usethreads",
        "allowthreads",
        "usefastcores",
        "cpt",
        "cgroup_per_task",
        "cph",
        "cgroup_per_host",
    }
)
"""Words about how the processes of a task are bound to its cores: the node daemon follows them."""
_SOCKETS: Final = ("socket", "numanode")
_CORES: Final = ("core", "thread")
_REFUSED: Final[Mapping[str, str]] = {
    "disk": "a resource that the nodes report as gres",
    "opsys": "a property of the nodes, feature=PROPERTY",
    "arch": "a property of the nodes, feature=PROPERTY",
    "reqattr": "a property of the nodes, feature=PROPERTY",
}


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """Chunks of a request by tasks. ``scatter``: one chunk on each node; ``exclusive``: whole nodes."""

    chunks: tuple[Chunk, ...]
    scatter: bool
    exclusive: bool


@dataclass(slots=True)
class _TaskSpec:
    """One ``-L``: amounts of each of its ``count`` tasks; ``most`` tasks run on one node (0: any number)."""

    count: int
    cpus: int = 1
    mem: int = 0
    vmem: int = 0
    gpus: int = 0
    most: int = 0
    alone: bool = False
    amounts: dict[str, int] = field(default_factory=dict)
    features: list[frozenset[str]] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    def chunks(self, *, grouped: bool) -> list[Chunk]:
        """Return one chunk for each task; if ``grouped``, one for ``most`` tasks and one for the rest."""
        if not grouped:
            return [self._chunk(self.count, 1)]
        size = min(self.most or 1, self.count)
        full, rest = divmod(self.count, size)
        return [self._chunk(full, size), *([self._chunk(1, rest)] if rest else [])]

    def _chunk(self, count: int, tasks: int) -> Chunk:
        return Chunk(
            count=count,
            cpus=self.cpus * tasks,
            mem=self.mem * tasks,
            vmem=self.vmem * tasks,
            gpus=self.gpus * tasks,
            resources=sorted_amounts({name: amount * tasks for name, amount in self.amounts.items()}),
            features=normal_form(self.features),
        )


def parse_tasks(span: Span, requested: RequestedResources, amounts: Mapping[str, str]) -> TaskRequest:
    """Parse a ``tasks=`` value; ``amounts`` are the node-locked resources by lower-case name.

    Raises RequestError.
    """
    specs = [_parse_spec(part, requested, amounts) for part in span.split("+")]
    limited = any(0 < spec.most < spec.count and not spec.alone for spec in specs)
    scatter = limited or any(spec.alone for spec in specs)
    if limited or (scatter and not all(spec.alone for spec in specs)):
        requested.note("planned with as many tasks on each node as possible, each group on a node of its own")
    chunks = [chunk for spec in specs for chunk in spec.chunks(grouped=scatter)]
    note_gpu_modes(requested, {mode for spec in specs for mode in spec.modes})
    return TaskRequest(tuple(chunks), scatter, any(spec.alone for spec in specs))


def _parse_spec(span: Span, requested: RequestedResources, amounts: Mapping[str, str]) -> _TaskSpec:
    count, *pieces = span.split(":")
    spec = _TaskSpec(parse_integer(count, "tasks="))
    given = set()
    for piece in pieces:
        name, value = piece.partition("=")
        key = str(name).lower()
        if value is None:
            _add_option(piece, key, spec, requested)
            continue
        if key in given and key != "gres":
            raise piece.error(f"{key}= is given twice")
        given.add(key)
        _add_value(key, piece, value, spec, requested, amounts)
    return spec


def _add_option(piece: Span, word: str, spec: _TaskSpec, requested: RequestedResources) -> None:
    if word == "pack":
        requested.note("not planned: pack, a preference for few nodes")
    elif word not in _LAUNCH:
        modes, types = parse_gpu_options(piece)
        if types:
            raise piece.error(f"{piece.shown()} is no condition on a task", _ALLOWED)
        spec.modes |= modes


def _add_value(
    key: str,
    piece: Span,
    value: Span,
    spec: _TaskSpec,
    requested: RequestedResources,
    amounts: Mapping[str, str],
) -> None:
    if key == "lprocs":
        if str(value).lower() == "all":
            raise value.error("lprocs=all: the plan needs the number of cores", "lprocs=N, with place=node")
        spec.cpus = max(spec.cpus, parse_integer(value, "lprocs="))
    elif key == "memory":
        spec.mem = _size(value)
    elif key == "swap":
        spec.vmem = _size(value)
    elif key == "gpus":
        spec.gpus = parse_integer(value, "gpus=")
    elif key == "maxtpn":
        spec.most = parse_integer(value, "maxtpn=")
    elif key == "place":
        _add_place(value, spec, requested)
    elif key == "feature":
        spec.features += _features(value)
    elif key == "gres":
        for part in value.split("%"):
            _add_amount(part, spec, amounts)
    elif key in amounts:
        spec.amounts[amounts[key]] = parse_amount(value)
    elif key == "mics":
        raise piece.error("no node reports mics", _ALLOWED)
    elif key in _REFUSED:
        raise piece.error(f"{key}= is not planned, and without it the job would run elsewhere", _REFUSED[key])
    else:
        raise piece.error(f"{piece.shown()} is no condition on a task", _ALLOWED)


def _add_place(value: Span, spec: _TaskSpec, requested: RequestedResources) -> None:
    kind, number = value.partition("=")
    count = 1 if number is None else parse_integer(number, "place=")
    where = str(kind).lower()
    if where in _CORES:
        spec.cpus = max(spec.cpus, count)
        return
    if where not in ("node", *_SOCKETS):
        raise value.error(f"{value.shown()} is no place", "node, socket, numanode, core, thread, with =N")
    if where == "node" and count > 1:
        raise value.error("a task on several nodes is not planned", "place=node and more tasks")
    spec.alone, spec.most = True, 1
    if where in _SOCKETS:
        requested.note(f"place={where} is planned as a whole node for each task, which is stricter")


def _features(value: Span) -> list[frozenset[str]]:
    """``a|b``: either; ``a&b``: both; brackets around them are skipped."""
    text = str(value)
    if text.startswith("[") and text.endswith("]"):
        value = Span(value.source, value.start + 1, value.end - 1)
    return [parse_alternatives(piece) for piece in value.split("&")]


def _add_amount(part: Span, spec: _TaskSpec, amounts: Mapping[str, str]) -> None:
    name, value = part.partition("=")
    known = amounts.get(str(name).lower())
    if known is None:
        raise part.error(
            f"no node reports {name.shown()}", "resources that nodes report as gres; -l gres= for a licence"
        )
    spec.amounts[known] = spec.amounts.get(known, 0) + (1 if value is None else parse_amount(value))


def _size(value: Span) -> int:
    """Return a size in KiB, which is also the unit of a plain number."""
    if str(value).isdecimal():
        return parse_integer(value, "a size", least=0)
    return parse_size(value)
