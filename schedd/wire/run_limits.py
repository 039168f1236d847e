"""Version of the server's limits on running jobs: a start is refused if they changed since its decision."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

_RUN_LIMITS: Final = frozenset(
    {
        *("max_run", "max_run_res", "max_running", "max_user_run", "max_group_run"),
        *("max_user_res", "max_group_res", "resources_available"),
    }
)


def run_limits_version(server: Mapping[str, str], queue: Mapping[str, str]) -> str:
    """Return a hash of the limits of the server and of a queue that bound its running jobs. Both mappings
    have attributes in the server's notation, and may have others.
    """
    parts = [
        f"{place}{name}={text}"
        for place, limits in (("server ", server), ("queue ", queue))
        for name, text in sorted(limits.items())
        if name.partition(".")[0] in _RUN_LIMITS
    ]
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
