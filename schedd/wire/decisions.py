"""Decisions: actions that the planner requests on the server.

Each names the event that caused it. ``term`` is the leadership term of the deciding daemon: terms grow, and
an adapter carries out no decision of an older term than it has seen.
"""

from dataclasses import dataclass
from typing import Literal

from schedd.wire.facts import PreemptionMethod, ShareFacts, SubmissionFacts, TransferStep
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Start a job exactly on these shares.

    Valid until ``expires`` (seconds since the epoch) and for the job's ``version`` as last reported.
    ``walltime`` (s) is set at the server first, for a job whose walltime the scheduler chooses. ``why`` is
    the reason of the last move of its planned start. ``limits`` is the ``run_limits_version`` of its queue;
    an older daemon sends none.
    """

    id: str
    cause: str
    time: int
    job_id: str
    shares: tuple[ShareFacts, ...]
    version: str
    expires: int
    walltime: int | None = None
    why: str = ""
    limits: str = ""
    term: int = 0
    type: Literal["run"] = "run"


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAttributes:
    """Write planned start and nodes to a queued job, or in ``text`` the reason for their absence.

    With a start, ``text`` names parts of the request that are not planned. ``expected_start`` and
    ``expected_by`` are the P50 and P90 of the start by predicted run times, if known; ``promised_start`` is
    the promise. ``runs_for`` is the P90 of the run time in seconds, if below the walltime.
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
    """A message for admins; the adapter does nothing."""

    id: str
    cause: str
    time: int
    kind: str
    text: str
    term: int = 0
    type: Literal["alert"] = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDecision:
    """One step of a transfer to the server; the outcome is reported as ``TransferStepDone``.

    ``submission`` belongs to the step ``submit``; the other steps have ``server_job`` if known.
    ``release_requested`` means that a missing job may have run.
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
    """Switch a node on or off by the site's command, to begin by ``expires``; the outcome is reported as
    ``Switched``. The node may be in the wanted state already.
    """

    id: str
    cause: str
    time: int
    node: str
    on: bool
    expires: int
    term: int = 0
    type: Literal["switch"] = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Preempt the run of a job that began at ``started``; the outcome is reported as ``PreemptionDone``.

    With a ``signal`` it is sent first, ``grace`` seconds before the job is stopped, however late that is. The
    first request is made before ``expires``. ``preemptor`` is the job for which this happens. A run that is
    over, or is ending, counts as preempted.
    """

    id: str
    cause: str
    time: int
    job_id: str
    started: int
    method: PreemptionMethod
    preemptor: str
    expires: int
    signal: str = ""
    grace: int = 0
    term: int = 0
    type: Literal["preempt"] = "preempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Let a suspended run, which began at ``started``, go on; the outcome is reported as ``PreemptionDone``.

    The first request is made before ``expires``. A run that is not suspended, or is over, counts as resumed.
    """

    id: str
    cause: str
    time: int
    job_id: str
    started: int
    expires: int
    term: int = 0
    type: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendRun:
    """Give the run of a job that began at ``started`` the ``walltime`` (s) instead of ``before``; the outcome
    is reported as ``ExtensionDone``.

    The request is made before ``expires``, and only while the job has the walltime ``before``.
    """

    id: str
    cause: str
    time: int
    job_id: str
    started: int
    before: int
    walltime: int
    expires: int
    term: int = 0
    type: Literal["extend_run"] = "extend_run"


AwaitedDecision = TransferDecision | Switch | Preempt | Resume | ExtendRun
"""Decisions that stay open until a component knows their outcome."""

Decision = Run | WriteAttributes | Alert | AwaitedDecision
