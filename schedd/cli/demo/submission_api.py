"""The demo's endpoints for submissions and changes, which ``schedd demo qsub`` and its like use."""

from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from schedd.api.access import Cluster, User, Visibility
from schedd.api.problems import READ_PROBLEMS, ProblemError
from schedd.api.replies import reply
from schedd.api.routes import RouteTable
from schedd.api.what_if_admission import VisibleJobs
from schedd.cli.demo.qsub_options import SubmissionError, read_submission, resource_items
from schedd.cli.demo.state import demo_state, invalid_submission, submitting_user
from server_adapter.batch.codes import RequestCode

router = RouteTable(prefix="/v1/clusters/{cluster}/submissions", tags=["jobs"])
_MAX_SCRIPT: Final = 1 << 20
_MAX_OPTIONS: Final = 100
_CODES: Final = {
    "qalter": RequestCode.MODIFY_JOB,
    "qdel": RequestCode.DELETE_JOB,
    "qhold": RequestCode.HOLD_JOB,
    "qrls": RequestCode.RELEASE_JOB,
}


class SubmissionRequest(BaseModel):
    """A job for the emulated server."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"options": ["-l", "nodes=1:ppn=4"], "script": "sleep 600"}]},
    )

    options: Annotated[
        list[Annotated[str, Field(max_length=4_000)]],
        Field(max_length=_MAX_OPTIONS, description="Options of qsub, as words; they override #PBS lines."),
    ] = []
    script: Annotated[str, Field(max_length=_MAX_SCRIPT, description="The script, with #PBS lines.")]
    name: Annotated[str, Field(max_length=230, description="Name unless an option gives one.")] = ""


class SubmissionView(BaseModel):
    """A submitted job."""

    id: Annotated[str, Field(description="The job's id, `7[].demo` for an array.", examples=["152.demo"])]
    without_effect: Annotated[
        tuple[str, ...], Field(description="Its options that have no effect in the demo.", examples=[["-o"]])
    ]


@router.post("", *READ_PROBLEMS, "not-allowed", "not-now", "invalid", "too-large", answer=SubmissionView)
async def submit_to_demo(
    request: Request, cluster: Cluster, caller: User, body: SubmissionRequest
) -> Response:
    """Submit a job to the emulated server as the caller. Only a demo has this endpoint."""
    user = submitting_user(caller, request)
    try:
        today = datetime.fromtimestamp(cluster.now()).astimezone()
        submission = read_submission(body.options, body.script, cluster.name, body.name, today=today)
    except SubmissionError as error:
        raise invalid_submission(str(error)) from None
    job = await demo_state(request).submit(cluster.name, user, submission)
    return reply(request, SubmissionView(id=job, without_effect=submission.without_effect))


class JobChangeRequest(BaseModel):
    """A change of a job of the emulated server."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"act": "qalter", "job": "152", "request": "walltime=0:30:00"}]},
    )

    act: Annotated[Literal["qalter", "qdel", "qhold", "qrls"], Field(description="The command's name.")]
    job: Annotated[str, Field(min_length=1, max_length=200, description="Id, `152` or `152.demo`.")]
    request: Annotated[str, Field(max_length=4_000, description="Of `qalter`: what changes.")] = ""


class JobChangeView(BaseModel):
    """A changed job."""

    done: Annotated[bool, Field(description="Always true: a refusal is an error.")] = True


@router.post(
    "/changes",
    *READ_PROBLEMS,
    "unknown-job",
    "not-allowed",
    "not-now",
    "invalid",
    answer=JobChangeView,
)
async def change_demo_job(
    request: Request, cluster: Cluster, caller: User, visibility: Visibility, body: JobChangeRequest
) -> Response:
    """Change, delete, hold or release a job of the emulated server as the caller; an admin may do it to all
    jobs. Only a demo has this endpoint.
    """
    user = submitting_user(caller, request)
    known = VisibleJobs(cluster.published, visibility).find(body.job)
    if not known:
        raise ProblemError("unknown-job", f"cluster {cluster.name} has no job {body.job[:80]}")
    # The emulated server takes a client on a privileged port, which a demo run by root has, for a manager.
    if caller.role != "admin" and not all(caller.owns(one.facts.owner) for one in known):
        raise ProblemError("not-allowed", f"job {body.job} is not of {user}")
    try:
        resources = resource_items(body.request)
        if body.act == "qalter" and not resources:
            raise SubmissionError("-l: give what changes, such as walltime=0:30:00")
    except SubmissionError as error:
        raise invalid_submission(str(error)) from None
    job = known[0].facts.array if "[]" in body.job else known[0].id
    owner = known[0].facts.owner.partition("@")[0]
    holds = body.act in ("qhold", "qrls")
    attributes = {"Hold_Types": "u"} if holds else resources
    await demo_state(request).change(cluster.name, owner, _CODES[body.act], job, attributes)
    return reply(request, JobChangeView())
