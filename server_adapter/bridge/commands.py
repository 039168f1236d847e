"""Decisions to batch requests: where a job is to run, and what is written on it for people to read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from schedd.wire import Run, ShareFacts, Tell
from server_adapter.dis import Attribute, Operation
from server_adapter.torque.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.torque.requests import ManageRequest, RunRequest

MARK: Final = "schedd: "
"""How every comment of ours begins."""

_PREDECESSORS: Final = ("Not Running: ", "Job started on ", "Job will never run", "Job deleted ")
"""How the comments of the scheduler that we replace begin: they may be overwritten."""

_PLANNED: Final = re.compile(
    re.escape(MARK) + r"planned start (\S+ \S+ [+-]\d{4}) on (\S+)(?: and \d+ more)?(?: \(.*)?"
)
_TIME: Final = "%Y-%m-%d %H:%M:%S %z"
_NODES_SHOWN: Final = 8
_LONGEST: Final = 400


def destination(shares: Sequence[ShareFacts]) -> str:
    """`node1:ppn=4+node2:ppn=4`, in the order of the shares: the first node is mother superior.

    Always explicit: an empty destination lets the server choose, and a node without `ppn` gives one core.
    Raises ValueError where a share has no core.
    """
    if not shares:
        raise ValueError("a run decision without nodes")
    parts = []
    for share in shares:
        if share.cpus < 1:
            raise ValueError(f"a run decision with {share.cpus} cores on {share.node}")
        gpus = f":gpus={share.gpus}" if share.gpus else ""
        parts.append(f"{share.node}:ppn={share.cpus}{gpus}")
    return "+".join(parts)


def run_request(run: Run, *, asynchronous: bool) -> RunRequest:
    """The request that starts the job. An asynchronous one is answered before the node has the job."""
    code = RequestCode.ASYNC_RUN_JOB if asynchronous else RequestCode.RUN_JOB
    return RunRequest(code=code, job=run.job_id, destination=destination(run.shares))


@dataclass(frozen=True, slots=True)
class Told:
    """What our comment says: a planned start (epoch seconds) with nodes, or a text, or neither."""

    planned_start: int | None = None
    nodes: tuple[str, ...] = ()
    text: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say."""
        return self.planned_start is None and not self.text


def told_by(tell: Tell) -> Told:
    """What a decision wants said; nodes beyond those that a comment shows do not count."""
    if tell.planned_start is None:
        return Told(text=_one_line(tell.text))
    return Told(tell.planned_start, tell.planned_nodes[:_NODES_SHOWN])


def comment(tell: Tell) -> str:
    """The comment for a queued job; empty when there is nothing to say.

    Times are the server host's local time with its offset, as qstat prints local times.
    """
    if tell.planned_start is None:
        text = _one_line(tell.text)
        return (MARK + text)[:_LONGEST] if text else ""
    nodes = ",".join(tell.planned_nodes[:_NODES_SHOWN]) or "any"
    more = len(tell.planned_nodes) - _NODES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    also = _one_line(tell.text)
    return f"{MARK}planned start {_local(tell.planned_start)} on {nodes}{rest}{also and f' ({also})'}"[
        :_LONGEST
    ]


def started_comment(started: int, shares: Sequence[ShareFacts], planned: int | None) -> str:
    """What replaces our comment when the job starts."""
    nodes = ",".join(share.node for share in shares[:_NODES_SHOWN])
    more = len(shares) - _NODES_SHOWN
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
    return Told(int(moment.timestamp()), nodes)


@dataclass(frozen=True, slots=True)
class Offers:
    """Which attributes are written: those the site wants and the server knows and lets us set."""

    comment: bool = True
    start_time: bool = False
    planned: bool = False


def tell_request(tell: Tell, offers: Offers, *, comment_free: bool = True) -> ManageRequest | None:
    """Writes a plan on a queued job, or takes an older one away; None when nothing is to be written.

    With `comment_free` False a foreign comment stays as it is.
    """
    start = tell.planned_start
    attributes = []
    if offers.comment and comment_free:
        attributes.append(_attribute("comment", comment(tell)))
    if offers.start_time:
        attributes.append(_attribute("start_time", "" if start is None else str(start)))
    if offers.planned:
        nodes = "" if start is None else ",".join(tell.planned_nodes)
        attributes.append(_attribute("planned_start", "" if start is None else str(start)))
        attributes.append(_attribute("planned_nodes", nodes))
    return modify_request(tell.job_id, *attributes) if attributes else None


def modify_request(job: str, *attributes: Attribute) -> ManageRequest:
    """Sets attributes of a job."""
    return ManageRequest(
        code=RequestCode.MODIFY_JOB,
        command=ManagerCommand.SET,
        object_type=ObjectType.JOB,
        name=job,
        attributes=attributes,
    )


def unset(name: str) -> Attribute:
    """Takes an attribute away."""
    return Attribute(name, operation=Operation.UNSET)


def _attribute(name: str, value: str) -> Attribute:
    return Attribute(name, value) if value else unset(name)


def _one_line(text: str) -> str:
    return " ".join(text.split())[: _LONGEST - len(MARK)]


def _local(moment: int) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime(_TIME)
