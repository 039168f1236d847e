"""The shape in which Open OnDemand (ood_core 0.2x, adapters ``torque`` and ``pbspro``) reads jobs.

The TORQUE adapter takes the attributes of StatusJob by name; the PBS Pro adapter parses the text of
``qstat -f -t``. Both keep all attributes as ``native``; the dashboard shows the comment of waiting jobs.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STATES = {
    "Q": "queued",
    "H": "queued_held",
    "R": "running",
    "E": "running",
    "C": "completed",
    "F": "completed",
}


@dataclass(frozen=True)
class OnDemandJob:
    """What the portal knows of a job. ``dispatch_time`` in seconds since the epoch."""

    status: str
    dispatch_time: int | None
    comment: str
    native: Mapping[str, Any]


def read_torque_job(attributes: Mapping[str, str]) -> OnDemandJob:
    """Read the attributes of a TORQUE job, as they are on the wire."""
    start = attributes.get("start_time")
    return OnDemandJob(
        _STATES.get(attributes["job_state"], "undetermined"),
        int(start) if start is not None else None,
        attributes.get("comment", ""),
        attributes,
    )


def print_qstat(job: str, attributes: Mapping[str, str]) -> str:
    """Return the text of ``qstat -f`` for these attributes: times as dates, long lines continued by a tab."""
    lines = [f"Job Id: {job}"]
    for name, value in attributes.items():
        shown = time.ctime(int(value)) if name in ("stime", "estimated.start_time", "ctime") else value
        line = f"    {name} = {shown}"
        while len(line) > 79:
            lines.append(line[:79])
            line = "\t" + line[79:]
        lines.append(line)
    return "\n".join([*lines, ""])


def read_qstat(text: str) -> dict[str, OnDemandJob]:
    """Parse the text of ``qstat -f``."""
    found: dict[str, OnDemandJob] = {}
    name = ""
    native: dict[str, Any] = {}
    for line in [*text.replace("\n\t", "").splitlines(), "Job Id: end"]:
        if start := re.match(r"Job Id: (.+)", line):
            if name:
                stime = native.get("stime")
                found[name] = OnDemandJob(
                    _STATES.get(str(native.get("job_state")), "undetermined"),
                    int(time.mktime(time.strptime(str(stime)))) if stime else None,
                    str(native.get("comment", "")),
                    native,
                )
            name, native = start[1], {}
        elif pair := re.match(r"\s*(\S+) = (.+)", line):
            first, dot, second = pair[1].partition(".")
            if dot:
                native.setdefault(first, {})[second] = pair[2]
            else:
                native[first] = pair[2]
    return found
