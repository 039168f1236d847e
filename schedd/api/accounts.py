"""Accounts: what is left of each, what was charged, and an admin's changes."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Admin, Cluster, Daemon, Seen, User
from schedd.api.audited import audited
from schedd.api.bodies import Dated, dated
from schedd.api.messages import AccountOrder, Transfer
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.replies import documented, reply
from schedd.api.text import TextRoute
from schedd.api.waiting import answer_of, the_database
from schedd.engine.show.view import Published
from schedd.policy.accounts import SCALE, Account, Period, Unit
from schedd.policy.site import economy_of
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.sight import Sight
from schedd.store.records import Charged, LedgerRow
from schedd.wire import AccountMoved, AccountSet

__all__ = [
    "AccountView",
    "AccountsView",
    "ChargedView",
    "LedgerView",
    "LineView",
    "ReportView",
    "accounts_seen",
    "charges_seen",
    "router",
]

router = APIRouter(prefix="/v1/clusters/{cluster}/accounts", tags=["accounts"], route_class=TextRoute)
_log = structlog.get_logger(__name__)
_PATIENCE: Final = 10.0
_HINT: Final = "it is done as soon as the planner is free; GET accounts to see whether it was"
_MOST: Final = 2**62
_ACT: Final = (
    "no-token",
    "not-allowed",
    "unknown-cluster",
    "not-ready",
    "invalid",
    "bad-request",
    "too-large",
)
_READ: Final = answers("no-token", "unknown-cluster", "not-ready", "invalid")
_Name = Annotated[
    str,
    Path(
        description="Its name, as `qsub -A` says it.", pattern=r"^[^\s/\x00-\x1f]{1,255}$", examples=["phys"]
    ),
]
_Since = Annotated[int, Query(description="What was entered at this second and later.", ge=0, le=_MOST)]
_Until = Annotated[int | None, Query(description="And before this second.", ge=0, le=_MOST)]
_Only = Annotated[str, Query(description="Of this account alone.", max_length=255)]
_User = Annotated[str, Query(description="Of this user's jobs alone.", max_length=255)]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account. Amounts are in core-hours or in the currency, as `unit` says; times in seconds since the
    epoch.
    """

    name: str
    unit: str
    """`core_hours`, or the site's currency."""
    amount: float
    """What it has for each period, or for good."""
    overdraft: float
    """So far below zero it may go."""
    period: Period
    since: int
    until: int | None
    """When the period ends."""
    moved: float
    """What came in from other accounts in this period, less what went out and what was owed from before."""
    charged: float
    """What runs that ended in this period took."""
    held: float
    """The most that jobs which run or are planned can take."""
    left: float
    """What further jobs may take: overdraft included, what is held not."""
    users: tuple[str, ...]
    """Who may use it; none: everybody."""
    closed: bool


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsView(Dated):
    """Accounts that the asker may use or see, by name."""

    accounts: tuple[AccountView, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """One line of the ledger: what an account gained by it (less than 0: lost), and what it had then."""

    number: int
    time: int
    account: str
    unit: str
    kind: str
    """`charge`: a run ended; `correction`: it was not as thought; `transfer`; `period`: a new one began;
    `set`: by an admin.
    """
    amount: float
    balance: float
    other: str
    """Of a transfer: the other account; empty: it came from, or went, outside."""
    job: str
    owner: str
    start: int | None
    end: int | None
    by: str
    reason: str


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """Lines of the ledger, newest first."""

    lines: tuple[LineView, ...]
    following: int | None
    """Ask for those `before` this number next; null at the end."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedView:
    """What was charged, of a month, account and user as far as they are told apart; else they are empty."""

    month: str
    """`2026-11`, by the clock of the site's zone."""
    account: str
    user: str
    unit: str
    jobs: int
    core_hours: float
    gpu_hours: float
    charged: float


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """What was charged."""

    rows: tuple[ChargedView, ...]


@router.get("", response_model=AccountsView, responses=_READ)
def get_accounts(request: Request, cluster: Cluster, asker: User, seen: Seen) -> Response:
    """What is left of each account. A user sees those that are open to the user, or to everybody."""
    return _reply(request, cluster, asker.name, seen)


@router.put("/{account}", response_model=AccountsView, responses=answers(*_ACT))
async def put_account(
    request: Request, cluster: Cluster, account: _Name, body: AccountOrder, asker: Admin, seen: Seen
) -> Response:
    """Make an account, or set what it has. Its unit cannot be changed. Needs the role `admin`.

    Jobs for which it has too little then are no longer planned, the latest to start first.
    """
    known = cluster.published.accounts.get(account)
    if known is not None and known.unit != body.unit:
        raise _wrong("body.unit", f"account {account} counts {known.unit}", known.unit)
    scale = SCALE[body.unit]
    event = AccountSet(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        name=account,
        unit=body.unit,
        amount=round(body.amount * scale),
        overdraft=round(body.overdraft * scale),
        period=body.period,
        users=tuple(body.users),
        closed=body.closed,
        by=asker.name,
        reason=body.reason,
    )
    await _done(cluster, event, asker.name, _set_in_words(event, body))
    return _reply(request, cluster, asker.name, seen)


@router.post("/transfers", response_model=AccountsView, responses=answers(*_ACT))
async def post_transfer(
    request: Request, cluster: Cluster, body: Transfer, asker: Admin, seen: Seen
) -> Response:
    """Move an amount from one account to another; from outside without a `source`, to there without a
    `target`. What is held for jobs cannot be moved. Needs the role `admin`.
    """
    published = cluster.published
    units: set[Unit] = set()
    for where, name in (("body.source", body.source), ("body.target", body.target)):
        if name and name not in published.accounts:
            raise _wrong(where, f"no account {name[:80]}", ", ".join(list(published.accounts)[:20]) or "none")
        units |= {published.accounts[name].unit} if name else set()
    if len(units) != 1 or body.source == body.target:
        raise _wrong("body", "two different accounts of the same unit are needed, or one", "")
    (unit,) = units
    event = AccountMoved(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        source=body.source,
        target=body.target,
        amount=round(body.amount * SCALE[unit]),
        by=asker.name,
        reason=body.reason,
    )
    between = f"from {body.source or 'outside'} to {body.target or 'outside'}"
    words = f"{body.amount:g} {_unit(unit, published)} {between}"
    await _done(cluster, event, asker.name, words + (f": {body.reason}" if body.reason else ""))
    return _reply(request, cluster, asker.name, seen)


@router.get("/ledger", response_model=LedgerView, responses=_READ)
async def get_ledger(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    seen: Seen,
    since: _Since = 0,
    until: _Until = None,
    account: _Only = "",
    user: _User = "",
    before: Annotated[int | None, Query(description="With numbers below this.", ge=0, le=_MOST)] = None,
    limit: Annotated[int, Query(description="At most so many.", ge=1, le=10_000)] = 200,
) -> Response:
    """What changed on accounts, newest first; it is entered within seconds. Users see their own jobs."""
    ledger, user = daemon.ledgers[cluster.name], _own(seen, user)

    def read() -> Sequence[LedgerRow]:
        with the_database():
            end = until if until is not None else _MOST
            return ledger.rows(since, end, limit + 1, account=account, user=user, before=before)

    found = await run_in_threadpool(read)
    lines = tuple(_line(one, cluster.published) for one in found[:limit])
    return reply(request, LedgerView(lines=lines, following=lines[-1].number if len(found) > limit else None))


@router.get("/report", response_model=ReportView, responses=_READ)
async def get_report(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    seen: Seen,
    since: _Since = 0,
    until: _Until = None,
    account: _Only = "",
    user: _User = "",
    by: Annotated[
        str,
        Query(
            description="What is told apart: some of `month`, `account`, `user`, with commas between.",
            pattern=r"^((month|account|user)(,(month|account|user)){0,2})?$",
        ),
    ] = "month,account,user",
) -> Response:
    """What was charged, summed up by month, account and user. Users see their own."""
    ledger, user = daemon.ledgers[cluster.name], _own(seen, user)

    def read() -> Sequence[Charged]:
        with the_database():
            end = until if until is not None else _MOST
            return ledger.charged(since, end, by.split(","), account=account, user=user)

    found = await run_in_threadpool(read)
    return reply(request, ReportView(rows=tuple(_charged(one, cluster.published) for one in found)))


# ---- within -------------------------------------------------------------------------------------


async def _done(cluster: PlanLoop, event: AccountSet | AccountMoved, who: str, words: str) -> None:
    async with audited(cluster, who, "account", words):
        handled = await answer_of(cluster.submit([event]), _PATIENCE, _HINT)
        if not handled.taken:
            raise _wrong("body.amount", "the account has not so much that is not held for jobs", "")
    _log.warning("an account was changed", cluster=cluster.name, by=who, what=words)


def _set_in_words(event: AccountSet, body: AccountOrder) -> str:
    each = f" each {body.period}" if body.period else ""
    more = (f", overdraft {body.overdraft:g}" if body.overdraft else "") + (", closed" if body.closed else "")
    return f"{event.name} {body.amount:g} {body.unit}{each}{more}" + (
        f": {body.reason}" if body.reason else ""
    )


def _own(seen: Sight, user: str) -> str:
    """Of whose jobs somebody may read who asks for those of ``user``. Raises ProblemError."""
    if seen.whose is None:
        return user
    if user and not seen.sees_owner(user):
        raise _wrong("query.user", f"you may not see what {user} used", seen.whose.name)
    return user or seen.whose.name


def accounts_seen(published: Published, who: str, seen: Sight) -> tuple[AccountView, ...]:
    """The accounts that somebody may see, by name."""
    user = who.partition("@")[0]
    found = [one for one in published.accounts.values() if seen.whose is None or one.lets(user)]
    found.sort(key=lambda one: one.name)
    return tuple(_view(one, published, all_users=seen.whose is None) for one in found)


def charges_seen(clusters: Clusters, cluster: PlanLoop, seen: Sight, since: int) -> tuple[ChargedView, ...]:
    """What was charged since then by month, account and user, newest month first, as far as somebody may see
    it. Waits for the database.
    """
    with the_database():
        rows = clusters.ledgers[cluster.name].charged(
            since, _MOST, ["month", "account", "user"], account="", user=_own(seen, "")
        )
    found = [_charged(one, cluster.published) for one in rows]
    found.sort(key=lambda one: (one.account, one.user))
    found.sort(key=lambda one: one.month, reverse=True)
    return tuple(found)


def _reply(request: Request, cluster: PlanLoop, who: str, seen: Sight) -> Response:
    published = cluster.published
    views = accounts_seen(published, who, seen)
    return reply(request, AccountsView(accounts=views, **dated(published)), published)


def _view(account: Account, published: Published, *, all_users: bool) -> AccountView:
    scale = SCALE[account.unit]
    held = published.account_held.get(account.name, 0)
    view = AccountView(
        name=account.name,
        unit=_unit(account.unit, published),
        amount=account.amount / scale,
        overdraft=account.overdraft / scale,
        period=account.period,
        since=account.since,
        until=account.until or None,
        moved=account.moved / scale,
        charged=account.charged / scale,
        held=held / scale,
        left=(account.balance + account.overdraft - held) / scale,
        users=account.users,
        closed=account.closed,
    )
    return view if all_users else replace(view, users=())


def _line(one: LedgerRow, published: Published) -> LineView:
    scale = SCALE["money" if one.unit == "money" else "core_hours"]
    return LineView(
        number=one.number,
        time=one.time,
        account=one.account,
        unit=_unit(one.unit, published),
        kind=one.kind,
        amount=one.amount / scale,
        balance=one.balance / scale,
        other=one.other,
        job=one.job,
        owner=one.owner,
        start=one.start or None,
        end=one.end or None,
        by=one.by,
        reason=one.reason,
    )


def _charged(one: Charged, published: Published) -> ChargedView:
    scale = SCALE["money" if one.unit == "money" else "core_hours"]
    return ChargedView(
        month=one.month,
        account=one.account,
        user=one.user,
        unit=_unit(one.unit, published),
        jobs=one.jobs,
        core_hours=round(one.cpu_seconds / 3600, 4),
        gpu_hours=round(one.gpu_seconds / 3600, 4),
        charged=one.amount / scale,
    )


def _unit(unit: str, published: Published) -> str:
    return economy_of(published.settings.site).currency if unit == "money" else "core_hours"


def _wrong(where: str, what: str, allowed: str) -> ProblemError:
    return ProblemError("invalid", what, errors=[Fault(where=where, what=what, allowed=allowed)])
