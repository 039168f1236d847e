"""Smallest changes of a request for a start by a given time, one resource at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from schedd.dialect.units import format_size, format_walltime
from schedd.model import Chunk, Place, Request

Fits = Callable[[Request, int], bool]  # whether a request would start in time with this walltime

_MIB = 1024


@dataclass(frozen=True, slots=True)
class SmallerRequest:
    """The smallest change of one resource that allows a start in time."""

    change: Literal["walltime", "cpus", "mem", "nodes", "feature"]
    """`cpus` and `mem` are per unit (a node of `nodes=`, a chunk of `select=`)."""
    asked: str
    enough: str
    """In the syntax of `qsub -l`; empty for a feature to leave out."""
    value: int | None
    """The same as a number: seconds, cpus, KiB or nodes."""
    risk: float | None = None
    """Of a walltime: the share of such jobs that run longer and would be killed; null: not predicted."""


def smaller_requests(request: Request, walltime: int, fits: Fits) -> tuple[SmallerRequest, ...]:
    """Return the sufficient changes for a request that cannot start in time, in no particular order.

    Walltime has a precision of a second, memory of a MiB.
    """
    return tuple(
        found
        for found in (
            _walltime(request, walltime, fits),
            _cpus(request, walltime, fits),
            _mem(request, walltime, fits),
            _nodes(request, walltime, fits),
            *_features(request, walltime, fits),
        )
        if found is not None
    )


def _walltime(request: Request, walltime: int, fits: Fits) -> SmallerRequest | None:
    most = _largest_fitting(1, walltime - 1, lambda seconds: fits(request, seconds))
    if most is None:
        return None
    return SmallerRequest("walltime", format_walltime(walltime), format_walltime(most), most)


def _cpus(request: Request, walltime: int, fits: Fits) -> SmallerRequest | None:
    asked = max(chunk.cpus for chunk in request.chunks)

    def with_at_most(cpus: int) -> Request:
        return _change_chunks(request, lambda chunk: replace(chunk, cpus=min(chunk.cpus, cpus)))

    most = _largest_fitting(1, asked - 1, lambda cpus: fits(with_at_most(cpus), walltime))
    return None if most is None else SmallerRequest("cpus", str(asked), str(most), most)


def _mem(request: Request, walltime: int, fits: Fits) -> SmallerRequest | None:
    asked = max(max(chunk.mem, chunk.vmem) for chunk in request.chunks)

    def with_at_most(mem: int) -> Request:
        return _change_chunks(
            request, lambda chunk: replace(chunk, mem=min(chunk.mem, mem), vmem=min(chunk.vmem, mem))
        )

    most = _largest_fitting(1, -(-asked // _MIB) - 1, lambda mib: fits(with_at_most(mib * _MIB), walltime))
    if most is None:
        return None
    return SmallerRequest("mem", format_size(asked), format_size(most * _MIB), most * _MIB)


def _nodes(request: Request, walltime: int, fits: Fits) -> SmallerRequest | None:
    if request.place is Place.PACK:
        return None  # they are on one node already
    most = _largest_fitting(1, request.units - 1, lambda units: fits(_first_units(request, units), walltime))
    return None if most is None else SmallerRequest("nodes", str(request.units), str(most), most)


def _features(request: Request, walltime: int, fits: Fits) -> Iterator[SmallerRequest]:
    for wanted in dict.fromkeys(clause for chunk in request.chunks for clause in chunk.features):
        if fits(_change_chunks(request, partial(_without_feature, wanted)), walltime):
            yield SmallerRequest("feature", "|".join(sorted(wanted)), "", None)


def _without_feature(wanted: frozenset[str], chunk: Chunk) -> Chunk:
    return replace(chunk, features=tuple(clause for clause in chunk.features if clause != wanted))


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


def _largest_fitting(least: int, most: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest number in ``[least, most]`` that fits, by bisection (all smaller ones fit, too)."""
    if most < least or not fits(least):
        return None
    low, high = least, most + 1
    while low + 1 < high:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
