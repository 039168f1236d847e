"""Smallest changes of a request for a start by a given time, one resource at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from schedd.dialect.units import format_size, format_walltime
from schedd.model import Chunk, Place, Request
from schedd.wire.resources import CPUS_OF, GPUS_OF, cpu_amount_name, gpu_amount_name

StartInTime = Callable[[Request, int], int]  # the start of a request with this walltime; -1: not in time

_MIB = 1024


@dataclass(frozen=True, slots=True)
class SmallerRequest:
    """Smallest change of one resource that allows a start by a given time."""

    change: Literal["walltime", "cpus", "mem", "gpus", "nodes", "units", "feature"]
    """`cpus`, `mem` and `gpus` (0: none) are per unit (a node of `nodes=`, a chunk of `select=`). `units`
    that may share a node (`procs=`, a `select=` that is not scattered), otherwise `nodes`."""
    asked: str
    enough: str
    """Sufficient value in the syntax of `qsub -l`; empty for a property to leave out."""
    value: int | None
    """`enough` as a number: seconds, cpus, KiB, gpus, nodes or units."""
    planned_start: int
    """Planned start with this change; often well before the requested time."""
    expected_start: int | None = None
    """Likely start with this change (P50); null: not predicted."""
    expected_by: int | None = None
    """P90 with this change."""
    risk: float | None = None
    """For a walltime: the share of such jobs that run longer and would be killed; null: not predicted."""


def smaller_requests(request: Request, walltime: int, start: StartInTime) -> tuple[SmallerRequest, ...]:
    """Return the sufficient changes for a request that cannot start in time, in no particular order.

    Walltime has a precision of a second, memory of a MiB.
    """
    found = (
        _walltime(request, walltime, start),
        _cpus(request, walltime, start),
        _mem(request, walltime, start),
        _gpus(request, walltime, start),
        _nodes(request, walltime, start),
        *_features(request, walltime, start),
    )
    return tuple(one for one in found if one is not None)


def apply_change(request: Request, walltime: int, change: SmallerRequest) -> tuple[Request, int]:
    """Return a request and its walltime with one of its ``smaller_requests``."""
    value = change.value
    if value is None:
        return _change_chunks(
            request, partial(_without_feature, frozenset(change.asked.split("|")))
        ), walltime
    if change.change == "walltime":
        return request, value
    if change.change == "cpus":
        return _with_at_most_cpus(request, value), walltime
    if change.change == "mem":
        return _with_at_most_mem(request, value), walltime
    if change.change == "gpus":
        return _with_at_most_gpus(request, value), walltime
    return _first_units(request, value), walltime


def _walltime(request: Request, walltime: int, start: StartInTime) -> SmallerRequest | None:
    found = _largest_in_time(1, walltime - 1, lambda seconds: start(request, seconds))
    if found is None:
        return None
    return SmallerRequest("walltime", format_walltime(walltime), format_walltime(found[0]), *found)


def _cpus(request: Request, walltime: int, start: StartInTime) -> SmallerRequest | None:
    asked = max(chunk.cpus for chunk in request.chunks)
    found = _largest_in_time(1, asked - 1, lambda cpus: start(_with_at_most_cpus(request, cpus), walltime))
    return None if found is None else SmallerRequest("cpus", str(asked), str(found[0]), *found)


def _mem(request: Request, walltime: int, start: StartInTime) -> SmallerRequest | None:
    asked = max(max(chunk.mem, chunk.vmem) for chunk in request.chunks)

    def start_with(mib: int) -> int:
        return start(_with_at_most_mem(request, mib * _MIB), walltime)

    found = _largest_in_time(1, -(-asked // _MIB) - 1, start_with)
    if found is None:
        return None
    size = found[0] * _MIB
    return SmallerRequest("mem", format_size(asked), format_size(size), size, found[1])


def _gpus(request: Request, walltime: int, start: StartInTime) -> SmallerRequest | None:
    asked = max(chunk.gpus for chunk in request.chunks)
    found = _largest_in_time(0, asked - 1, lambda gpus: start(_with_at_most_gpus(request, gpus), walltime))
    return None if found is None else SmallerRequest("gpus", str(asked), str(found[0]), *found)


def _nodes(request: Request, walltime: int, start: StartInTime) -> SmallerRequest | None:
    if request.place is Place.PACK:
        return None  # they are on one node already
    units = request.units
    found = _largest_in_time(1, units - 1, lambda fewer: start(_first_units(request, fewer), walltime))
    if found is None:
        return None
    kind: Literal["nodes", "units"] = "nodes" if request.place is Place.SCATTER else "units"
    return SmallerRequest(kind, str(units), str(found[0]), *found)


def _features(request: Request, walltime: int, start: StartInTime) -> Iterator[SmallerRequest]:
    for wanted in dict.fromkeys(clause for chunk in request.chunks for clause in chunk.features):
        planned = start(_change_chunks(request, partial(_without_feature, wanted)), walltime)
        if planned >= 0:
            yield SmallerRequest("feature", "|".join(sorted(wanted)), "", None, planned)


def _with_at_most_cpus(request: Request, cpus: int) -> Request:
    return _change_chunks(
        request,
        lambda chunk: replace(
            chunk, cpus=min(chunk.cpus, cpus), resources=_with_at_most(chunk, CPUS_OF, cpus)
        ),
    )


def _with_at_most_gpus(request: Request, gpus: int) -> Request:
    return _change_chunks(
        request,
        lambda chunk: replace(
            chunk, gpus=min(chunk.gpus, gpus), resources=_with_at_most(chunk, GPUS_OF, gpus)
        ),
    )


def _with_at_most(chunk: Chunk, beginning: str, most: int) -> tuple[tuple[str, int], ...]:
    """Return a chunk's amounts, with at most ``most`` of each part of a host whose name begins with
    ``beginning``.
    """
    return tuple(
        [
            (name, min(amount, most) if name.startswith(beginning) else amount)
            for name, amount in chunk.resources
        ]
    )


def _with_at_most_mem(request: Request, mem: int) -> Request:
    return _change_chunks(
        request, lambda chunk: replace(chunk, mem=min(chunk.mem, mem), vmem=min(chunk.vmem, mem))
    )


def _without_feature(wanted: frozenset[str], chunk: Chunk) -> Chunk:
    of_feature = {
        of_value(name, value)
        for name, _, value in (feature.partition("=") for feature in wanted)
        for of_value in (cpu_amount_name, gpu_amount_name)
    }
    return replace(
        chunk,
        features=tuple(clause for clause in chunk.features if clause != wanted),
        resources=tuple([one for one in chunk.resources if one[0] not in of_feature]),
    )


def _change_chunks(request: Request, change: Callable[[Chunk], Chunk]) -> Request:
    return replace(request, chunks=tuple(map(change, request.chunks)))


def _first_units(request: Request, units: int) -> Request:
    """Return the request with only its first units."""
    chunks: list[Chunk] = []
    for chunk in request.chunks:
        count = min(chunk.count, units)
        units -= count
        if count:
            chunks.append(replace(chunk, count=count))
    return replace(request, chunks=tuple(chunks))


def _largest_in_time(least: int, most: int, start: Callable[[int], int]) -> tuple[int, int] | None:
    """Return the largest number in ``[least, most]`` that starts in time, and its start, by bisection (all
    smaller ones start in time, too).
    """
    if most < least or (found := start(least)) < 0:
        return None
    low, high = least, most + 1
    while low + 1 < high:
        middle = (low + high) // 2
        planned = start(middle)
        if planned >= 0:
            low, found = middle, planned
        else:
            high = middle
    return low, found
