"""Decisions: what the planner wants done on the server.

Each names the event that caused it, and in ``term`` the reign of the daemon that decided: terms grow, and an
adapter carries out nothing of a lower term than it has seen.
"""

from dataclasses import dataclass
from typing import Literal

from schedd.wire.facts import ShareFacts, SubmissionFacts, TransferStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Start a job exactly on these shares.

    Valid until ``expires`` (seconds since the epoch) and for the job's ``version`` as last reported.
    ``walltime`` (s) is what the server is to be told first of a job whose walltime is the scheduler's to set.
    """

    id: str
    cause: str
    time: int
    job_id: str
    shares: tuple[ShareFacts, ...]
    version: str
    expires: int
    walltime: int | None = None
    term: int = 0
    type: Literal["run"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAttributes:
    """Write to a queued job when and where it is planned, or in ``text`` why it has no start.

    With a start ``text`` is what else its owner should know: what of the request is not planned. By how long
    jobs really run it starts about ``expected_start``, by ``expected_by`` in nine of ten cases, where that is
    known; no later than ``promised_start`` if that is promised. Nine of ten jobs like it run no longer than
    ``runs_for`` seconds, where that is less than it asks for.
    """

    id: str
    cause: str
    time: int
    job_id: str
    planned_start: int | None
    planned_end: int | None
    planned_nodes: tuple[str, ...]
    text: str
    expected_start: int | None = None
    expected_by: int | None = None
    runs_for: int | None = None
    promised_start: int | None = None
    term: int = 0
    type: Literal["write_attributes"] = "write_attributes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something an admin must know; nothing for the adapter to do."""

    id: str
    cause: str
    time: int
    kind: str
    text: str
    term: int = 0
    type: Literal["alert"] = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDecision:
    """One step of handing a job over to the server; what became of it comes back as ``TransferStepDone``.

    ``submission`` comes with the step ``submit``; ``server_job`` with the others, where it is known.
    ``release_requested``: its release was asked for before, so that a job that is gone may have run.
    """

    id: str
    cause: str
    time: int
    transfer: str
    step: TransferStep
    submission: SubmissionFacts | None = None
    server_job: str = ""
    release_requested: bool = False
    term: int = 0
    type: Literal["transfer_decision"] = "transfer_decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Switch a node on or off by the site's command, begun by ``expires``; what became of it comes back as
    ``Switched``. The node may be as it is to be already.
    """

    id: str
    cause: str
    time: int
    node: str
    on: bool
    expires: int
    term: int = 0
    type: Literal["switch"] = "switch"


Decision = Run | WriteAttributes | Alert | TransferDecision | Switch
