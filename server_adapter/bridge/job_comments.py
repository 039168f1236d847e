"""Comments on jobs: writing them, and reading own comments back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from schedd.start_sentence import StartFacts, describe_start, format_day_time
from schedd.wire import ShareFacts, WriteAttributes

MARK: Final = "schedd: "  # prefix of the adapter's comments

_PREDECESSORS: Final = (
    "Not Running: ",
    "Not Running - ",
    "Job started on ",
    "Job will never run",
    "Job deleted ",
    "Job run at ",
    "Job was sent for execution at ",
    "Job manually qrun",
)
"""Prefixes of comments that may be overwritten: of the replaced scheduler, and of a server on a run
that came back.
"""

_PLANNED: Final = re.compile(
    re.escape(MARK)
    + r"(?:(.*?); )?planned start (\S+ \S+ [+-]\d{4}) on (\S+)(?: and \d+ more)?(?: \((.*?)\)?)?"
)
_TIME: Final = "%Y-%m-%d %H:%M:%S %z"
NODES_SHOWN: Final = 8
_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class CommentContent:
    """An own comment: a planned start (epoch) with nodes and remarks, a text, or neither."""

    planned_start: int | None = None
    nodes: tuple[str, ...] = ()
    text: str = ""

    @property
    def empty(self) -> bool:
        return self.planned_start is None and not self.text


def comment_content(decision: WriteAttributes) -> CommentContent:
    """Return the content of the comment for a decision, with only the nodes that a comment shows."""
    if decision.planned_start is None:
        return CommentContent(text=_flatten(decision.text))
    return CommentContent(decision.planned_start, decision.planned_nodes[:NODES_SHOWN], _remarks(decision))


def comment(decision: WriteAttributes) -> str:
    """Return the comment for a queued job; empty without content.

    The sentence about its start comes first, then the planned start and nodes. Times are the server host's
    local time, like those of qstat; the planned start has its offset.
    """
    if decision.planned_start is None:
        text = _flatten(decision.text)
        return (MARK + text)[:_LONGEST] if text else ""
    nodes = ",".join(decision.planned_nodes[:NODES_SHOWN]) or "any"
    more = len(decision.planned_nodes) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    headline, *remarks = _texts(decision)
    also = _flatten("; ".join(filter(None, remarks)))
    return (
        f"{MARK}{headline and f'{headline}; '}planned start {_local(decision.planned_start)} on {nodes}{rest}"
        f"{also and f' ({also})'}"
    )[:_LONGEST]


def start_to_write(decision: WriteAttributes, *, expected: bool) -> int | None:
    """Return the start for an attribute with one time: the ``expected`` one, else the planned."""
    if expected and decision.planned_start is not None and decision.expected_start is not None:
        return decision.expected_start
    return decision.planned_start


def started_comment(started: int, shares: Sequence[ShareFacts], planned: int | None) -> str:
    nodes = ",".join(share.node for share in shares[:NODES_SHOWN])
    more = len(shares) - NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    plan = "" if planned is None else f", last planned for {_local(planned)}"
    return f"{MARK}started {_local(started)} on {nodes}{rest}{plan}"


def is_ours(text: str) -> bool:
    """Return whether the adapter wrote this comment."""
    return text.startswith(MARK)


def is_foreign(text: str) -> bool:
    """Return whether a person or another tool wrote this comment, so that it must be preserved."""
    return bool(text) and not is_ours(text) and not text.startswith(_PREDECESSORS)


def read_comment(text: str) -> CommentContent | None:
    """Return the content of an own comment; None for other comments and for those of started jobs."""
    if not is_ours(text):
        return None
    if text.startswith(MARK + "started "):
        return None
    match = _PLANNED.fullmatch(text)
    if match is None:
        return CommentContent(text=text[len(MARK) :])
    try:
        moment = datetime.strptime(match[2], _TIME)  # noqa: DTZ007  (it has an offset)
    except ValueError:
        return CommentContent(text=text[len(MARK) :])
    nodes = () if match[3] == "any" else tuple(match[3].split(","))
    return CommentContent(int(moment.timestamp()), nodes, "; ".join(filter(None, (match[1], match[4]))))


def _flatten(text: str) -> str:
    return " ".join(text.split())[: _LONGEST - len(MARK)]


def _remarks(decision: WriteAttributes) -> str:
    """Return all of a comment but the planned start and nodes."""
    return _flatten("; ".join(filter(None, _texts(decision))))


def _texts(decision: WriteAttributes) -> tuple[str, str, str]:
    """Return the sentence about the start if there is a forecast, else its promise, and the decision's
    text. Any of them may be empty.
    """
    facts = StartFacts(
        planned=decision.planned_start,
        expected=decision.expected_start,
        expected_by=decision.expected_by,
        promised=decision.promised_start,
        predicted=decision.expected_start is not None,
    )
    sentence = describe_start(facts, decision.time)
    forecast = sentence.certainty in ("likely", "any time")
    if not forecast:  # the planned start follows anyway
        sentence = sentence._replace(certainty="latest")
    text = sentence.text(lambda time: format_day_time(time, decision.time))
    if forecast:
        return text, "", decision.text
    return "", f"{text[:1].lower()}{text[1:]}", decision.text


def _local(moment: int) -> str:
    """Format a time in local time; empty for a time outside the calendar."""
    try:
        return datetime.fromtimestamp(moment).astimezone().strftime(_TIME)
    except (ValueError, OverflowError, OSError):
        return ""
