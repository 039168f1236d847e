"""Requests by tasks: the text that `qsub -L` sends, as the attributes that a server of 6.1 shows for it."""

import re
from collections.abc import Mapping
from typing import Final

_PART: Final = re.compile(r"\s*req\[(\d{1,4})\]\s*")
_NAMES: Final[Mapping[str, str]] = {
    "task count": "task_count",
    "max tpn": "maxtpn",
    "gpu mode": "gpu_mode",
    "os": "opsys",
    "mem": "memory",
    "total_mem": "total_memory",
    "thread usage policy": "thread_usage_policy",
    "single job access": "single_job_access",
}
"""Names in the text that the server shows otherwise."""


def task_attributes(text: str) -> dict[str, str]:
    """Return the attributes of a job with this `req_information`, for example `req_information.lprocs.0`."""
    found = {"request_version": "2"}
    number = "0"
    for line in text.splitlines():
        if (part := _PART.fullmatch(line)) is not None:
            number = part[1]
            continue
        name, _, value = line.strip().partition(": ")
        if name and name != "placement type":  # a second form of `socket` and the like
            found[f"req_information.{_NAMES.get(name, name)}.{number}"] = value or "true"
    return found
