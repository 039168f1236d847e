"""What a ``depend`` attribute says: which jobs a job waits for, and what each of them must have done."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["Condition", "Until", "conditions"]


class Until(StrEnum):
    """What the other job must have done before this one may start."""

    STARTED = "after"
    SUCCEEDED = "afterok"
    ENDED = "afterany"
    FAILED = "afternotok"
    OTHER = "other"
    """A word that says something else, or that nobody knows."""
    UNSUPPORTED = "unsupported"
    """Sets of jobs that start at one moment."""


_WORDS: Final = {
    "after": Until.STARTED,
    "afterstartarray": Until.STARTED,
    "afterok": Until.SUCCEEDED,
    "afterokarray": Until.SUCCEEDED,
    "afterany": Until.ENDED,
    "afteranyarray": Until.ENDED,
    "afternotok": Until.FAILED,
    "afternotokarray": Until.FAILED,
    "synccount": Until.UNSUPPORTED,
    "syncwith": Until.UNSUPPORTED,
}
_OTHERS_WAIT: Final = ("before", "runone")
"""Words that hold others back, or that the server itself keeps: they do not hold this job."""


class Condition(NamedTuple):
    """One job or array to wait for until it has done that; ``word`` as the server writes it."""

    until: Until
    job: str
    word: str


def conditions(depend: str) -> Iterator[Condition]:
    """The conditions that hold the job, in the order of the text; those under which others wait are left out.

    Both families write ``word:job[:job…][,word:…]``, each job perhaps with ``@server``.
    """
    for part in depend.split(","):
        word, _, jobs = part.strip().partition(":")
        if not word.startswith(_OTHERS_WAIT):
            until = _WORDS.get(word, Until.OTHER)
            for job in jobs.split(":") if jobs else [""]:
                yield Condition(until, job.partition("@")[0], word)
