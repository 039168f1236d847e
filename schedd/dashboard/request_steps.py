"""Smaller variants of a request, for the tables walltime and cpus to likely start of the page What if."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from schedd.dialect.units import format_walltime

_WALLTIME_SHARES: Final = (0.75, 0.5, 0.25)
_CPU_SHARES: Final = (0.5, 0.25)
_MIN_WALLTIME_S: Final = 60
# Each part begins with a colon and has no other: a pattern that could divide them in several ways would take
# exponential time for a request that does not match.
_CPUS: Final = (
    ("nodes", re.compile(r"^(\d+:ppn=)(\d{1,9})((?::[^+=:]+)*)$")),
    ("select", re.compile(r"^((?:\d+:)?ncpus=)(\d{1,9})((?::[^+:]+)*)$")),
    ("procs", re.compile(r"^()(\d{1,9})()$")),
    ("ncpus", re.compile(r"^()(\d{1,9})()$")),
)
_PER_NODE: Final = {"nodes": " per node", "select": " per chunk"}


class RequestStep(NamedTuple):
    """A variant of a request: ``label`` is its walltime or its cpus; ``request`` is its changed part."""

    kind: Literal["walltime", "cpus"]
    label: str
    request: str


def smaller_steps(resources: Mapping[str, str], walltime: int) -> Iterator[RequestStep]:
    """Yield shorter walltimes, then fewer cpus of a request with one simple ``nodes`` or ``select``."""
    for share in _WALLTIME_SHARES:
        seconds = int(walltime * share)
        if seconds >= _MIN_WALLTIME_S:
            text = format_walltime(seconds)
            yield RequestStep("walltime", text, f"walltime={text}")
    for name, pattern in _CPUS:
        match = pattern.match(resources.get(name, ""))
        if match is None:
            continue
        asked = int(match[2])
        for number in dict.fromkeys(int(asked * share) for share in _CPU_SHARES):
            if 0 < number < asked:
                words = f"{number} {'cpu' if number == 1 else 'cpus'}{_PER_NODE.get(name, '')}"
                yield RequestStep("cpus", words, f"{name}={match[1]}{number}{match[3]}")
        return
