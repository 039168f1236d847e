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
class CommentContent:
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


def comment_content(decision: WriteAttributes) -> CommentContent:
    """What a decision wants said; nodes beyond those that a comment shows do not count."""
    if decision.planned_start is None:
        return CommentContent(text=_flatten(decision.text))
    return CommentContent(decision.planned_start, decision.planned_nodes[:NODES_SHOWN], _remarks(decision))


def comment(decision: WriteAttributes) -> str:
    """The comment for a queued job; empty when there is nothing to say.

    Times are the server host's local time with its offset, as qstat prints local times.
    """
    if decision.planned_start is None:
        text = _flatten(decision.text)
        return (MARK + text)[:_LONGEST] if text else ""
    nodes = ",".join(decision.planned_nodes[:NODES_SHOWN]) or "any"
    more = len(decision.planned_nodes) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    also = _remarks(decision)
    return f"{MARK}planned start {_local(decision.planned_start)} on {nodes}{rest}{also and f' ({also})'}"[
        :_LONGEST
    ]


def start_to_write(decision: WriteAttributes, *, expected: bool) -> int | None:
    """The start that goes where one moment can stand: the planned one, or the ``expected`` one where there
    is any.
    """
    if expected and decision.planned_start is not None and decision.expected_start is not None:
        return decision.expected_start
    return decision.planned_start


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


def read_comment(text: str) -> CommentContent | None:
    """What a comment of ours says; None for any other, and for one about a start that is past."""
    if not is_ours(text):
        return None
    if text.startswith(MARK + "started "):
        return None
    match = _PLANNED.fullmatch(text)
    if match is None:
        return CommentContent(text=text[len(MARK) :])
    try:
        moment = datetime.strptime(match[1], _TIME)  # noqa: DTZ007  (it has an offset)
    except ValueError:
        return CommentContent(text=text[len(MARK) :])
    nodes = () if match[2] == "any" else tuple(match[2].split(","))
    return CommentContent(int(moment.timestamp()), nodes, match[3] or "")


def _flatten(text: str) -> str:
    return " ".join(text.split())[: _LONGEST - len(MARK)]


def _remarks(decision: WriteAttributes) -> str:
    """What stands in brackets behind a planned start."""
    parts = []
    if decision.expected_start is not None and decision.expected_by is not None:
        about, by = _local(decision.expected_start), _local(decision.expected_by)
        parts.append(f"expected about {about}" + (f", by {by} in 9 of 10 cases" if by else ""))
    if decision.promised_start is not None:
        parts.append(f"promised no later than {_local(decision.promised_start)}")
    if decision.text:
        parts.append(decision.text)
    return _flatten("; ".join(parts))


def _local(moment: int) -> str:
    """The moment in words; empty for one that no calendar has."""
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime(_TIME)
    except (ValueError, OverflowError, OSError):
        return ""
