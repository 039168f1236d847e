"""Construction of a request from chunks: the steps shared by both families' parsers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from schedd.dialect.requested_resources import RequestedResources, parse_amount
from schedd.dialect.span import LARGEST, Span, parse_integer
from schedd.dialect.units import LARGEST_SIZE, format_size, parse_walltime
from schedd.model.request import Chunk, Place, Request


def by_lower_name(names: Collection[str]) -> dict[str, str]:
    """Return the site's spelling of resource names by lower-case name, because users' spelling varies."""
    return {name.lower(): name for name in names}


def sorted_amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the amounts of a chunk, sorted by name."""
    return tuple(sorted(amounts.items()))


def divided(span: Span, chunks: Sequence[Chunk], *, size: bool = False) -> int:
    """Return a unit's share of an amount for the whole job.

    The share of a size is rounded up. Any other number must be a multiple of the number of units: otherwise
    the distribution would be a guess. Raises RequestError.
    """
    units = sum(chunk.count for chunk in chunks)
    total = parse_amount(span) if size else parse_integer(span, "the number", least=0)
    if total % units and not size:
        raise span.error(f"{total} for the whole job cannot be divided evenly over its {units} units")
    return -(-total // units)


def requested_walltime(requested: RequestedResources, name: str = "walltime") -> int | None:
    """Return a requested time in seconds; None if it is absent. Raises RequestError.

    The servers start a job with a walltime of 0 and kill it after one second.
    """
    span = requested.get(name)
    if span is None:
        return None
    seconds = parse_walltime(span)
    if seconds < 1:
        requested.note(f"planned with 1 second: {name} 0 ends a job as soon as it has run for a second")
    return max(1, seconds)


def assemble(
    chunks: Sequence[Chunk],
    place: Place,
    *,
    exclusive: bool,
    walltime: int | None,
    requested: RequestedResources,
    about: Span,
) -> Request:
    """Return the request in normal form: equal adjacent chunks are merged, a single unit has no placement
    rule.

    ``about`` is the span shown in the error if the request is too large.
    """
    merged: list[Chunk] = []
    for chunk in chunks:
        if merged and replace(merged[-1], count=chunk.count) == chunk:
            merged[-1] = replace(chunk, count=merged[-1].count + chunk.count)
        else:
            merged.append(chunk)
    units = cores = gpus = memory = virtual = 0
    for chunk in merged:  # one loop: each new request comes here
        units += chunk.count
        cores += chunk.count * chunk.cpus
        gpus += chunk.count * chunk.gpus
        memory += chunk.count * chunk.mem
        virtual += chunk.count * chunk.vmem
    for total, what in ((units, "units"), (cores, "cores"), (gpus, "gpus")):
        if total > LARGEST:
            raise about.error(f"{total} {what} are too many", f"at most {LARGEST}")
    for total, what in ((memory, "memory"), (virtual, "virtual memory")):
        if total > LARGEST_SIZE:
            raise about.error(
                f"the {what} of the job would be too large", f"at most {format_size(LARGEST_SIZE)}"
            )
    for name in dict.fromkeys(name for chunk in merged for name, _ in chunk.resources):
        if sum(chunk.count * dict(chunk.resources).get(name, 0) for chunk in merged) > LARGEST_SIZE:
            raise about.error(
                f"the amount of {name} of the job would be too large", f"at most {LARGEST_SIZE}"
            )
    requested.note_the_rest()
    if units == 1:
        place = Place.FREE
    return Request(tuple(merged), place, exclusive, walltime, tuple(requested.notes))
