"""The demo's endpoint for submissions, which ``schedd demo qsub`` uses."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from schedd.api.access import Cluster, User
from schedd.api.problems import READ_PROBLEMS
from schedd.api.replies import reply
from schedd.api.routes import RouteTable
from schedd.cli.demo.qsub_options import SubmissionError, read_submission
from schedd.cli.demo.state import demo_state, invalid_submission, submitting_user

router = RouteTable(prefix="/v1/clusters/{cluster}/submissions", tags=["jobs"])
_MAX_SCRIPT: Final = 1 << 20
_MAX_OPTIONS: Final = 100


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
