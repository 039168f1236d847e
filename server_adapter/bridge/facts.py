"""Common parts of the facts of all families: states, endings, versions, tolerant parsers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from schedd.wire import JobFacts, ShareFacts
from schedd.wire.bounds import AMOUNT_END, CORES_END, TIME_END, bounded

T = TypeVar("T")
Values = Mapping[str, str]

ACTIVE: Final = frozenset({"R", "E", "S"})  # job states with assigned nodes


def job_version(job: JobFacts) -> str:
    """Return a hash of everything that a run decision relies on: request, queue, conditions, number of
    starts.

    State and holds are left out, since a decision is always for a queued job without holds, and the check
    right before the run covers them. A hold that was set and released leaves earlier decisions valid.
    """
    return request_version(job.queue, job.depend, job.not_before, job.exclusive, job.starts, job.resources)


def request_version(
    queue: str, depend: str, not_before: int | None, exclusive: bool, starts: int, resources: Values
) -> str:
    """Return a hash of these parts of a job."""
    if "before" in depend:
        depend = ",".join([part for part in depend.split(",") if not part.startswith("before")])
    parts = [queue, depend, str(not_before), str(exclusive), str(starts)]
    parts += [f"{key}={value}" for key, value in sorted(resources.items())]
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a job: exit status, time, last run if any; `by`: user of a manual start; `moved_to`:
    `queue@server`, the destination of a job that was moved to another server.
    """

    exit_status: int | None
    completed: int | None
    started: int | None
    starts: int
    shares: tuple[ShareFacts, ...]
    by: str = ""
    moved_to: str = ""

    @property
    def used(self) -> int | None:
        """Duration of the last run in seconds."""
        if self.started is None or self.completed is None:
            return None
        return max(0, self.completed - self.started)


_SUBMISSION_ATTRIBUTES: Final = frozenset(
    {
        *("acl_user_enable", "acl_users", "acl_group_enable", "acl_groups", "acl_group_sloppy"),
        *("acl_logic_or", "acl_host_enable", "acl_hosts", "from_route_only", "disallowed_types"),
        "default_queue",
    }
)


def submission_attributes(values: Values) -> dict[str, str]:
    """Return the attributes of a queue or server that say which jobs it accepts, as printed."""
    return {name: value for name, value in values.items() if name in _SUBMISSION_ATTRIBUTES and value.strip()}


def parse_number(text: str | None) -> int | None:
    """Parse an integer; None if absent or malformed. This and the next functions clamp numbers to the bounds
    of messages, so that one odd value does not block the others.
    """
    return _number(text, AMOUNT_END, 1 - AMOUNT_END)


def parse_time(text: str | None) -> int | None:
    """Parse seconds since the epoch; None if absent or malformed."""
    return _number(text, TIME_END)


def parse_count(text: str | None) -> int:
    """Parse a number of cores or gpus; 0 if absent or malformed."""
    return _number(text, CORES_END) or 0


def _number(text: str | None, end: int, least: int = 0) -> int | None:
    try:
        return None if text is None else bounded(int(text), end, least)
    except ValueError:
        return None


def parse_or(parse: Callable[[str], T], text: str | None, *, default: T) -> T:
    """Return the parsed text, or `default` if it is absent or malformed."""
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError:
        return default
