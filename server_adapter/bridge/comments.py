"""Comments on jobs for people to read: what we write, and what we read again of what we wrote."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from schedd.wire import ShareFacts, WriteAttributes

MARK: Final = "schedd: "
"""How every comment of ours begins."""

_PREDECESSORS: Final = (
    "Not Running: ",
    "Not Running - ",
    "Job started on ",
    "Job will never run",
    "Job deleted ",
)
"""How the comments of the scheduler that we replace begin: they may be overwritten."""

_PLANNED: Final = re.compile(
    re.escape(MARK) + r"planned start (\S+ \S+ [+-]\d{4}) on (\S+)(?: and \d+ more)?(?: \((.*?)\)?)?"
)
_TIME: Final = "%Y-%m-%d %H:%M:%S %z"
NODES_SHOWN: Final = 8
_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Told:
    """What our comment says: a planned start (epoch seconds) with nodes and remarks, or a text alone, or
    nothing.
    """

    planned_start: int | None = None
    nodes: tuple[str, ...] = ()
    text: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say."""
        return self.planned_start is None and not self.text


def told_by(tell: WriteAttributes) -> Told:
    """What a decision wants said; nodes beyond those that a comment shows do not count."""
    if tell.planned_start is None:
        return Told(text=_one_line(tell.text))
    return Told(tell.planned_start, tell.planned_nodes[:NODES_SHOWN], _also(tell))


def comment(tell: WriteAttributes) -> str:
    """The comment for a queued job; empty when there is nothing to say.

    Times are the server host's local time with its offset, as qstat prints local times.
    """
    if tell.planned_start is None:
        text = _one_line(tell.text)
        return (MARK + text)[:_LONGEST] if text else ""
    nodes = ",".join(tell.planned_nodes[:NODES_SHOWN]) or "any"
    more = len(tell.planned_nodes) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    also = _also(tell)
    return f"{MARK}planned start {_local(tell.planned_start)} on {nodes}{rest}{also and f' ({also})'}"[
        :_LONGEST
    ]


def told_start(tell: WriteAttributes, *, expected: bool) -> int | None:
    """The start that goes where one moment can stand: the planned one, or the ``expected`` one where there
    is any.
    """
    if expected and tell.planned_start is not None and tell.expected_start is not None:
        return tell.expected_start
    return tell.planned_start


def started_comment(started: int, shares: Sequence[ShareFacts], planned: int | None) -> str:
    """What replaces our comment when the job starts."""
    nodes = ",".join(share.node for share in shares[:NODES_SHOWN])
    more = len(shares) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    plan = "" if planned is None else f", last planned for {_local(planned)}"
    return f"{MARK}started {_local(started)} on {nodes}{rest}{plan}"


def is_ours(text: str) -> bool:
    """Whether we wrote this comment."""
    return text.startswith(MARK)


def is_foreign(text: str) -> bool:
    """Whether a person or a tool wrote this comment, so that we leave it alone."""
    return bool(text) and not is_ours(text) and not text.startswith(_PREDECESSORS)


def read_comment(text: str) -> Told | None:
    """What a comment of ours says; None for any other, and for one about a start that is past."""
    if not is_ours(text):
        return None
    if text.startswith(MARK + "started "):
        return None
    match = _PLANNED.fullmatch(text)
    if match is None:
        return Told(text=text[len(MARK) :])
    try:
        moment = datetime.strptime(match[1], _TIME)  # noqa: DTZ007  (it has an offset)
    except ValueError:
        return Told(text=text[len(MARK) :])
    nodes = () if match[2] == "any" else tuple(match[2].split(","))
    return Told(int(moment.timestamp()), nodes, match[3] or "")


def _one_line(text: str) -> str:
    return " ".join(text.split())[: _LONGEST - len(MARK)]


def _also(tell: WriteAttributes) -> str:
    """What stands in brackets behind a planned start."""
    parts = []
    if tell.expected_start is not None and tell.expected_by is not None:
        about, by = _local(tell.expected_start), _local(tell.expected_by)
        parts.append(f"expected about {about}" + (f", by {by} in 9 of 10 cases" if by else ""))
    if tell.promised_start is not None:
        parts.append(f"promised no later than {_local(tell.promised_start)}")
    if tell.text:
        parts.append(tell.text)
    return _one_line("; ".join(parts))


def _local(moment: int) -> str:
    """The moment in words; empty for one that no calendar has."""
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime(_TIME)
    except (ValueError, OverflowError, OSError):
        return ""
