"""What all families' facts have in common: states, endings, versions, and careful readers of values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeVar

from schedd.wire import JobFacts, ShareFacts
from schedd.wire.bounds import AMOUNT_END, CORES_END, TIME_END, bounded

T = TypeVar("T")
Values = Mapping[str, str]

ACTIVE: Final = frozenset({"R", "E", "S"})
"""The states in which a job holds nodes."""


def job_version(job: JobFacts) -> str:
    """A hash of what a run decision relies on: the request, the queue, the conditions, the starts so far.

    State and holds are left out, since a decision is always for a queued job without holds: the check right
    before the run looks at them. So a hold that was set and lifted leaves earlier decisions valid.
    """
    return request_version(job.queue, job.depend, job.not_before, job.exclusive, job.starts, job.resources)


def request_version(
    queue: str, depend: str, not_before: int | None, exclusive: bool, starts: int, resources: Values
) -> str:
    """A hash of these parts of a job."""
    if "before" in depend:
        depend = ",".join([part for part in depend.split(",") if not part.startswith("before")])
    parts = [queue, depend, str(not_before), str(exclusive), str(starts)]
    parts += [f"{key}={value}" for key, value in sorted(resources.items())]
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that is complete: how and when it ended, and its last run, where it ran at all; `by` is who had
    that started by hand.
    """

    exit_status: int | None
    completed: int | None
    started: int | None
    starts: int
    shares: tuple[ShareFacts, ...]
    by: str = ""

    @property
    def used(self) -> int | None:
        """Seconds for which the last run lasted."""
        if self.started is None or self.completed is None:
            return None
        return max(0, self.completed - self.started)


def parse_number(text: str | None) -> int | None:
    """An integer, or None where there is none. Here as below, one that is beyond the bounds of messages is
    the nearest within them: one odd value does not keep the daemon from taking the others.
    """
    return _number(text, AMOUNT_END, 1 - AMOUNT_END)


def parse_time(text: str | None) -> int | None:
    """Seconds since the epoch, or None where there are none."""
    return _number(text, TIME_END)


def parse_count(text: str | None) -> int:
    """A number of cores or gpus, 0 where there is none."""
    return _number(text, CORES_END) or 0


def _number(text: str | None, end: int, least: int = 0) -> int | None:
    try:
        return None if text is None else bounded(int(text), end, least)
    except ValueError:
        return None


def parse_or(parse: Callable[[str], T], text: str | None, *, default: T) -> T:
    """The parsed text, or `default` where it is absent or cannot be read."""
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError:
        return default
