"""Names of requested resources, compared without regard to case and blanks."""

from functools import lru_cache


@lru_cache(maxsize=10_000)
def find_spellings(names: tuple[str, ...], wanted: frozenset[str]) -> tuple[str, ...]:
    """Return the ``names`` of a request that spell any of ``wanted`` (in lower case), in their order.

    Jobs have few combinations of names, and each change of a job asks for several resources.
    """
    return tuple(name for name in names if name.strip().lower() in wanted)
