"""Accounts: balances, charges, and changes by administrators."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

import structlog
from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Admin, Cluster, Daemon, User, Visibility
from schedd.api.audit import audit_act
from schedd.api.planner_calls import database_errors, submit_events
from schedd.api.problems import (
    ACT_PROBLEMS,
    BODY_PROBLEMS,
    READ_PROBLEMS,
    invalid_problem,
)
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import PlanSnapshot
from schedd.features.accounts.background import AccountsWorker
from schedd.features.accounts.state import PublishedAccounts
from schedd.policy.accounts import SCALE, Account, Period, Unit
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import JobVisibility
from schedd.store.records import ChargeTotal, LedgerRow
from schedd.wire import AccountMoved, AccountSet
from schedd.wire.section import Name

router = RouteTable(prefix="/v1/clusters/{cluster}/accounts", tags=["accounts"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_MAX_TIME: Final = 2**62
_ACT_PROBLEMS: Final = (*ACT_PROBLEMS, *BODY_PROBLEMS)
_Name = Annotated[
    str,
    Path(
        description="Its name, as `qsub -A` says it.", pattern=r"^[^\s/\x00-\x1f]{1,255}$", examples=["phys"]
    ),
]
_Since = Annotated[int, Query(description="Entries of this second and later.", ge=0, le=_MAX_TIME)]
_Until = Annotated[int | None, Query(description="And before this second.", ge=0, le=_MAX_TIME)]
_OneAccount = Annotated[str, Query(description="Only this account.", max_length=255)]
_Amount = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
_OneUser = Annotated[str, Query(description="Only jobs of this user.", max_length=255)]


class AccountRequest(BaseModel):
    """What an account is to have."""

    model_config = ConfigDict(extra="forbid")

    unit: Literal["core_hours", "money"] = Field(
        default="core_hours",
        description="Unit of the account; default: the present one of an existing account.",
    )
    amount: _Amount = Field(description="For each period, or for good.", examples=[10_000])
    overdraft: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = Field(
        default=0.0, description="Overdraft: how far below zero the balance may go."
    )
    period: Literal["", "month", "quarter", "year"] = Field(
        default="", description="The budget is renewed at the beginning of each period; empty: never."
    )
    users: list[Name] = Field(
        default_factory=list, max_length=10_000, description="Users of the account; empty: everybody."
    )
    closed: bool = Field(default=False, description="No more jobs are planned for it.")
    reason: str = Field(
        default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", description="Kept with it."
    )


class AccountTransfer(BaseModel):
    """An amount to be transferred between accounts."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(default="", max_length=255, description="From this account; empty: from outside.")
    target: str = Field(default="", max_length=255, description="To this account; empty: to outside.")
    amount: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = Field(
        description="In core-hours or the currency, as the accounts count.", examples=[500]
    )
    reason: str = Field(
        default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$", description="Kept with it."
    )


@api_answer
class AccountView:
    """An account. Amounts are in `unit`: core-hours or the currency; times in epoch seconds."""

    name: str
    unit: str
    """`core_hours`, or the site's currency."""
    amount: float
    """The budget of each period, or in total."""
    overdraft: float
    """Overdraft: how far below zero the balance may go."""
    period: Period
    since: int
    until: int | None
    """When the period ends."""
    moved: float
    """Transfers in minus transfers out in this period, minus the debt carried over."""
    charged: float
    """What runs that ended in this period took."""
    held: float
    """The most that jobs which run or are planned can take."""
    left: float
    """Available to further jobs: with the overdraft, without the amount reserved for jobs."""
    users: tuple[str, ...]
    """Users of the account; empty: everybody."""
    closed: bool


@api_answer
class AccountsView(SnapshotAnswer):
    """Accounts that the caller may use or see, by name."""

    accounts: tuple[AccountView, ...]


@api_answer
class LedgerEntry:
    """One line of the ledger: the change of the account (negative: a charge), and the balance after it."""

    number: int
    time: int
    account: str
    unit: str
    kind: str
    """`charge` of an ended run; its `correction`; `transfer`; new `period`; `set` by an admin."""
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


@api_answer
class LedgerView:
    """Lines of the ledger, newest first."""

    lines: tuple[LedgerEntry, ...]
    following: int | None
    """Ask for those `before` this number next; null at the end."""


@api_answer
class ChargeSummary:
    """Charges by month, account and user; a field is empty if the sum is not split by it."""

    month: str
    """`2026-11`, by the clock of the site's zone."""
    account: str
    user: str
    unit: str
    jobs: int
    core_hours: float
    gpu_hours: float
    charged: float


@api_answer
class AccountReport:
    """Charges over a period."""

    rows: tuple[ChargeSummary, ...]


@router.get("", *READ_PROBLEMS, "invalid", answer=AccountsView)
def get_accounts(request: Request, cluster: Cluster, caller: User, visibility: Visibility) -> Response:
    """Balances of accounts. A user sees accounts that are open to the user, or to everybody."""
    return _accounts_reply(request, cluster, caller.name, visibility)


@router.put("/{account}", *_ACT_PROBLEMS, answer=AccountsView)
async def set_account(
    request: Request,
    cluster: Cluster,
    account: _Name,
    body: AccountRequest,
    caller: Admin,
    visibility: Visibility,
) -> Response:
    """Create an account, or change it. Its unit cannot be changed. Needs the role `admin`.

    Jobs that the account can no longer pay lose their planned start, latest start first.
    """
    known = cluster.published.part(PublishedAccounts).accounts.get(account)
    unit = known.unit if known is not None and "unit" not in body.model_fields_set else body.unit
    if known is not None and known.unit != unit:
        raise invalid_problem("body.unit", f"account {account} counts {known.unit}", known.unit)
    scale = SCALE[unit]
    event = AccountSet(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        name=account,
        unit=unit,
        amount=round(body.amount * scale),
        overdraft=round(body.overdraft * scale),
        period=body.period,
        users=tuple(body.users),
        closed=body.closed,
        by=caller.name,
        reason=body.reason,
    )
    await _submit_change(cluster, event, caller.name, _describe_account(event, body))
    return _accounts_reply(request, cluster, caller.name, visibility)


@router.post("/transfers", *_ACT_PROBLEMS, answer=AccountsView)
async def transfer_amount(
    request: Request, cluster: Cluster, body: AccountTransfer, caller: Admin, visibility: Visibility
) -> Response:
    """Transfer an amount from one account to another. Without a `source` it is added, without a `target`
    removed. Amounts reserved for jobs cannot be transferred. Needs the role `admin`.
    """
    accounts = cluster.published.part(PublishedAccounts).accounts
    units: set[Unit] = set()
    for where, name in (("body.source", body.source), ("body.target", body.target)):
        if name and name not in accounts:
            raise invalid_problem(where, f"no account {name[:80]}", ", ".join(list(accounts)[:20]) or "none")
        units |= {accounts[name].unit} if name else set()
    if len(units) != 1 or body.source == body.target:
        raise invalid_problem("body", "two different accounts of the same unit are needed, or one", "")
    (unit,) = units
    event = AccountMoved(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        source=body.source,
        target=body.target,
        amount=round(body.amount * SCALE[unit]),
        by=caller.name,
        reason=body.reason,
    )
    between = f"from {body.source or 'outside'} to {body.target or 'outside'}"
    words = f"{body.amount:g} {_unit_name(unit, cluster.published)} {between}"
    await _submit_change(cluster, event, caller.name, words + (f": {body.reason}" if body.reason else ""))
    return _accounts_reply(request, cluster, caller.name, visibility)


@router.get("/ledger", *READ_PROBLEMS, "invalid", answer=LedgerView)
async def get_ledger(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    visibility: Visibility,
    since: _Since = 0,
    until: _Until = None,
    account: _OneAccount = "",
    user: _OneUser = "",
    before: Annotated[int | None, Query(description="With numbers below this.", ge=0, le=_MAX_TIME)] = None,
    limit: Annotated[int, Query(description="Maximum number of entries.", ge=1, le=10_000)] = 200,
) -> Response:
    """What changed on accounts, newest first; it is entered within seconds. Users see their own jobs."""
    ledger, user = daemon.service(cluster.name, AccountsWorker).ledger, _readable_user(visibility, user)

    def read() -> Sequence[LedgerRow]:
        with database_errors():
            end = until if until is not None else _MAX_TIME
            return ledger.rows(since, end, limit + 1, account=account, user=user, before=before)

    found = await run_in_threadpool(read)
    lines = tuple(_ledger_entry(one, cluster.published) for one in found[:limit])
    return reply(request, LedgerView(lines=lines, following=lines[-1].number if len(found) > limit else None))


@router.get("/report", *READ_PROBLEMS, "invalid", answer=AccountReport)
async def get_report(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    visibility: Visibility,
    since: _Since = 0,
    until: _Until = None,
    account: _OneAccount = "",
    user: _OneUser = "",
    by: Annotated[
        str,
        Query(
            description="Split by these: some of `month`, `account`, `user`, separated by commas.",
            pattern=r"^((month|account|user)(,(month|account|user)){0,2})?$",
        ),
    ] = "month,account,user",
) -> Response:
    """Charges, summed by month, account and user. Users see their own."""
    ledger, user = daemon.service(cluster.name, AccountsWorker).ledger, _readable_user(visibility, user)

    def read() -> Sequence[ChargeTotal]:
        with database_errors():
            end = until if until is not None else _MAX_TIME
            return ledger.charges(since, end, by.split(","), account=account, user=user)

    found = await run_in_threadpool(read)
    return reply(request, AccountReport(rows=tuple(_charge_summary(one, cluster.published) for one in found)))


# ---- within -------------------------------------------------------------------------------------


async def _submit_change(cluster: PlanLoop, event: AccountSet | AccountMoved, who: str, words: str) -> None:
    async with audit_act(cluster, who, "account", words):
        handled = await submit_events(cluster, [event], "accounts")
        if not handled.taken:
            raise invalid_problem(
                "body.amount", "the account has too little that is not reserved for jobs", ""
            )
    _log.warning("an account was changed", cluster=cluster.name, by=who, what=words)


def _describe_account(event: AccountSet, body: AccountRequest) -> str:
    each = f" each {body.period}" if body.period else ""
    more = (f", overdraft {body.overdraft:g}" if body.overdraft else "") + (", closed" if body.closed else "")
    return f"{event.name} {body.amount:g} {event.unit}{each}{more}" + (
        f": {body.reason}" if body.reason else ""
    )


def _readable_user(visibility: JobVisibility, user: str) -> str:
    """Return the owner whose charges the caller may read as ``user``. Raises ProblemError."""
    if visibility.viewer is None:
        return user
    if user and not visibility.shows_owner(user):
        raise invalid_problem("query.user", f"you may not see what {user} used", visibility.viewer.name)
    return user or visibility.viewer.name


def visible_accounts(published: PlanSnapshot, who: str, visibility: JobVisibility) -> tuple[AccountView, ...]:
    """The accounts that the caller may see, by name."""
    user = who.partition("@")[0]
    accounts = published.part(PublishedAccounts).accounts.values()
    found = [one for one in accounts if visibility.viewer is None or one.lets(user)]
    found.sort(key=lambda one: one.name)
    return tuple(_account_view(one, published, all_users=visibility.viewer is None) for one in found)


def visible_charges(
    clusters: Clusters, cluster: PlanLoop, visibility: JobVisibility, since: int
) -> tuple[ChargeSummary, ...]:
    """Visible charges since then by month, account and user, newest month first. Waits for the database."""
    with database_errors():
        rows = clusters.service(cluster.name, AccountsWorker).ledger.charges(
            since, _MAX_TIME, ["month", "account", "user"], account="", user=_readable_user(visibility, "")
        )
    found = [_charge_summary(one, cluster.published) for one in rows]
    found.sort(key=lambda one: (one.account, one.user))
    found.sort(key=lambda one: one.month, reverse=True)
    return tuple(found)


def _accounts_reply(request: Request, cluster: PlanLoop, who: str, visibility: JobVisibility) -> Response:
    published = cluster.published
    views = visible_accounts(published, who, visibility)
    return reply(request, AccountsView(accounts=views, **snapshot_fields(published)), published)


def _account_view(account: Account, published: PlanSnapshot, *, all_users: bool) -> AccountView:
    scale = SCALE[account.unit]
    held = published.part(PublishedAccounts).held.get(account.name, 0)
    view = AccountView(
        name=account.name,
        unit=_unit_name(account.unit, published),
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


def _ledger_entry(one: LedgerRow, published: PlanSnapshot) -> LedgerEntry:
    scale = SCALE["money" if one.unit == "money" else "core_hours"]
    return LedgerEntry(
        number=one.number,
        time=one.time,
        account=one.account,
        unit=_unit_name(one.unit, published),
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


def _charge_summary(one: ChargeTotal, published: PlanSnapshot) -> ChargeSummary:
    scale = SCALE["money" if one.unit == "money" else "core_hours"]
    return ChargeSummary(
        month=one.month,
        account=one.account,
        user=one.user,
        unit=_unit_name(one.unit, published),
        jobs=one.jobs,
        core_hours=round(one.cpu_seconds / 3600, 4),
        gpu_hours=round(one.gpu_seconds / 3600, 4),
        charged=one.amount / scale,
    )


def _unit_name(unit: str, published: PlanSnapshot) -> str:
    return published.settings.site.economy.currency if unit == "money" else "core_hours"
