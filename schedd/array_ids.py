"""Ids of job arrays."""

import re
from typing import Final

INDEX: Final = re.compile(r"\[(\d+)\]")


def array_id(job: str) -> str:
    """`7[].server` of `7[3].server`, as both families write it; the same of a job of no array."""
    return INDEX.sub("[]", job, count=1) if "[" in job else job
