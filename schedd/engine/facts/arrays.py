"""Indices, names and hashes of job arrays."""

from hashlib import blake2b

from schedd.array_ids import INDEX


def array_index(job: str) -> int:
    """3 of `7[3].server`; 0 of a job of no array."""
    found = INDEX.search(job)
    return int(found.group(1)) if found is not None else 0


def array_name(job: str, name: str) -> str:
    """Return the name given at submission, such as `relax`: some servers call `7[3].server` `relax-3`."""
    found = INDEX.search(job)
    return name.removesuffix(f"-{found.group(1)}") if found is not None else name


def hash_array(array: str) -> int:
    """Return a positive number for an array's id, equal in every process; 0 for the empty id of a job without
    an array.

    Among a million arrays two share a number with probability 1e-7, which affects only the repair order of
    their jobs.
    """
    if not array:
        return 0
    return int.from_bytes(blake2b(array.encode(), digest_size=8).digest()) >> 1 | 1
