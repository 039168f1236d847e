"""What a user wants to be told of starts and lost deadlines: mail, or a command of the site."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from schedd.api.access import Cluster, Seen, User
from schedd.api.audited import audited
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.replies import documented, reply
from schedd.api.text import TextRoute
from schedd.service.access.roles import Bearer
from schedd.service.cluster.loop import PlanLoop
from schedd.service.outward.notices import Desk, TooManyWishes
from schedd.service.read.reading import find
from schedd.store import StoreError
from schedd.store.records import Wish

__all__ = ["NoticeView", "NoticesView", "router"]

router = APIRouter(prefix="/v1/clusters/{cluster}/notices", tags=["notices"], route_class=TextRoute)
_T = TypeVar("_T")
_LOCAL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}")
_Span = Annotated[int, Field(ge=60, le=30 * 86_400)]
_READ: Final = answers("no-token", "not-allowed", "unknown-cluster", "not-ready")
_ACT: Final = answers("no-token", "not-allowed", "unknown-cluster", "not-ready", "invalid")
_BODY: Final = answers("bad-request", "too-large", "unknown-job")


class NoticeRequest(BaseModel):
    """What is to be told, and how: at least one of `moved`, `ahead` and `lost`."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"job": "123.server", "moved": 1800, "ahead": 900}]}
    )

    job: Annotated[
        str,
        Field(description="A job of one's own; empty: all of them, those to come too.", max_length=512),
    ] = ""
    moved: Annotated[
        _Span | None, Field(description="Tell when the start moved by more than so many seconds.")
    ] = None
    ahead: Annotated[_Span | None, Field(description="Tell so many seconds before the start.")] = None
    lost: Annotated[
        bool, Field(description="Tell when the job can no longer end by its deadline, with the planned end.")
    ] = False
    way: Annotated[
        Literal["mail", "command"], Field(description="By mail, or by a command of the site's.")
    ] = "mail"
    to: Annotated[
        str,
        Field(
            description="The address, in a domain of the site (empty: the user's own); the command's name.",
            max_length=320,
        ),
    ] = ""

    @model_validator(mode="after")
    def _say_when(self) -> "NoticeRequest":
        if self.moved is None and self.ahead is None and not self.lost:
            raise ValueError("say when: moved, ahead, lost, or several of them")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeView:
    """Of what somebody is told."""

    number: int
    job: Annotated[str, Field(description="Empty: all own jobs.")]
    moved: Annotated[int | None, Field(description="When its start moved by more than so many seconds.")]
    ahead: Annotated[int | None, Field(description="So many seconds before its start.")]
    lost: Annotated[bool, Field(description="When it can no longer end by its deadline.")]
    way: Literal["mail", "command"]
    to: Annotated[str, Field(description="The address, or the command's name.")]
    since: Annotated[int, Field(description="When it was asked for, in seconds since the epoch.")]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class NoticesView:
    """All that the asker is told of, and what the site offers."""

    notices: tuple[NoticeView, ...]
    domains: Annotated[
        tuple[str, ...], Field(description="Mail goes to these domains; none: the site sends no mail.")
    ]
    commands: Annotated[tuple[str, ...], Field(description="The site's commands, by name.")]


@router.get("", response_model=NoticesView, responses=_READ)
async def list_notices(request: Request, cluster: Cluster, asker: User) -> Response:
    """What the asker is told of starts, and by what ways the site tells."""
    return await _view(request, cluster, asker)


@router.post("", response_model=NoticesView, responses={**_ACT, **_BODY})
async def add_notice(
    request: Request, cluster: Cluster, body: NoticeRequest, asker: User, seen: Seen
) -> Response:
    """Ask to be told when a start moves or comes soon, or a deadline is lost. A notice about one job ends
    with the job.
    """
    what = f"{body.job[:80] or 'all own jobs'}, {body.way}"
    async with audited(cluster, asker.name, "notify", what) as act:
        desk = _desk(request, cluster)
        known = act.who = _known(request, asker)
        job = ""
        if body.job:
            record = find(cluster.published, body.job)
            if record is None or not seen.sees(record):
                raise ProblemError("unknown-job", f"no job {body.job[:80]}")
            if not (asker.owns(record.facts.owner) or asker.may("see all")):
                raise ProblemError("not-allowed", f"job {record.id} is another user's")
            job = record.id
        to = _address(desk, body, known)
        wish = Wish(known, job, body.moved, body.ahead, body.way, to, cluster.now(), lost=body.lost)
        cluster.check_leads()
        try:
            kept = await _kept(lambda: desk.add(wish))
        except TooManyWishes as error:
            raise ProblemError("invalid", str(error)) from None
        act.detail = f"{kept.number}: {job or 'all own jobs'}, {body.way}"
    return await _view(request, cluster, asker)


@router.delete("/{number}", response_model=NoticesView, responses=_ACT)
async def remove_notice(
    request: Request,
    cluster: Cluster,
    number: Annotated[int, Path(description="Of the notice.", ge=1, le=1 << 53, examples=[1])],
    asker: User,
) -> Response:
    """Be told no more of what this notice is about."""
    cluster.check_leads()
    async with audited(cluster, asker.name, "notify no more", str(number)) as act:
        desk = _desk(request, cluster)
        known = act.who = _known(request, asker)
        gone = await _kept(lambda: desk.remove(known, number))
        if gone is None:
            what = f"no notice {number}"
            fault = Fault(where="path.number", what=what, allowed="one of your own; GET the notices")
            raise ProblemError("invalid", what, errors=[fault])
    return await _view(request, cluster, asker)


def _address(desk: Desk, body: NoticeRequest, who: str) -> str:
    """Where it goes. Raises ProblemError."""
    settings = desk.settings
    if body.way == "command":
        if body.to not in settings.commands:
            raise _invalid("body.to", f"no command {body.to[:80]!r}", ", ".join(settings.commands) or "none")
        return body.to
    if not settings.relay:
        raise _invalid("body.way", "this site sends no mail", f"a command: {', '.join(settings.commands)}")
    name, _, domain = (body.to or f"{who}@{settings.domains[0]}").rpartition("@")
    if not _LOCAL.fullmatch(name) or domain.lower() not in {one.lower() for one in settings.domains}:
        what = f"mail does not go to {(body.to or who)[:80]!r}"
        raise _invalid("body.to", what, f"NAME@ one of {', '.join(settings.domains)}")
    return f"{name}@{domain}"


def _desk(request: Request, cluster: PlanLoop) -> Desk:
    desk: Desk | None = request.app.state.desks.get(cluster.name)
    if desk is None:
        raise ProblemError("invalid", "this site sends no notices: [notify] names no relay and no command")
    return desk


def _known(request: Request, asker: Bearer) -> str:
    if asker is request.app.state.askers.tokens.anonymous:
        raise ProblemError("not-allowed", "who is told of starts must be known by name")
    return asker.name


async def _view(request: Request, cluster: PlanLoop, asker: Bearer) -> Response:
    desk: Desk | None = request.app.state.desks.get(cluster.name)
    if desk is None:
        return reply(request, NoticesView(notices=(), domains=(), commands=()))
    wishes = await _kept(lambda: desk.wishes(asker.name))
    rows = tuple(
        NoticeView(
            number=one.number,
            job=one.job,
            moved=one.moved,
            ahead=one.ahead,
            lost=one.lost,
            way=one.way,
            to=one.to,
            since=one.created,
        )
        for one in wishes
    )
    settings = desk.settings
    domains = settings.domains if settings.relay else ()
    return reply(request, NoticesView(notices=rows, domains=domains, commands=tuple(settings.commands)))


async def _kept(call: Callable[[], _T]) -> _T:
    try:
        return await asyncio.to_thread(call)
    except StoreError as error:
        raise ProblemError("not-ready", f"the database: {error}") from None


def _invalid(where: str, what: str, allowed: str) -> ProblemError:
    return ProblemError("invalid", what, errors=[Fault(where=where, what=what, allowed=allowed)])
