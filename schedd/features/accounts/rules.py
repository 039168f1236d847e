"""Rules of accounts: planning of jobs by available funds, held amounts, and charges.

The maximum cost of a planned job is held on its account. At the end of its run the real use is charged and
the rest is released. So the plan never promises a start that cannot be paid for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from schedd.engine.component.hook_values import PricedUse, UseBegan
from schedd.engine.component.job_hooks import charge_factor
from schedd.engine.facts.job_requests import HYPOTHETICAL, ParsedRequest
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.ranking import set_rank
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import AccountBook, account_book
from schedd.model import Place, WaitingFor
from schedd.policy.accounts import SCALE, Account, Portion, dearest, paid, period_at
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

_REMEMBERED_S: Final = 3 * 86_400
"""For how long charged runs are remembered where the server's logs are not read."""
_REREAD_S: Final = 86_400
"""How long before the last reading of the logs runs are remembered: logs are read again from then on."""


def find_account(rules: AccountSettings, facts: JobFacts | RunFacts) -> str:
    """The account that a job uses; empty: none."""
    if rules.by == "user":
        named = facts.owner.partition("@")[0]
    else:
        named = {"account": facts.account, "project": facts.project, "group": facts.group}[rules.by]
    return named or rules.otherwise


def _amount_text(account: Account, amount: int, currency: str) -> str:
    unit = "core-hours" if account.unit == "core_hours" else currency
    return f"{amount / SCALE[account.unit]:,.2f} {unit}"


# ---- which jobs may be planned ------------------------------------------------------------------


def wait_for_funds(state: EngineState, record: JobRecord) -> WaitingFor | None:
    """Hold the maximum cost of the job. Returns the condition to wait for if its account has too little."""
    book, rules = account_book(state), state.site.part(AccountSettings)
    if not book.accounts and rules.unknown == "run":
        return None
    job, name = record.id, find_account(rules, record.facts)
    account = book.accounts.get(name)
    wait = wait_for_account(rules, account, record.facts)
    if account is None or wait is not None:
        book.release(job)
        return wait
    most = _maximum_job_cost(state, account, record)
    was_poor = job in book.poor
    if not account.closed and book.available(name, job) >= most:
        book.hold(job, name, most)
        if was_poor:
            set_rank(state, record)
        return None
    book.release(job)
    if rules.empty == "last" and not account.closed:
        book.poor[job] = None
        if not was_poor:
            set_rank(state, record)
        return None
    return missing_funds(account, book.available(name, job), most, state.site.economy.currency)


def wait_for_account(rules: AccountSettings, account: Account | None, facts: JobFacts) -> WaitingFor | None:
    """Return the wait of a job without an existing ``account`` or without access to it; None: no wait."""
    user = facts.owner.partition("@")[0]
    if facts.id == HYPOTHETICAL and not (user if account is not None else find_account(rules, facts)):
        return None
    if account is not None:
        if account.lets(user):
            return None
        return WaitingFor("account", f"account {account.name} to be open to {user}")
    if rules.unknown == "run":
        return None
    name = find_account(rules, facts)
    if not name:
        return WaitingFor("account", f"an account to be named, by the job's {rules.by}")
    return WaitingFor("account", f"account {name}, which does not exist")


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    """While there is no account, no job has to wait for one, unless the site says so."""
    wait = account_book(state).accounts or state.site.part(AccountSettings).unknown != "run"
    return () if wait else ("must_wait", "form_must_wait")


def lacks_funds(state: EngineState, record: JobRecord) -> bool:
    """Whether the account of an unplaced job has too little for the request of this record, and lets it
    wait.
    """
    book, rules = account_book(state), state.site.part(AccountSettings)
    account = book.accounts.get(find_account(rules, record.facts))
    if account is None or account.closed or rules.empty == "last":
        return False
    return book.available(account.name, record.id) < _maximum_job_cost(state, account, record)


def has_funds(state: EngineState, record: JobRecord) -> bool:
    """Whether the account of a planned or running job has what the walltime of this record can cost."""
    book = account_book(state)
    account = book.accounts.get(find_account(state.site.part(AccountSettings), record.facts))
    if account is None or record.id in book.poor:
        return True
    return book.available(account.name, record.id) >= _held_cost(state, account, record)


def goes_last(state: EngineState, job: str) -> bool:
    """Whether the job is planned after all others, since its account is empty."""
    return job in account_book(state).poor


def most_expensive(
    site: SitePolicy,
    nodes: Mapping[str, NodeFacts],
    account: Account,
    facts: JobFacts,
    understood: ParsedRequest,
) -> int:
    """The most that a waiting job can cost, in the account's smallest unit, before its charge factor."""
    request, gpu = understood.request, site.part(AccountSettings).gpu
    if request is None:
        cpus, gpus = sum([share.cpus for share in facts.shares]), 0
    else:
        cpus, gpus = request.cpus, sum([chunk.count * chunk.gpus for chunk in request.chunks])
        if request.exclusive or facts.exclusive:
            largest = max((one.cpus for one in nodes.values()), default=0)
            cpus = max(cpus, (1 if request.place is Place.PACK else request.units) * largest)
    return dearest(account.unit, cpus, gpus, understood.walltime, site.economy, gpu)


def missing_funds(account: Account, available: int, most: int, currency: str) -> WaitingFor:
    """What a job waits for that may cost ``most``, where only ``available`` is left."""
    if account.closed:
        return WaitingFor("budget", f"account {account.name}, which is closed")
    left, needed = (_amount_text(account, one, currency) for one in (max(0, available), most))
    return WaitingFor("budget", f"account {account.name}: {left} are left, and it may take {needed}")


def _maximum_job_cost(state: EngineState, account: Account, record: JobRecord) -> int:
    facts = record.facts
    cost = most_expensive(state.site, state.node_facts, account, facts, record.understood)
    return round(cost * charge_factor(state, facts))


def release_hold(state: EngineState, key: str) -> None:
    """Hold nothing for this job or use any more."""
    account_book(state).release(key)


def examine_all(state: EngineState) -> None:
    """The site's policy was changed: all jobs are examined again."""
    account_book(state).due["*"] = None


# ---- uses that cost something and are no jobs ----------------------------------------------------


def hold_for_use(state: EngineState, use: PricedUse) -> str:
    """Hold what a use costs; returns why that cannot be, or an empty string."""
    book, rules, facts = account_book(state), state.site.part(AccountSettings), use.facts
    account = book.accounts.get(find_account(rules, facts))
    if account is None:
        return "" if rules.unknown == "run" else "it costs something, and there is no account for it"
    if not account.lets(facts.owner.partition("@")[0]):
        return f"account {account.name} is not open to {facts.owner}"
    cost = most_expensive(state.site, state.node_facts, account, facts, use.understood)
    amount = round(use.share * cost * charge_factor(state, facts))
    available = book.available(account.name, use.key)
    if account.closed or available < amount:
        left, needed = (
            _amount_text(account, one, state.site.economy.currency) for one in (max(0, available), amount)
        )
        return f"account {account.name}: {left} are left, and it costs {needed}"
    book.hold(use.key, account.name, amount)
    return ""


def charge_use(state: EngineState, began: UseBegan) -> None:
    """Charge the held amount at the start of the use."""
    book = account_book(state)
    held = book.holds.get(began.key)
    book.release(began.key)
    account = book.accounts.get(held[0]) if held is not None else None
    if account is None or held is None:
        return
    book.enter(
        replace(account, charged=account.charged + held[1]),
        state.now,
        "charge",
        -held[1],
        job=began.key,
        owner=began.owner,
        start=began.start,
        end=began.end,
    )


# ---- what runs cost -----------------------------------------------------------------------------


def hold_for_run(state: EngineState, record: JobRecord) -> None:
    """Hold a started job's cost until the end of its walltime, even beyond the account's funds."""
    book = account_book(state)
    account = book.accounts.get(find_account(state.site.part(AccountSettings), record.facts))
    if account is None:
        book.release(record.id)
        return
    amount = _held_cost(state, account, record)
    if book.holds.get(record.id) != (account.name, amount):
        book.poor.pop(record.id, None)
        book.hold(record.id, account.name, amount)


def _held_cost(state: EngineState, account: Account, record: JobRecord) -> int:
    """Return the cost of a run until the end of its walltime, or the maximum cost of a job without a run."""
    if record.phase is not Phase.RUNNING:
        return _maximum_job_cost(state, account, record)
    start = record.run.started
    end = start + record.understood.walltime
    return _cost(state, account, record.facts, _portions(state, record), start, end)


def charge_run(state: EngineState, record: JobRecord, end: int) -> None:
    """Charge the use of a finished run, once. Suspended time costs nothing."""
    book = account_book(state)
    account = book.accounts.get(find_account(state.site.part(AccountSettings), record.facts))
    book.release(record.id)
    if account is not None:
        portions, begin = _portions(state, record), record.run.started
        cost = _cost(state, account, record.facts, portions, *record.run.computed_interval(end))
        seconds = record.run.computed_s(end)
        _charge(state, account, record.facts, portions, (begin, max(end, begin)), cost, seconds)


def note_logged_runs(state: EngineState, event: RunsRead) -> None:
    """Charge the runs in the server's accounting logs that were not charged, and correct the times of others:
    an earlier charge, perhaps without suspensions, changes by the cost of the difference.
    """
    rules, book = state.site.part(AccountSettings), account_book(state)
    for run in event.runs:
        account = book.accounts.get(find_account(rules, run))
        if account is None or run.end <= account.created:
            continue
        portions, times = _group_shares(state, run.shares), (run.start, max(run.end, run.start))
        cost, seconds = _cost(state, account, run, portions, *times), times[1] - times[0]
        before = _find_charge(book, run.id, times)
        if before is not None:
            cost += before[2] - _cost(state, account, run, portions, *before[:2])
        _charge(state, account, run, portions, times, max(0, cost), seconds)
    book.read = max(book.read, event.until)


def _charge(
    state: EngineState,
    account: Account,
    facts: JobFacts | RunFacts,
    portions: list[Portion],
    times: tuple[int, int],
    cost: int,
    seconds: int,
) -> None:
    """Charge the run over ``times`` with ``cost`` for ``seconds`` of use, less its earlier charge."""
    book, job, (start, end) = account_book(state), facts.id, times
    before = _find_charge(book, job, times)
    rest = tuple(one for one in book.runs.get(job, ()) if one is not before)
    book.runs[job] = (*rest, (start, end, cost))
    amount = cost - (before[2] if before is not None else 0)
    if before is not None and not amount:
        return
    if before is not None:
        seconds = end - start - (before[1] - before[0])
    book.enter(
        replace(account, charged=account.charged + amount),
        state.now,
        "charge" if before is None else "correction",
        -amount,
        job=job,
        owner=facts.owner,
        start=start,
        end=end,
        cpu_seconds=sum(one.cpus for one in portions) * seconds,
        gpu_seconds=sum(one.gpus for one in portions) * seconds,
    )


def _find_charge(book: AccountBook, job: str, times: tuple[int, int]) -> tuple[int, int, int] | None:
    """Return the charge of a run: its times and its cost; None: it was not charged. Of several charges the
    one with the longest overlap counts, since clocks differ by seconds and the next run of a job may follow
    at once.
    """
    found = [one for one in book.runs.get(job, ()) if _is_same_run(one, *times)]
    return max(found, key=lambda one: min(one[1], times[1]) - max(one[0], times[0]), default=None)


def _is_same_run(run: tuple[int, int, int], start: int, end: int) -> bool:
    """Whether a charged run overlaps ``[start, end)``: the clocks of logs and events differ by seconds."""
    return run[0] < max(end, start + 1) and start < max(run[1], run[0] + 1)


def _cost(
    state: EngineState,
    account: Account,
    facts: JobFacts | RunFacts,
    portions: list[Portion],
    start: int,
    end: int,
) -> int:
    gpu = state.site.part(AccountSettings).gpu
    cost = paid(account.unit, portions, start, end, state.site.economy, gpu)
    return round(cost * charge_factor(state, _job_facts(facts)))


def _job_facts(facts: JobFacts | RunFacts) -> JobFacts:
    """The facts of the job of a logged run, as far as its price depends on them."""
    if isinstance(facts, JobFacts):
        return facts
    return JobFacts(
        id=facts.id,
        owner=facts.owner,
        queue=facts.queue,
        submitted=facts.start,
        resources={"qos": facts.qos} if facts.qos else {},
        group=facts.group,
        account=facts.account,
        project=facts.project,
        shares=facts.shares,
    )


def _portions(state: EngineState, record: JobRecord) -> list[Portion]:
    """Return the chargeable portions of a running job, by node: its share, or the whole node if exclusive."""
    portions = _group_shares(state, record.facts.shares)
    request = record.understood.request
    if not record.facts.exclusive and (request is None or not request.exclusive):
        return portions
    whole = []
    for one in portions:
        facts = state.node_facts.get(one.node)
        if facts is not None:
            one = one._replace(cpus=max(one.cpus, facts.cpus), gpus=max(one.gpus, facts.gpus))
        whole.append(one)
    return whole


def _group_shares(state: EngineState, shares: Iterable[ShareFacts]) -> list[Portion]:
    portions: dict[str, Portion] = {}
    for share in shares:
        facts = state.node_facts.get(share.node)
        known = portions.get(share.node, Portion(share.node, facts.properties if facts else (), 0, 0))
        portions[share.node] = known._replace(cpus=known.cpus + share.cpus, gpus=known.gpus + share.gpus)
    return list(portions.values())


def forget_old_runs(state: EngineState) -> None:
    """Forget runs that cannot be reported a second time any more."""
    book = account_book(state)
    if state.site.part(AccountSettings).logs:
        until = (book.read or state.now) - _REREAD_S
    else:
        until = state.now - _REMEMBERED_S
    for job, runs in list(book.runs.items()):
        kept = tuple(one for one in runs if one[1] >= until)
        if not kept:
            del book.runs[job]
        elif len(kept) < len(runs):
            book.runs[job] = kept


# ---- what admins change -------------------------------------------------------------------------


def set_account(state: EngineState, event: AccountSet) -> None:
    """Create or change an account. The unit of an existing account cannot be changed."""
    book = account_book(state)
    before = book.accounts.get(event.name)
    if before is not None and before.unit != event.unit:
        state.jobs_moved_by[event.id] = 0
        return
    account = before or Account(name=event.name, unit=event.unit, created=state.now, since=state.now)
    if before is None or before.period != event.period:
        since, until = period_at(event.period, state.now, state.site.zone)
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
    state.jobs_moved_by[event.id] = 1


def transfer_amount(state: EngineState, event: AccountMoved) -> None:
    """Transfer an amount between two accounts, or between one and the outside, if all of it is available."""
    book = account_book(state)
    source, target = book.accounts.get(event.source), book.accounts.get(event.target)
    units = {one.unit for one in (source, target) if one is not None}
    possible = (
        (source is not None or not event.source)
        and (target is not None or not event.target)
        and len(units) == 1
        and event.source != event.target
        and (source is None or book.available(source.name) >= event.amount)
    )
    state.jobs_moved_by[event.id] = int(possible)
    if not possible:
        return
    more = {"by": event.by, "reason": event.reason}
    if source is not None:
        account = replace(source, moved=source.moved - event.amount)
        book.enter(account, state.now, "transfer", -event.amount, other=event.target, **more)
    if target is not None:
        account = replace(target, moved=target.moved + event.amount)
        book.enter(account, state.now, "transfer", event.amount, other=event.source, **more)


def drop_stored_lines(state: EngineState, event: LedgerStored) -> None:
    """The ledger has these lines: they need not be kept here."""
    account_book(state).drop_stored(event.number)
