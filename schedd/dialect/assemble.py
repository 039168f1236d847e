"""From chunks to a request: what both families' readers do alike."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from schedd.dialect.asked import Asked, parse_amount
from schedd.dialect.span import LARGEST, Span, whole_number
from schedd.dialect.units import LARGEST_SIZE, format_size, parse_walltime
from schedd.model.request import Chunk, Place, Request

__all__ = ["assemble", "by_lower_name", "divided", "resources_of", "walltime_of"]


def by_lower_name(names: Collection[str]) -> dict[str, str]:
    """Names of resources as the site writes them, found by their lower case: users' spelling varies."""
    return {name.lower(): name for name in names}


def resources_of(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The amounts of a chunk, sorted by name."""
    return tuple(sorted(amounts.items()))


def divided(span: Span, chunks: Sequence[Chunk], *, size: bool = False) -> int:
    """A unit's share of what is given for the whole job.

    A size is divided rounding up; a number of things must divide evenly, or else who gets how many would
    be a guess. Raises RequestError.
    """
    units = sum(chunk.count for chunk in chunks)
    total = parse_amount(span) if size else whole_number(span, "the number", least=0)
    if total % units and not size:
        raise span.error(f"{total} for the whole job cannot be divided evenly over its {units} units")
    return -(-total // units)


def walltime_of(asked: Asked, name: str = "walltime") -> int | None:
    """Seconds of a time among the resources, None when nothing names one. Raises RequestError.

    The servers start a job with a walltime of 0, and end it once it has run for a second.
    """
    span = asked.get(name)
    if span is None:
        return None
    seconds = parse_walltime(span)
    if seconds < 1:
        asked.note(f"planned with 1 second: {name} 0 ends a job as soon as it has run for a second")
    return max(1, seconds)


def assemble(
    chunks: Sequence[Chunk], place: Place, *, exclusive: bool, walltime: int | None, asked: Asked, about: Span
) -> Request:
    """The request, in normal form: neighbours that are alike are one chunk, a single unit is placed freely.

    ``about`` is what the error names when the request is beyond all measure.
    """
    merged: list[Chunk] = []
    for chunk in chunks:
        if merged and replace(merged[-1], count=chunk.count) == chunk:
            merged[-1] = replace(chunk, count=merged[-1].count + chunk.count)
        else:
            merged.append(chunk)
    for total, what in (
        (sum(chunk.count for chunk in merged), "units"),
        (sum(chunk.count * chunk.cpus for chunk in merged), "cores"),
        (sum(chunk.count * chunk.gpus for chunk in merged), "gpus"),
    ):
        if total > LARGEST:
            raise about.error(f"{total} {what} are too many", f"at most {LARGEST}")
    for total, what in (
        (sum(chunk.count * chunk.mem for chunk in merged), "memory"),
        (sum(chunk.count * chunk.vmem for chunk in merged), "virtual memory"),
    ):
        if total > LARGEST_SIZE:
            raise about.error(
                f"the {what} of the job would be too large", f"at most {format_size(LARGEST_SIZE)}"
            )
    for name in dict.fromkeys(name for chunk in merged for name, _ in chunk.resources):
        if sum(chunk.count * dict(chunk.resources).get(name, 0) for chunk in merged) > LARGEST_SIZE:
            raise about.error(
                f"the amount of {name} of the job would be too large", f"at most {LARGEST_SIZE}"
            )
    asked.note_the_rest()
    if sum(chunk.count for chunk in merged) == 1:
        place = Place.FREE
    return Request(tuple(merged), place, exclusive, walltime, tuple(asked.notes))
