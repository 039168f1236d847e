"""Notices for users about starts, missed deadlines and tighter walltimes: mail, or a command of the site."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedd.api.access import Cluster, User, Visibility
from schedd.api.audit import audit_act
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    ProblemError,
    invalid_problem,
)
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.features.notices.notifier import Notifier, TooManySubscriptions
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.daemon_services import find_service
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import find_record
from schedd.store import StoreError
from schedd.store.records import NoticeSubscription

router = RouteTable(prefix="/v1/clusters/{cluster}/notices", tags=["notices"], route_class=UnicodeRoute)
_T = TypeVar("_T")
_LOCAL_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}")
_LeadSeconds = Annotated[int, Field(ge=60, le=30 * 86_400)]


class NoticeRequest(BaseModel):
    """When a notice is sent (at least one of `moved`, `ahead`, `lost` and `tighter`), and how. A notice is
    also sent when the walltime of a run was altered.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"job": "123.server", "moved": 1800, "ahead": 900}]}
    )

    job: Annotated[
        str,
        Field(
            description="One of the caller's jobs; empty: all of them, including future jobs.", max_length=512
        ),
    ] = ""
    moved: Annotated[
        _LeadSeconds | None,
        Field(description="Send it when the start has moved by more than this, in seconds."),
    ] = None
    ahead: Annotated[
        _LeadSeconds | None, Field(description="Send it this long before the start, in seconds.")
    ] = None
    lost: Annotated[
        bool,
        Field(
            description="Send it when the job can no longer end by its deadline, or when an accepted "
            "deadline is at risk; it has the planned end."
        ),
    ] = False
    tighter: Annotated[
        bool,
        Field(
            description="Send it once for each job that would start sooner with a walltime that 90 % of "
            "such jobs do not exceed."
        ),
    ] = False
    way: Annotated[
        Literal["mail", "command"], Field(description="By mail, or by a command that the site offers.")
    ] = "mail"
    to: Annotated[
        str,
        Field(
            description="Mail address in a domain of the site (empty: the user's own), or command name.",
            max_length=320,
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_trigger(self) -> "NoticeRequest":
        if self.moved is None and self.ahead is None and not (self.lost or self.tighter):
            raise ValueError("set when to send it: one or more of moved, ahead, lost and tighter")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeView:
    """A notice of a user."""

    number: int
    job: Annotated[str, Field(description="Empty: all own jobs.")]
    moved: Annotated[
        int | None, Field(description="Sent when the start has moved by more than this, in seconds.")
    ]
    ahead: Annotated[int | None, Field(description="Sent this long before the start, in seconds.")]
    lost: Annotated[
        bool, Field(description="Sent when the deadline is lost, or when an accepted one is at risk.")
    ]
    tighter: Annotated[bool, Field(description="Sent when a tighter walltime would start the job sooner.")]
    way: Literal["mail", "command"]
    to: Annotated[str, Field(description="The address, or the command's name.")]
    since: Annotated[int, Field(description="Time of its creation, in seconds since the epoch.")]


@api_answer
class NoticesView:
    """All notices of the caller, and the ways of notifying that the site offers."""

    notices: tuple[NoticeView, ...]
    domains: Annotated[
        tuple[str, ...], Field(description="Domains to which mail may go; empty: the site sends no mail.")
    ]
    commands: Annotated[tuple[str, ...], Field(description="Names of the commands that the site offers.")]


@router.get("", *READ_PROBLEMS, "not-allowed", answer=NoticesView)
async def list_notices(request: Request, cluster: Cluster, caller: User) -> Response:
    """The caller's notices, and the ways of notifying that the site offers."""
    return await _notices_reply(request, cluster, caller)


@router.post("", *ACT_PROBLEMS, *BODY_PROBLEMS, "unknown-job", answer=NoticesView)
async def add_notice(
    request: Request, cluster: Cluster, body: NoticeRequest, caller: User, visibility: Visibility
) -> Response:
    """Create a notice: when a start moves or is near, or a deadline is missed. A notice about one job ends
    with it.
    """
    await subscribe(request, cluster, body, caller, visibility)
    return await _notices_reply(request, cluster, caller)


@router.delete("/{number}", *ACT_PROBLEMS, answer=NoticesView)
async def remove_notice(
    request: Request,
    cluster: Cluster,
    number: Annotated[int, Path(description="Number of the notice.", ge=1, le=1 << 53, examples=[1])],
    caller: User,
) -> Response:
    """Delete a notice: no more notifications are sent for it."""
    await unsubscribe(request, cluster, number, caller)
    return await _notices_reply(request, cluster, caller)


async def subscribe(
    request: Request, cluster: PlanLoop, body: NoticeRequest, caller: Bearer, visibility: JobVisibility
) -> None:
    """Create a notice of the caller, and write it to the audit. Raises ProblemError."""
    what = f"{body.job[:80] or 'all own jobs'}, {body.way}"
    async with audit_act(cluster, caller.name, "notify", what) as act:
        notifier = _find_notifier(request, cluster)
        known = act.who = _known_user(request, caller)
        job = ""
        if body.job:
            record = find_record(cluster.published, body.job)
            if record is None or not visibility.shows(record):
                raise ProblemError("unknown-job", f"no job {body.job[:80]}")
            if not (caller.owns(record.facts.owner) or caller.may("see all")):
                raise ProblemError("not-allowed", f"job {record.id} is another user's")
            job = record.id
        to = _resolve_address(notifier, body, known)
        wish = NoticeSubscription(
            known,
            job,
            body.moved,
            body.ahead,
            body.way,
            to,
            cluster.now(),
            on_lost_deadline=body.lost,
            on_tighter_walltime=body.tighter,
        )
        cluster.check_leads()
        try:
            kept = await _call_store(lambda: notifier.add(wish))
        except TooManySubscriptions as error:
            raise ProblemError("invalid", str(error)) from None
        act.detail = f"{kept.number}: {job or 'all own jobs'}, {body.way}"


async def unsubscribe(request: Request, cluster: PlanLoop, number: int, caller: Bearer) -> None:
    """Delete a notice of the caller, and write it to the audit. Raises ProblemError."""
    cluster.check_leads()
    async with audit_act(cluster, caller.name, "stop notifying", str(number)) as act:
        notifier = _find_notifier(request, cluster)
        known = act.who = _known_user(request, caller)
        gone = await _call_store(lambda: notifier.remove(known, number))
        if gone is None:
            what = f"no notice {number}"
            raise invalid_problem(
                "path.number", what, "the number of one of your notices; GET on this path lists them"
            )


def _resolve_address(notifier: Notifier, body: NoticeRequest, who: str) -> str:
    """Return the address or the command. Raises ProblemError."""
    settings = notifier.settings
    if body.way == "command":
        if body.to not in settings.commands:
            raise invalid_problem(
                "body.to",
                f"this site has no command {body.to[:80]!r}",
                ", ".join(settings.commands) or "none",
            )
        return body.to
    if not settings.relay:
        raise invalid_problem(
            "body.way", "this site sends no mail", f"a command: {', '.join(settings.commands)}"
        )
    name, _, domain = (body.to or own_address(notifier, who)).rpartition("@")
    if not _LOCAL_PART.fullmatch(name) or domain.lower() not in {one.lower() for one in settings.domains}:
        what = f"this site does not send mail to {(body.to or who)[:80]!r}"
        raise invalid_problem(
            "body.to", what, f"an address in one of these domains: {', '.join(settings.domains)}"
        )
    return f"{name}@{domain}"


def own_address(notifier: Notifier, who: str) -> str:
    """Return where mail to a user goes by default."""
    return f"{who}@{notifier.settings.domains[0]}"


def _find_notifier(request: Request, cluster: PlanLoop) -> Notifier:
    notifier = find_service(request.app.state.services, Notifier, cluster.name)
    if notifier is None:
        raise ProblemError("invalid", "this site sends no notices: [notify] names no relay and no command")
    return notifier


def _known_user(request: Request, caller: Bearer) -> str:
    if caller is request.app.state.callers.tokens.anonymous:
        raise ProblemError("not-allowed", "a notice belongs to a user: send the token of one")
    return caller.name


async def _notices_reply(request: Request, cluster: PlanLoop, caller: Bearer) -> Response:
    notifier = find_service(request.app.state.services, Notifier, cluster.name)
    if notifier is None:
        return reply(request, NoticesView(notices=(), domains=(), commands=()))
    wishes = await _call_store(lambda: notifier.subscriptions(caller.name))
    rows = tuple(
        NoticeView(
            number=one.number,
            job=one.job,
            moved=one.min_move_s,
            ahead=one.lead_s,
            lost=one.on_lost_deadline,
            tighter=one.on_tighter_walltime,
            way=one.channel,
            to=one.address,
            since=one.created,
        )
        for one in wishes
    )
    settings = notifier.settings
    domains = settings.domains if settings.relay else ()
    return reply(request, NoticesView(notices=rows, domains=domains, commands=tuple(settings.commands)))


async def _call_store(call: Callable[[], _T]) -> _T:
    try:
        return await asyncio.to_thread(call)
    except StoreError as error:
        raise ProblemError("not-ready", f"the database cannot be used: {error}") from None
