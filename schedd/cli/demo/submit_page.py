"""The demo's page *Submit*: a job with a script, and its what-if result next to it."""

from datetime import datetime
from typing import Final, Literal

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.cli.demo.qsub_options import DemoSubmission, SubmissionError, read_submission
from schedd.cli.demo.state import demo_state, submitting_user
from schedd.client.http_stream import quote_segment
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.pages.what_if import WhatIfForm, answer_values, ask_what_if
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Form, Reader, Viewer, Visibility
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_visibility import JobVisibility

router = RouteTable(prefix="/{cluster}/submit")
PAGE: Final = MenuPage("submit", "Submit", lambda viewer, _: viewer.session is not None)
_EXAMPLES: Final = {
    "torque": "nodes=2:ppn=8,walltime=01:00:00",
    "openpbs": "select=2:ncpus=8,walltime=01:00:00",
}
_DEFAULTS: Final = {
    "name": "my-job",
    "array": "",
    "after": "",
    "hold": "",
    "script": "#!/bin/sh\nsleep 1800\n",
}


@router.get("")
async def show_form(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    done: str = "",
    answer: Literal["later", "now", "none"] = "later",
) -> Response:
    """The form with an example, whose ``answer`` the page requests later; ``done`` is the id of the job that
    was just submitted.
    """
    fields = {**_DEFAULTS, "request": _EXAMPLES[demo_state(request).family]}
    pending = "?answer=now" if answer == "later" else ""
    return await _render(
        request, cluster, viewer, visibility, fields, done=done, pending=pending, asks=answer == "now"
    )


@router.post("")
async def submit_form(
    request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility, fields: Form
) -> Response:
    """Submit the job, or only update its what-if result."""
    given = {name: fields.get(name, "") for name in (*_DEFAULTS, "request")}
    given["script"] = given["script"].replace("\r\n", "\n")
    wrong = ""
    try:
        submission = _read(given, cluster)
        if fields.get("act") == "submit":
            user = submitting_user(viewer.bearer, request)
            job = await demo_state(request).submit(cluster.name, user, submission)
            return RedirectResponse(
                f"{dashboard_path(request)}/{cluster.name}/submit?done={quote_segment(job)}", 303
            )
    except SubmissionError as error:
        wrong = str(error)
    except ProblemError as error:
        if error.kind != "not-now":
            raise
        wrong = error.detail
    return await _render(request, cluster, viewer, visibility, given, wrong=wrong)


def _read(fields: dict[str, str], cluster: PlanLoop) -> DemoSubmission:
    """Return the job of the form. Raises SubmissionError."""
    today = datetime.fromtimestamp(cluster.now()).astimezone()
    return read_submission(_options(fields), fields["script"], cluster.name, today=today)


def _options(given: dict[str, str]) -> list[str]:
    """Return the fields as qsub's options."""
    pairs = (("-N", given["name"]), ("-l", given["request"]), ("-t", given["array"]))
    found = [word for letter, value in pairs if value.strip() for word in (letter, value.strip())]
    if given["after"].strip():
        found += ["-W", f"depend=afterok:{given['after'].strip()}"]
    return [*found, "-h"] if given["hold"] else found


async def _render(
    request: Request,
    cluster: PlanLoop,
    viewer: Viewer,
    visibility: JobVisibility,
    fields: dict[str, str],
    *,
    wrong: str = "",
    done: str = "",
    pending: str = "",
    asks: bool = True,
) -> Response:
    answer, question = None, WhatIfForm()
    unused: tuple[str, ...] = ()
    if not wrong and asks:
        try:
            submission = _read(fields, cluster)
            unused = submission.without_effect
            question = _question(submission)
            found = await ask_what_if(
                request, cluster, visibility, question, Bearer(viewer.bearer.name, "user")
            )
            answer = found.answer
        except (SubmissionError, ValidationError, ProblemError) as error:
            wrong = error.detail if isinstance(error, ProblemError) else str(error)
    return render_page(
        request,
        "submit",
        viewer,
        cluster,
        422 if wrong else 200,
        fields=fields,
        wrong=wrong,
        done=done,
        pending=pending,
        unused=unused,
        asked=question,
        **answer_values(answer, None),
        queues=sorted(cluster.published.queues),
        stopped={},
    )


def _question(submission: DemoSubmission) -> WhatIfForm:
    """Return the what-if question about the job, without hold, dependencies and other tasks."""
    request = ",".join(f"{name}={value}" for name, value in submission.resources.items())
    return WhatIfForm(request=request or "nodes=1", queue=submission.queue)
