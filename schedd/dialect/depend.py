"""Job dependencies: parser of the ``depend`` attribute."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple


class Until(StrEnum):
    """State that the other job must have reached before this one may start."""

    STARTED = "after"
    SUCCEEDED = "afterok"
    ENDED = "afterany"
    FAILED = "afternotok"
    OTHER = "other"  # an unknown condition, or one without an equivalent here
    UNSUPPORTED = "unsupported"  # sets of jobs with a common start


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
"""Prefixes of conditions on other jobs, or conditions that the server enforces: they do not hold this job."""


_BEFORE: Final = (
    *("before", "beforeok", "beforenotok", "beforeany", "beforestartarray"),
    *("beforeokarray", "beforenotokarray", "beforeanyarray"),
)
_COUNTS: Final = ("on", "synccount")
"""Conditions with a number of jobs."""
_KINDS: Final = frozenset({*_WORDS, *_BEFORE, *_COUNTS, "runone"})
_JOB: Final = re.compile(r"[0-9]+(\[[0-9]*\])?([.@][^\s:,]*)?")


class Condition(NamedTuple):
    """Dependency on one job or array; ``word`` is the server's name of the condition."""

    until: Until
    job: str
    word: str


def conditions(depend: str) -> Iterator[Condition]:
    """Yield the conditions that hold the job, in the order of the text; conditions on other jobs are omitted.

    Format in both families: ``word:job[:job…][,word:…]``; a job may be followed by ``@server``.
    """
    for part in depend.split(","):
        word, _, jobs = part.strip().partition(":")
        if not word.startswith(_OTHERS_WAIT):
            until = _WORDS.get(word, Until.OTHER)
            for job in jobs.split(":") if jobs else [""]:
                yield Condition(until, job.partition("@")[0], word)


def own_conditions(depend: str) -> str:
    """Return the text without conditions that let other jobs wait for this one: servers add these."""
    return ",".join([part for part in depend.split(",") if not part.strip().startswith("before")])


def depend_fault(depend: str) -> str:
    """Return why no server of either family takes this ``depend`` attribute; empty: it is well-formed."""
    for part in depend.split(","):
        word, _, jobs = part.strip().partition(":")
        if word not in _KINDS:
            plain = ", ".join(word for word in _WORDS if not word.endswith("array"))
            return f"{word or part!r} is no kind of dependency; known are {plain}, before, on and more"
        for job in jobs.split(":"):
            if word in _COUNTS and (not job.isdecimal() or not int(job)):
                return f"{part.strip()}: {word} takes a number of jobs, such as {word}:2"
            if word not in _COUNTS and not _JOB.fullmatch(job):
                return f"{part.strip()}: {word} takes jobs, such as {word}:123 or {word}:123[]"
    return ""
