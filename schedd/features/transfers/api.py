"""Transfers of a federation to this cluster: jobs that are submitted on hold, then released or withdrawn."""

import re
import secrets
from typing import Annotated, Any, Final, Literal

import numpy as np
import structlog
from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schedd.api.access import Cluster, Federation
from schedd.api.audit import audit_act
from schedd.api.planner_calls import submit_events
from schedd.api.problems import ACT_PROBLEMS, BODY_PROBLEMS, READ_PROBLEMS, ProblemError
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import JobView, PlanSnapshot, hash_array, published_record, render_job
from schedd.features.transfers.state import PublishedTransfers, TransferPhase, TransferRecord
from schedd.model import FOREVER
from schedd.plan.columns import FIXED, PLANNED, VACANT, Ints
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import (
    TRANSFER_ATTRIBUTES,
    BagEndReported,
    SubmissionFacts,
    TransferRelease,
    TransferRequest,
    TransferWithdrawal,
)

router = RouteTable(
    prefix="/v1/clusters/{cluster}/transfers", tags=["exchange with a federation"], route_class=UnicodeRoute
)
_log = structlog.get_logger(__name__)
_ACT_PROBLEMS: Final = (*ACT_PROBLEMS, "too-much")
_RELEASE_PROBLEMS: Final = (*_ACT_PROBLEMS, "unknown-transfer", "not-now")
_TIME_END: Final = 1 << 36
_NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}")
_ONE_LINE_PATTERN: Final = re.compile(r"[^\x00-\x1f\x7f]{0,10000}")
_FINAL_PHASES: Final = ("withdrawn", "refused")
_MAX_ARRAY_TASKS: Final = 100_000
_JOB_FIELDS: Final = frozenset(
    {
        "planned_start",
        "planned_end",
        "promised_start",
        "state",
        "started",
        "displayed_start",
        "expected_start",
        "expected_by",
        "expected_as_of",
        "predicted",
        "starts_stopped",
        "at_risk",
        "deadline_state",
        "earliest_deadline",
    }
)

_TransferName = Annotated[
    str,
    Path(
        description="The transfer's name, chosen by the federation and used once.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$",
        examples=["fed.1042.1"],
    ),
]
_TextMap = Annotated[dict[str, str], Field(max_length=500)]


class TransferSubmission(BaseModel):
    """A job as `qsub` would send it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "user": "ann",
                    "script": "#!/bin/sh\n./relax\n",
                    "queue": "batch",
                    "resources": {"nodes": "2:ppn=4", "walltime": "01:00:00"},
                    "attributes": {"Job_Name": "relax"},
                    "variables": {"CASE": "7"},
                }
            ]
        },
    )

    user: Annotated[
        str,
        Field(description="Owner of the job at the server.", pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?$"),
    ]
    script: Annotated[str, Field(min_length=1, max_length=1 << 20, pattern=r"^[^\x00]+$")]
    queue: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9._-]*$")] = ""
    resources: Annotated[_TextMap, Field(description="Resources as in `qsub -l`.")] = {}
    attributes: Annotated[
        _TextMap, Field(description=f"Plain attributes: {', '.join(sorted(TRANSFER_ATTRIBUTES))}.")
    ] = {}
    variables: Annotated[_TextMap, Field(description="The job's environment (`-v`).")] = {}
    keep_for: Annotated[
        int,
        Field(
            description="Time for which it has a placement in the plan although it is on hold, in seconds.",
            ge=0,
            le=86_400,
        ),
    ] = 0
    booked: Annotated[bool, Field(description="It starts only in the booking that is made for it.")] = False
    booking: Annotated[
        str,
        Field(
            description="It runs in this booking of its user; after the booking, like any other job.",
            max_length=63,
            pattern=r"^[A-Za-z0-9._-]*$",
        ),
    ] = ""
    array: Annotated[
        str,
        Field(
            description="First and last index of a job array, whose jobs are independent.",
            pattern=r"^([0-9]{1,9}-[0-9]{1,9})?$",
            examples=["0-99"],
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_array(self) -> "TransferSubmission":
        first, dash, last = self.array.partition("-")
        if dash and not 0 <= int(last) - int(first) < _MAX_ARRAY_TASKS:
            raise ValueError(
                f"array {self.array}: the last index must not be before the first, and an array has at "
                f"most {_MAX_ARRAY_TASKS} jobs"
            )
        if dash and (self.booked or self.booking or self.keep_for):
            raise ValueError("an array cannot have booking, booked or keep_for")
        if self.booking and (self.booked or self.keep_for):
            raise ValueError("booked and keep_for are only for jobs without booking")
        return self

    @field_validator("user")
    @classmethod
    def _refuse_root(cls, user: str) -> str:
        if user == "root":
            raise ValueError("jobs of root cannot be transferred")
        return user

    @field_validator("resources", "attributes", "variables")
    @classmethod
    def _check_plain_text(cls, words: dict[str, str]) -> dict[str, str]:
        for name, value in words.items():
            if not _NAME_PATTERN.fullmatch(name):
                raise ValueError(f"{name[:40]!r} is not a name: letters, digits, '_' and '.'")
            if not _ONE_LINE_PATTERN.fullmatch(value):
                raise ValueError(f"{name}: at most 10000 characters in one line")
        return words

    @field_validator("attributes")
    @classmethod
    def _check_attributes(cls, words: dict[str, str]) -> dict[str, str]:
        for name in words:
            if name not in TRANSFER_ATTRIBUTES:
                raise ValueError(
                    f"{name} cannot be transferred; these can: {', '.join(sorted(TRANSFER_ATTRIBUTES))}"
                )
        return words


@api_answer
class ArrayTaskCounts:
    """Number of jobs of an array, in total and by state."""

    tasks: int
    planned: int
    """Tasks with a start that do not run yet."""
    running: int
    ended: int
    failed: int
    """Ended with an exit status other than 0."""
    deleted: int
    last_end: int | None
    """End of the last ended task."""
    first_end: int | None
    """End of the first ended task; until one has ended, the first planned end."""


@api_answer
class TransferView:
    """Transfer of a job. Times are seconds since the epoch (UTC)."""

    transfer: str
    user: str
    phase: TransferPhase
    """`submitting`; `held`; `releasing`, `released` (may start); `withdrawing`, `withdrawn`; `refused`."""
    since: int
    """Time of the last change of `phase`."""
    job: str
    """Its id at the server; empty before it has one."""
    release_requested: bool
    """Whether its release was requested: it may have started."""
    state: Literal["", "running", "starting", "planned", "waiting", "never"]
    """State of the job in the planner; empty while the planner does not know it."""
    started: int | None
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None
    promised_end: int | None
    """For a job array: the end of its last task that promises and walltimes guarantee; null while a task has
    no promise, and for a single job.
    """
    displayed_start: int | None
    """The planned start that all interfaces show, with hysteresis; null for an array."""
    expected_start: int | None
    """P50; null for an array."""
    expected_by: int | None
    """P90; null for an array, and if the promise is as early."""
    expected_as_of: int | None
    """When the expected start was calculated."""
    predicted: bool
    """Whether starts are predicted for its queue."""
    starts_stopped: bool
    """Whether the cluster starts no jobs at present, although its adapter is in scheduler mode."""
    at_risk: bool
    """Whether the promise would be broken by the present plan."""
    deadline_state: Literal["", "accepted", "wished", "at_risk", "missed"]
    """State of the deadline of a single job; empty without one."""
    earliest_deadline: int | None
    """If the deadline is refused: the earliest one that can be kept."""
    end: Literal["", "ended", "deleted"]
    """The outcome, once it is gone."""
    exit_status: int | None
    code: int
    """Error code of the server for the last refused step; 0 if the adapter refused it, or without a refusal.
    """
    text: str
    """Why the last step was refused; empty if it was not."""
    tasks: ArrayTaskCounts | None
    """For a job array: its tasks by state. Its `planned_start` is the planned start of the first waiting
    task, its `planned_end` the end of the last one.
    """


@api_answer
class TransfersView(SnapshotAnswer):
    """Transfers of jobs."""

    transfers: tuple[TransferView, ...]


@api_answer
class TransferResult(SnapshotAnswer):
    """A transfer after the request."""

    transfer: TransferView


@router.get("", *ACT_PROBLEMS, answer=TransfersView)
def list_transfers(
    request: Request,
    cluster: Cluster,
    caller: Federation,
    since: Annotated[
        int,
        Query(
            description="Transfers that ended before this time are left out; with `after`, also all that "
            "have not changed since.",
            ge=0,
            lt=_TIME_END,
        ),
    ] = 0,
    after: Annotated[
        int | None,
        Query(
            description="Only those that may have changed after that `generation`, whose `as_of` is `since`.",
            ge=0,
            lt=_TIME_END,
        ),
    ] = None,
) -> Response:
    """The caller's own transfers; for an admin, all transfers. Needs the role `federation` or `admin`."""
    published = cluster.published
    found = (
        transfer_view(published, one)
        for one in published.part(PublishedTransfers).transfers.values()
        if (caller.may("administer") or one.by == caller.name)
        and not ((one.phase in _FINAL_PHASES or one.end) and one.since < since)
        and (after is None or one.since >= since or _changed_since(published, one, after))
    )
    return reply(request, TransfersView(transfers=tuple(found), **snapshot_fields(published)))


def _changed_since(published: PlanSnapshot, record: TransferRecord, after: int) -> bool:
    """Whether the planner's view of the job may have changed after the generation ``after``."""
    if not record.server_job or record.end:
        return False
    if record.tasks:
        slots = _array_slots(published, record)
        return not slots.shape[0] or int(published.changed[slots].max()) > after
    job = published_record(published, record.server_job)
    return job is not None and (job.slot < 0 or int(published.changed[job.slot]) > after)


@router.get("/{name}", *READ_PROBLEMS, "not-allowed", "unknown-transfer", "invalid", answer=TransferResult)
def get_transfer(request: Request, cluster: Cluster, name: _TransferName, caller: Federation) -> Response:
    """A transfer of the caller: its phase, its job, and the last refusal. An admin may read any transfer."""
    return _transfer_reply(request, cluster, name, caller.name, all_of_them=caller.may("administer"))


@router.put("/{name}", *_ACT_PROBLEMS, *BODY_PROBLEMS, "unknown-transfer", answer=TransferResult)
async def submit_held_job(
    request: Request, cluster: Cluster, name: _TransferName, body: TransferSubmission, caller: Federation
) -> Response:
    """Submit a job to the server, in its user's name and on hold. Needs the role `federation`.

    The response follows when the request is stored; `phase` shows later whether the job was submitted. A
    repeated request with the same name changes nothing. The server decides whether the user may submit it.
    """
    async with audit_act(cluster, caller.name, "transfer jobs", f"{name}: a job of {body.user}"):
        _check_sender(cluster.published, name, caller.name)
        submission = SubmissionFacts(
            body.user, body.script, body.queue, body.resources, body.attributes, body.variables, body.array
        )
        now = cluster.now()
        event = TransferRequest(
            id=_event_id(),
            time=now,
            transfer=name,
            submission=submission,
            by=caller.name,
            keep_until=now + body.keep_for if body.keep_for else 0,
            booked=body.booked,
            booking=body.booking,
        )
        await submit_events(cluster, [event])
    _log.info("a job was transferred", cluster=cluster.name, by=caller.name, transfer=name, user=body.user)
    return _transfer_reply(request, cluster, name, caller.name)


@router.post("/{name}/release", *_ACT_PROBLEMS, "unknown-transfer", "not-now", answer=TransferResult)
async def release_transfer(
    request: Request, cluster: Cluster, name: _TransferName, caller: Federation
) -> Response:
    """Release the hold of the job, which may then start. Needs the role `federation`."""
    async with audit_act(cluster, caller.name, "release", name):
        record = _find_transfer(cluster, name, caller.name)
        if record.phase not in ("held", "releasing", "released"):
            raise ProblemError(
                "not-now", f"transfer {name} is {record.phase}", hint="it can be released once it is held"
            )
        event = TransferRelease(id=_event_id(), time=cluster.now(), transfer=name)
        await submit_events(cluster, [event])
    return _transfer_reply(request, cluster, name, caller.name)


class BagEnd(BaseModel):
    """End of a bag with a job array as one of its shares."""

    model_config = ConfigDict(extra="forbid")

    end: Annotated[
        int,
        Field(
            description="End of the bag by the plans of all clusters, including this one.", ge=0, lt=_TIME_END
        ),
    ]


@router.post("/{name}/bag-end", *_RELEASE_PROBLEMS, *BODY_PROBLEMS, answer=TransferResult)
async def report_bag_end(
    request: Request, cluster: Cluster, name: _TransferName, body: BagEnd, caller: Federation
) -> Response:
    """Report the end of the transferred array's bag: with `coordinate_arrays`, repairs
    rank the array's jobs by it. Needs the role `federation`.
    """
    async with audit_act(cluster, caller.name, "report a bag's end", f"{name}: {body.end}"):
        record = _find_transfer(cluster, name, caller.name)
        if not record.tasks or not record.server_job:
            what = "is not at the server yet" if record.tasks else "is no array"
            raise ProblemError("not-now", f"transfer {name} {what}")
        event = BagEndReported(id=_event_id(), time=cluster.now(), array=record.server_job, end=body.end)
        await submit_events(cluster, [event])
    return _transfer_reply(request, cluster, name, caller.name)


@router.delete("/{name}", *_ACT_PROBLEMS, "unknown-transfer", answer=TransferResult)
async def withdraw_transfer(
    request: Request,
    cluster: Cluster,
    name: _TransferName,
    caller: Federation,
    forced: Annotated[
        bool,
        Query(description="Delete the job even if it may be running; only for components of co-allocations."),
    ] = False,
) -> Response:
    """Withdraw the job, unless it runs. Needs the role `federation`.

    An unknown transfer is remembered as withdrawn: if it still comes, it is not submitted.
    """
    async with audit_act(cluster, caller.name, "withdraw", name):
        _check_sender(cluster.published, name, caller.name)
        record = cluster.published.part(PublishedTransfers).transfers.get(name)
        if forced and record is not None and not record.booked:
            raise ProblemError(
                "not-allowed",
                f"transfer {name} is not a component of a co-allocation, and cannot be forced",
            )
        event = TransferWithdrawal(
            id=_event_id(), time=cluster.now(), transfer=name, by=caller.name, forced=forced
        )
        await submit_events(cluster, [event])
    return _transfer_reply(request, cluster, name, caller.name)


def transfer_view(published: PlanSnapshot, record: TransferRecord) -> TransferView:
    """Return the view of a transfer, with the state of its job."""
    return TransferView(
        transfer=record.transfer,
        user=record.user,
        phase=record.phase,
        since=record.since,
        job=record.server_job,
        release_requested=record.release_requested,
        end=record.end,
        exit_status=record.exit_status,
        code=record.code,
        text=record.text,
        **(_array_fields(published, record) if record.tasks else _job_fields(published, record)),
    )


def _job_fields(published: PlanSnapshot, record: TransferRecord) -> dict[str, Any]:
    """Return the fields of a single job from the plan."""
    job: JobView | None = None
    if record.server_job and not record.end:
        found = published_record(published, record.server_job)
        job = render_job(published, found, _JOB_FIELDS) if found is not None else None
    if job is None:
        return {
            **dict.fromkeys(_JOB_FIELDS),
            "promised_end": None,
            "state": "",
            "predicted": False,
            "starts_stopped": False,
            "at_risk": False,
            "deadline_state": "",
            "tasks": None,
        }
    known = {name: getattr(job, name) for name in _JOB_FIELDS}
    return {**known, "promised_end": None, "at_risk": job.at_risk is not None, "tasks": None}


def _array_slots(published: PlanSnapshot, record: TransferRecord) -> Ints:
    """The slots of an array's jobs that are not over."""
    own = published.array_hash == hash_array(record.server_job)
    return np.flatnonzero(own & (published.states != VACANT))


def _array_fields(published: PlanSnapshot, record: TransferRecord) -> dict[str, Any]:
    """Return the fields of an array from the plan, without a loop over its jobs."""
    slots = _array_slots(published, record) if record.server_job and not record.end else np.zeros(0, np.int64)
    states, starts, promises = published.states[slots], published.starts[slots], published.promise[slots]
    runs, waits = states == FIXED, states == PLANNED
    ends = (starts + published.durations[slots])[runs | waits]
    over = record.tasks_ended + record.tasks_deleted
    state: Literal["", "running", "planned", "waiting"] = ""
    if record.server_job and over < record.tasks:
        state = "running" if runs.any() else "planned" if waits.any() else "waiting"
    last = record.last_end
    if slots.shape[0]:
        last = max(last, int((np.where(waits, promises, starts) + published.durations[slots]).max()))
    all_known = slots.shape[0] == record.tasks - over and bool((runs | waits).all())
    return {
        **dict.fromkeys(_JOB_FIELDS),
        "state": state,
        "started": int(starts[runs].min()) if runs.any() else None,
        "planned_start": int(starts[waits].min()) if waits.any() else None,
        "planned_end": int(ends.max()) if ends.shape[0] else None,
        "promised_start": int(promises.max())
        if waits.all() and waits.any() and promises.max() < FOREVER
        else None,
        "promised_end": last if all_known and 0 < last < FOREVER else None,
        "predicted": False,
        "starts_stopped": published.starts_stopped,
        "at_risk": bool((starts > promises)[waits].any()),
        "deadline_state": "",
        "tasks": ArrayTaskCounts(
            tasks=record.tasks,
            planned=int(waits.sum()),
            running=int(runs.sum()),
            ended=record.tasks_ended,
            failed=record.tasks_failed,
            deleted=record.tasks_deleted,
            last_end=record.last_end or None,
            first_end=record.first_end or (int(ends.min()) if ends.shape[0] else None),
        ),
    }


def _transfer_reply(
    request: Request, cluster: PlanLoop, name: str, caller: str, *, all_of_them: bool = False
) -> Response:
    record = _find_transfer(cluster, name, caller, all_of_them=all_of_them)
    published = cluster.published
    return reply(
        request, TransferResult(transfer=transfer_view(published, record), **snapshot_fields(published))
    )


def _find_transfer(cluster: PlanLoop, name: str, caller: str, *, all_of_them: bool = False) -> TransferRecord:
    record = cluster.published.part(PublishedTransfers).transfers.get(name)
    if record is None or not (all_of_them or record.by == caller):
        raise ProblemError("unknown-transfer", f"cluster {cluster.name} knows no transfer {name} of {caller}")
    return record


def _check_sender(published: PlanSnapshot, name: str, caller: str) -> None:
    known = published.part(PublishedTransfers).transfers.get(name)
    if known is not None and known.by != caller:
        raise ProblemError("not-allowed", f"transfer {name} is not one of {caller}")


def _event_id() -> str:
    return f"api:{secrets.token_hex(8)}"
