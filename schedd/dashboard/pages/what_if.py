"""When would a job start that is not submitted yet, when else could it, and what would let it start now?"""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from schedd.api.jobs import find_job
from schedd.api.planner_calls import TIMEOUTS, get_plan_fork
from schedd.api.problems import ProblemError
from schedd.api.question_runner import run_question
from schedd.api.request_bodies import WhatIfRequest, WhatIfVariant
from schedd.api.result_views import WhatIfResult, WhatIfVariantResult
from schedd.api.routes import RouteTable
from schedd.api.what_if import answer_what_if
from schedd.api.what_if_fields import stopped_queues
from schedd.dashboard.filters import format_duration
from schedd.dashboard.rendering import render_page
from schedd.dashboard.request_steps import RequestStep, smaller_steps
from schedd.dashboard.viewer import Cluster, Reader, Visibility
from schedd.dialect import RequestError, parse_walltime, resource_list
from schedd.dialect.units import format_walltime
from schedd.engine import JobView, render_job
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_visibility import JobVisibility
from schedd.start_sentence import (
    StartFacts,
    describe_requested_start,
    destination_start_facts,
    hypothetical_start_facts,
    job_start_facts,
)
from schedd.time_words import parse_future_time
from schedd.wire.section import problem_text

router = RouteTable()
_MAX_WINDOWS: Final = 8
_DURATION_PATTERN: Final = re.compile(
    r"(?:(\d{1,6})\s*d\s*)?(?:(\d{1,6})\s*h\s*)?(?:(\d{1,6})\s*m(?:in)?\s*)?(?:(\d{1,9})\s*s)?"
)
_Text = Annotated[str, Field(max_length=200)]


class WhatIfForm(BaseModel):
    """The form: ``request`` as `qsub -l` takes it, or field by field; or a ``job`` in the queue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: _Text = ""
    ppn: _Text = ""
    walltime: _Text = ""
    mem: _Text = ""
    feature: _Text = ""
    queue: _Text = ""
    request: Annotated[str, Field(max_length=2_000)] = ""
    other: Annotated[str, Field(max_length=2_000)] = ""
    """What differs in a second request, which is shown next to the first."""
    job: _Text = ""
    by: _Text = ""
    """The wished start: `tonight`, `before friday`, `8:00`."""
    zone: _Text = ""
    """The reader's time zone (`Europe/Prague`), for ``by``; empty: UTC, as on pages without scripts."""
    steps: bool = False
    """Whether smaller requests are tried, too. They take several times as long as the answer, so the page
    requests them later."""

    patient: bool = False
    """Whether the page waits for its answer, however long that takes."""

    @property
    def anything(self) -> bool:
        """Whether there is a question."""
        fields = (self.request, self.nodes, self.ppn, self.walltime, self.mem, self.feature, self.job)
        return any(field.strip() for field in fields)

    @property
    def request_text(self) -> str:
        """The request as `qsub -l` takes it."""
        if self.request:
            return self.request
        spec = [self.nodes.strip() or "1", f"ppn={self.ppn.strip() or 1}"]
        spec += self.feature.replace(",", " ").split()
        parts = [f"nodes={':'.join(spec)}"]
        parts += [f"mem={self.mem.strip()}"] if self.mem.strip() else []
        parts += [f"walltime={normalize_walltime(self.walltime)}"] if self.walltime.strip() else []
        return ",".join(parts)

    @property
    def unclear(self) -> str:
        """What of the fields could be taken in two ways, and how to say it; empty when all is clear."""
        walltime, memory = self.walltime.strip(), self.mem.strip()
        if self.request or self.job:
            return ""
        if walltime.isdecimal():
            return f"walltime {walltime}: say the unit: {walltime}h, {walltime}m, {walltime}s, or HH:MM:SS"
        if memory.isdecimal():
            return f"memory {memory}: say the unit: {memory}gb or {memory}mb"
        return ""

    def question(self, now: int) -> WhatIfRequest:
        """The same as the API takes it. Raises ProblemError and ValidationError."""
        wanted: dict[str, Any] = {"windows": _MAX_WINDOWS, "changes": True, "sooner": True}
        if self.by.strip():
            try:
                wanted["start_by"] = parse_future_time(self.by, now, ZoneInfo(self.zone or "UTC"))
            except (ValueError, ZoneInfoNotFoundError, OSError) as error:
                raise ProblemError("invalid", f"by: {error}") from None
        if self.job:
            return WhatIfRequest(job=self.job, **wanted)
        return WhatIfRequest(request=self.request_text, queue=self.queue, **wanted)

    def altered_request(self, job: JobView) -> str:
        """The part of the request of a queued job that differs from the job's; empty: nothing."""
        if not self.request:
            return ""
        try:
            wanted = resource_list(self.request)
        except RequestError:
            return self.request  # the question names the fault
        changed = {name: value for name, value in wanted.items() if job.resources.get(name) != value}
        return ",".join(f"{name}={value}" for name, value in changed.items())


def normalize_walltime(text: str) -> str:
    """`90m`, `1h`, `2d`, `1h30m` as `HH:MM:SS`; all else as it stands."""
    found = _DURATION_PATTERN.fullmatch(text.strip().lower())
    if found is None or not found[0]:
        return text.strip()
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return format_walltime(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


@router.get("/{cluster}/what-if")
async def show_what_if(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    asked: Annotated[WhatIfForm, Query()],
) -> Response:
    """The form, and the answer where there is a question."""
    answer: WhatIfResult | None = None
    job: JobView | None = None
    compared: WhatIfVariantResult | None = None
    steps: tuple[tuple[RequestStep, WhatIfVariantResult], ...] = ()
    wrong, pending = asked.unclear, ""
    if request.query_params and not asked.anything:
        wrong = "the form is empty: fill in Nodes, or a qsub -l request"
    if asked.anything and not wrong:
        try:
            asking = ask_what_if(request, cluster, visibility, asked, viewer.bearer)
            found = await asyncio.wait_for(asking, None if asked.patient or asked.steps else TIMEOUTS.page)
            answer, job, compared, steps = found
        except TimeoutError:
            pending = f"?{request.url.query}&patient=1"
            job = _find_queued_job(cluster, visibility, asked.job)
        except ProblemError as error:
            if error.kind not in {"invalid", "unknown-job"}:
                raise
            wrong = error.detail.partition(": ")[2] or error.detail
        except ValidationError as error:
            wrong = problem_text(error.errors()[0])
    return render_page(
        request,
        "what-if",
        viewer,
        cluster,
        422 if wrong else 200,
        asked=asked,
        prefilled=asked.request or (_request_text(job) if job is not None else ""),
        compared=compared,
        compared_facts=hypothetical_start_facts(compared) if compared is not None else None,
        steps=[(step, one, hypothetical_start_facts(one)) for step, one in steps],
        destination_facts=partial(destination_start_facts, stopped=cluster.published.starts_stopped),
        pending=pending,
        later="" if asked.steps else f"?{request.url.query}&steps=1",
        wrong=wrong,
        **answer_values(answer, job),
        queues=sorted(cluster.published.queues),
        stopped={} if asked.queue or asked.job else stopped_queues(cluster.published),
    )


def _find_queued_job(cluster: PlanLoop, visibility: JobVisibility, name: str) -> JobView | None:
    """Return the job of the question, to fill in the form; None without one."""
    published = cluster.published
    if not name:
        return None
    try:
        record = find_job(cluster.name, published, visibility, name)
    except ProblemError:  # it ended meanwhile
        return None
    return visibility.redact_view(render_job(published, record), published)


def answer_values(answer: WhatIfResult | None, job: JobView | None) -> Mapping[str, Any]:
    """Return the values of the template ``what-if-answer.html`` that follow from the answer."""
    if answer is None:
        return {"answer": None, "facts": None, "job": job, "wish": ""}
    return {
        "answer": answer,
        "facts": _answer_facts(answer, job),
        "job": job,
        "wish": _start_by_text(answer),
    }


def _start_by_text(answer: WhatIfResult) -> str:
    """Whether the job starts by the wished time; empty without a wish."""
    if answer.start_by is None:
        return ""
    found = answer.expected_start, answer.expected_by
    return describe_requested_start(answer.start_by, answer.start_late_by, *found, format_duration)


def _answer_facts(answer: WhatIfResult, job: JobView | None) -> StartFacts:
    """The facts for the sentence about the start. An unaltered job has those of its page."""
    if job is not None and job.state == "planned" and answer.answer == "start_known":
        return job_start_facts(job)
    return hypothetical_start_facts(answer)


def _request_text(job: JobView) -> str:
    """The request of a job as `qsub -l` takes it, without what the server derives."""
    derived = {"neednodes", "nodect", "schedselect"} | ({"ncpus", "mpiprocs"} & job.resources.keys())
    if "ncpus" in job.resources and not ({"nodes", "select", "procs"} & job.resources.keys()):
        derived.discard("ncpus")
    return ",".join(f"{name}={value}" for name, value in job.resources.items() if name not in derived)


async def ask_what_if(
    request: Request, cluster: PlanLoop, visibility: JobVisibility, asked: WhatIfForm, bearer: Bearer
) -> "WhatIfPage":
    """The what-if result; and the job in question as it is now."""
    question = asked.question(cluster.now())
    known = find_job(cluster.name, cluster.published, visibility, asked.job).id if asked.job else ""
    copy = await get_plan_fork(cluster, known)
    job = find_job(cluster.name, copy.published, visibility, asked.job) if asked.job else None
    if job is not None and job.run.started >= 0:
        raise ProblemError("invalid", f"job {job.id} runs already")
    expecting = request.app.state.clusters.forecast(cluster.name)
    view = (
        visibility.redact_view(render_job(copy.published, job), copy.published) if job is not None else None
    )
    resources = view.resources if view is not None else question.requested_resources
    altered = asked.altered_request(view) if view is not None else asked.other.strip()
    walltime = view.walltime if view is not None else read_walltime(resources)
    steps = tuple(smaller_steps(resources, walltime)) if asked.steps else ()
    variants = ([altered] if altered else []) + [step.request for step in steps]
    question = question.model_copy(update={"variants": tuple(WhatIfVariant(request=one) for one in variants)})
    submitter = bearer.name if bearer.role == "user" else ""
    found = await run_question(
        request,
        answer_what_if,
        copy,
        expecting,
        question,
        job,
        cluster.now(),
        bearer.name,
        (),
        submitter,
    )
    compared = found.variants[0] if altered else None
    rest = found.variants[len(variants) - len(steps) :]
    return WhatIfPage(found, view, compared, tuple(zip(steps, rest, strict=True)))


def read_walltime(resources: Mapping[str, str]) -> int:
    """The walltime of a request in seconds; 0: none, or not readable."""
    try:
        return parse_walltime(resources.get("walltime", "0"))
    except RequestError:
        return 0


class WhatIfPage(NamedTuple):
    """What the page shows: the answer, the job in question, the job as altered, and smaller requests."""

    answer: WhatIfResult
    job: JobView | None
    compared: WhatIfVariantResult | None
    steps: tuple[tuple[RequestStep, WhatIfVariantResult], ...]
