"""Explanations of a job, each one line."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from schedd.engine.facts.records import JobRecord, Phase
from schedd.model import Never, WaitingFor
from schedd.name_list import shorten_list
from schedd.start_sentence import SUSPENDED

_NAMED = 3
_CAME_BACK = "it was back in its queue"
_MEMORY = re.compile(r"\bmem\b|has all that a unit needs")


def request_notes(record: JobRecord) -> list[str]:
    """Return remarks on how the request was understood, and the conditions of its start."""
    understood = record.understood
    found: list[str] = []
    if record.behind and record.phase is Phase.WAITING and record.answer is None:
        found.append("if " + " and ".join(f"{link.kind}:{link.job}" for link in record.behind))
    if understood.request is not None:
        found += understood.request.notes
    if understood.assumed and understood.request is not None and not isinstance(record.answer, Never):
        found.append(f"walltime assumed to be {understood.walltime} s")
    if understood.assumed_mem and isinstance(record.answer, Never) and _MEMORY.search(str(record.answer)):
        found.append("it requests no memory, so the site's amount for each core counts")
    return found


def explain_choice(record: JobRecord, start: int) -> str:
    """Return why the job is not planned for its earliest possible start; empty if it is."""
    choice = record.choice
    if choice is None or choice.start != start:
        return ""
    return (
        f"nodes of speed {choice.speed:g} are worth more by the site's criteria than a start at "
        f"{format_moment(choice.instead)} on slower ones"
    )


def job_notes(record: JobRecord, start: int, sets: Sequence[str] = ()) -> list[str]:
    """Return further remarks on a job, apart from its start, its limits and its waiting reason.

    ``start`` is the planned start, ``sets`` the node sets of its nodes.
    """
    found: list[str] = []
    if record.phase in (Phase.BLOCKED, Phase.WAITING) and record.answer is None:
        if start >= 0 and (reason := explain_choice(record, start)):
            found.append(f"not sooner, since {reason}")
        if record.back_off.refusal and record.back_off.until > 0:
            found.append(f"{last_refusal(record)}{_tried_on(record)}")
    found += request_notes(record)
    if len(sets) > 1:
        found.append(f"on {len(sets)} sets of nodes ({', '.join(sets)}), since no single one is free in time")
    return found


def explain_node_wait(names: Sequence[str], grace: int) -> str:
    """Return why a due job waits: its nodes ``names`` went down. ``grace`` is `node_grace` in seconds."""
    return (
        f"it waits for {shorten_list(names, _NAMED)}, which cannot be used at present, and is planned "
        f"elsewhere if that lasts {format_length(grace)}"
    )


def server_refusal(record: JobRecord) -> str:
    """What the server said when it refused the last start for a reason that does not pass by itself, such as
    the message of a hook; empty where it did not.
    """
    back_off = record.back_off
    if not back_off.refusals or not back_off.refusal.startswith("the server"):
        return ""
    return last_refusal(record)


def last_refusal(record: JobRecord) -> str:
    """Describe the last failed start of a job: its refusal, or its quick return to the queue."""
    refusal = record.back_off.refusal
    if refusal.startswith(_CAME_BACK):
        return f"its last start failed: {refusal}"
    return f"its last start was refused by {refusal}"


def early_return_text(seconds: int) -> str:
    """Return the refusal of a job that came back to its queue soon after its start."""
    return f"{_CAME_BACK} {seconds} s after its start"


def _tried_on(record: JobRecord) -> str:
    """Return the nodes with failed starts of the job, at most a few by name."""
    failed = record.back_off.failed_on[::-1]
    if not failed:
        return ""
    return f"; other nodes than {shorten_list(failed, _NAMED)} are tried first"


def explain_job(
    record: JobRecord,
    start: int,
    limits: Sequence[str] = (),
    sets: Sequence[str] = (),
    published_start: int | None = None,
) -> str:
    """Return one line about the job: its start, its waiting reason, or the requirement that it can never
    meet.

    ``limits`` delay its planned ``start``; ``sets`` are the node sets of its nodes.
    """
    said, held = "in the queue", [f"not sooner, since {limit}" for limit in limits]
    if record.phase is Phase.RUNNING:
        said, held = ("it is suspended" if record.facts.state == SUSPENDED else "it runs"), []
    elif record.phase is Phase.DISPATCHED:
        said, held = "it is being started", []
    elif isinstance(record.answer, Never):
        said, held = str(record.answer), []
    elif isinstance(record.answer, WaitingFor):
        said, held = f"waiting for {record.answer.what}", []
    elif start >= 0:
        said = f"planned start {format_moment(start if published_start is None else published_start)}"
    else:
        held = []
    return "; ".join([said, *held, *job_notes(record, start, sets)])


def format_moment(moment: int) -> str:
    """A moment in UTC, to the second."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_length(seconds: int) -> str:
    """A length of time in its largest unit, rounded: `40 s`, `12 min`, `11 h`, `3 d`."""
    for size, unit in ((172_800, "d"), (7_200, "h"), (120, "min")):
        if seconds >= size:
            return f"{round(seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit])} {unit}"
    return f"{seconds} s"
