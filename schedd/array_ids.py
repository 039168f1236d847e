"""Ids of jobs and of job arrays."""

import re
from typing import Final

INDEX: Final = re.compile(r"\[(\d+)\]")
_MAX_DIGITS: Final = 18
_SEQUENCE: Final = re.compile(r"([0-9]{1,18})(?:\[([0-9]{0,9})\])?")
_NO_NUMBER: Final = 10**18


def array_id(job: str) -> str:
    """`7[].server` of `7[3].server`, as both families write it; the same of a job of no array."""
    return INDEX.sub("[]", job, count=1) if "[" in job else job


def array_name(name: str, job: str) -> str:
    """Return the name of an array by that of its subjob `7[3].server`: TORQUE names this `sweep-3`."""
    found = INDEX.search(job)
    return name.removesuffix(f"-{found[1]}") if found is not None else name


def submission_order(job: str) -> tuple[int, int, str]:
    """Return the sort key of job ids in order of submission: number, index of the subjob, id.

    Times of submission are whole seconds: jobs of the same second are ordered by this. Ids without a number
    are last.
    """
    number = job.partition(".")[0]
    if (
        number.isdigit() and number.isascii() and len(number) <= _MAX_DIGITS
    ):  # most jobs: this is thrice as fast
        return int(number), 0, job
    found = _SEQUENCE.match(job)
    if found is None:
        return _NO_NUMBER, 0, job
    return int(found[1]), int(found[2] or 0), job
