"""Accounts: what is held for jobs that are planned or run, what runs are charged, and who must wait.

A job that has a place in the plan has so much of its account held as it can take at most; when its run ends,
what it really took is charged and the rest is free again. So the plan never promises what nobody can pay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from schedd.engine.facts.intake import Understood
from schedd.engine.facts.pools import claim_of
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.rank.ranking import set_rank
from schedd.model import WaitingFor
from schedd.policy.accounts import SCALE, Account, AccountRules, Portion, dearest, paid, period_at
from schedd.policy.site import SitePolicy
from schedd.wire import (
    AccountMoved,
    AccountSet,
    JobFacts,
    LedgerStored,
    NodeFacts,
    RunFacts,
    RunsRead,
    ShareFacts,
)

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = [
    "account_of",
    "amount_in_words",
    "book_charge",
    "budget",
    "forget_runs",
    "hold_run",
    "ledger_kept",
    "most_of",
    "moved",
    "runs_read",
    "set_account",
    "too_little",
]

_KEPT: Final = 3 * 86_400
"""Seconds for which runs are remembered where no logs are read."""
_BACK: Final = 86_400
"""Runs that ended so long before the logs were last read are remembered, too: logs are read from then on."""


def account_of(rules: AccountRules, facts: JobFacts | RunFacts) -> str:
    """The account that a job uses; empty: none."""
    if rules.by == "user":
        named = facts.owner.partition("@")[0]
    else:
        named = {"account": facts.account, "project": facts.project, "group": facts.group}[rules.by]
    return named or rules.otherwise


def amount_in_words(account: Account, amount: int, currency: str) -> str:
    """So much of an account, as a person would say it."""
    unit = "core-hours" if account.unit == "core_hours" else currency
    return f"{amount / SCALE[account.unit]:,.2f} {unit}"


# ---- who may be planned -------------------------------------------------------------------------


def budget(state: "EngineState", record: JobRecord) -> WaitingFor | None:
    """Hold what the job may take; what it must wait for where its account does not have that much."""
    book, rules = state.books, state.site.accounts
    if not book.accounts and rules.unknown == "run":
        return None
    job, name = record.id, account_of(rules, record.facts)
    account = book.accounts.get(name)
    if account is None:
        book.free(job)
        if rules.unknown == "run":
            return None
        if not name:
            return WaitingFor("account", f"an account to be named, by the job's {rules.by}")
        return WaitingFor("account", f"account {name}, which there is not")
    user = record.facts.owner.partition("@")[0]
    if not account.lets(user):
        book.free(job)
        return WaitingFor("account", f"account {name} to be open to {user}")
    amount = _most(state, account, record)
    if not account.closed and book.available(name, job) >= amount:
        was_poor = job in book.poor
        book.hold(job, name, amount)
        if was_poor:
            set_rank(state, record)
        return None
    poor = job in book.poor
    book.free(job)
    if rules.empty == "last":
        book.poor[job] = None
        if not poor:
            set_rank(state, record)
        return None
    return too_little(account, book.available(name, job), amount, state.site.economy.currency)


def most_of(
    site: SitePolicy,
    nodes: Mapping[str, NodeFacts],
    account: Account,
    facts: JobFacts,
    understood: Understood,
) -> int:
    """The most that a job can take that waits, in the account's smallest unit."""
    amounts = claim_of(facts, understood).amounts
    cpus = amounts["cpus"]
    request = understood.request
    if request is not None and (request.exclusive or facts.exclusive):
        largest = max((one.cpus for one in nodes.values()), default=0)
        cpus = max(cpus, amounts["nodes"] * largest)
    gpus, gpu = amounts.get("gpus", 0), site.accounts.gpu
    return dearest(account.unit, cpus, gpus, understood.walltime, site.economy, gpu)


def too_little(account: Account, left: int, most: int, currency: str) -> WaitingFor:
    """What a job waits for that may take ``most`` of an account which has less ``left``."""
    if account.closed:
        return WaitingFor("budget", f"account {account.name}, which is closed")
    has, asked = (amount_in_words(account, one, currency) for one in (max(0, left), most))
    return WaitingFor("budget", f"account {account.name}: {has} are left, and it may take {asked}")


def _most(state: "EngineState", account: Account, record: JobRecord) -> int:
    return most_of(state.site, state.node_facts, account, record.facts, record.understood)


# ---- what runs take -----------------------------------------------------------------------------


def hold_run(state: "EngineState", record: JobRecord) -> None:
    """A job runs, or is about to: what it takes up to the end of its walltime is held, where its account has
    that or not.
    """
    book, rules = state.books, state.site.accounts
    account = book.accounts.get(account_of(rules, record.facts))
    if account is None:
        book.free(record.id)
        return
    if record.phase is not Phase.RUNNING:
        book.hold(record.id, account.name, _most(state, account, record))
        return
    start = record.run.started
    amount = _paid(state, account, _portions(state, record), start, start + record.understood.walltime)
    before = book.holds.get(record.id)
    if before != (account.name, amount):
        book.poor.pop(record.id, None)
        book.hold(record.id, account.name, amount)


def book_charge(state: "EngineState", record: JobRecord, end: int) -> None:
    """A run is over: what it took is charged, once."""
    book = state.books
    account = book.accounts.get(account_of(state.site.accounts, record.facts))
    book.free(record.id)
    if account is not None:
        _charge(state, account, record.facts, _portions(state, record), record.run.started, end)


def runs_read(state: "EngineState", event: RunsRead) -> None:
    """The server's logs have these runs: those that were not charged are, others are put right."""
    rules, book = state.site.accounts, state.books
    for run in event.runs:
        account = book.accounts.get(account_of(rules, run))
        if account is not None and run.end > account.created:
            _charge(state, account, run, _of_shares(state, run.shares), run.start, run.end)
    book.read = max(book.read, event.until)


def _charge(
    state: "EngineState",
    account: Account,
    facts: JobFacts | RunFacts,
    portions: list[Portion],
    start: int,
    end: int,
) -> None:
    book, job = state.books, facts.id
    end = max(end, start)
    amount = _paid(state, account, portions, start, end)
    known = book.runs.get(job, ())
    before = next((one for one in known if _overlap(one, start, end)), None)
    rest = tuple(one for one in known if one is not before)
    book.runs[job] = (*rest, (start, end, amount))
    taken = amount - (before[2] if before is not None else 0)
    if before is not None and not taken:
        return
    seconds = end - start - (before[1] - before[0] if before is not None else 0)
    book.enter(
        replace(account, charged=account.charged + taken),
        state.now,
        "charge" if before is None else "correction",
        -taken,
        job=job,
        owner=facts.owner,
        start=start,
        end=end,
        cpu_seconds=sum(one.cpus for one in portions) * seconds,
        gpu_seconds=sum(one.gpus for one in portions) * seconds,
    )


def _overlap(run: tuple[int, int, int], start: int, end: int) -> bool:
    """Whether a run that was charged is this one: clocks of the logs and of events differ by seconds."""
    return run[0] < max(end, start + 1) and start < max(run[1], run[0] + 1)


def _paid(state: "EngineState", account: Account, portions: list[Portion], start: int, end: int) -> int:
    return paid(account.unit, portions, start, end, state.site.economy, state.site.accounts.gpu)


def _portions(state: "EngineState", record: JobRecord) -> list[Portion]:
    """What a job that runs pays for: what it holds; of nodes that it has for itself, all of it."""
    found = _of_shares(state, record.facts.shares)
    request = record.understood.request
    if not record.facts.exclusive and (request is None or not request.exclusive):
        return found
    whole = {one.node: one for one in found}
    for name, one in whole.items():
        facts = state.node_facts.get(name)
        if facts is not None:
            whole[name] = one._replace(cpus=max(one.cpus, facts.cpus), gpus=max(one.gpus, facts.gpus))
    return list(whole.values())


def _of_shares(state: "EngineState", shares: Iterable[ShareFacts]) -> list[Portion]:
    found: dict[str, Portion] = {}
    for share in shares:
        facts = state.node_facts.get(share.node)
        known = found.get(share.node, Portion(share.node, facts.properties if facts else (), 0, 0))
        found[share.node] = known._replace(cpus=known.cpus + share.cpus, gpus=known.gpus + share.gpus)
    return list(found.values())


def forget_runs(state: "EngineState") -> None:
    """Forget runs that can no longer be told a second time."""
    book = state.books
    until = (book.read or state.now) - _BACK if state.site.accounts.logs else state.now - _KEPT
    for job, runs in list(book.runs.items()):
        kept = tuple(one for one in runs if one[1] >= until)
        if not kept:
            del book.runs[job]
        elif len(kept) < len(runs):
            book.runs[job] = kept


# ---- what admins say ----------------------------------------------------------------------------


def set_account(state: "EngineState", event: AccountSet) -> None:
    """An account is new, or other than before; one that has been used keeps its unit."""
    book = state.books
    before = book.accounts.get(event.name)
    if before is not None and before.unit != event.unit:
        state.taken[event.id] = 0
        return
    account = before or Account(name=event.name, unit=event.unit, created=state.now, since=state.now)
    if before is None or before.period != event.period:
        since, until = period_at(event.period, state.now, state.site.accounts.zone)
        account = replace(account, since=since, until=until)
    account = replace(
        account,
        amount=event.amount,
        overdraft=event.overdraft,
        period=event.period,
        users=event.users,
        closed=event.closed,
    )
    gained = account.balance - (before.balance if before is not None else 0)
    book.enter(account, state.now, "set", gained, by=event.by, reason=event.reason)
    state.taken[event.id] = 1


def moved(state: "EngineState", event: AccountMoved) -> None:
    """An amount goes from one account to another, or comes from outside or goes there; or nothing does."""
    book = state.books
    source, target = book.accounts.get(event.source), book.accounts.get(event.target)
    units = {one.unit for one in (source, target) if one is not None}
    fits = (
        (source is not None or not event.source)
        and (target is not None or not event.target)
        and len(units) == 1
        and event.source != event.target
        and (source is None or book.available(source.name) >= event.amount)
    )
    state.taken[event.id] = int(fits)
    if not fits:
        return
    more = {"by": event.by, "reason": event.reason}
    if source is not None:
        account = replace(source, moved=source.moved - event.amount)
        book.enter(account, state.now, "transfer", -event.amount, other=event.target, **more)
    if target is not None:
        account = replace(target, moved=target.moved + event.amount)
        book.enter(account, state.now, "transfer", event.amount, other=event.source, **more)


def ledger_kept(state: "EngineState", event: LedgerStored) -> None:
    """The ledger has these entries: they need not be kept here."""
    state.books.kept(event.number)
