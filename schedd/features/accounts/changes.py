"""Replanning after changes of balances and at the ends of periods."""

from dataclasses import replace
from typing import Final

from schedd.engine.facts.records import Cause, JobRecord, Phase, submission_key
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import plan_job, replan
from schedd.features.accounts.rules import find_account, hold_for_run, wait_for_funds
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import account_book
from schedd.model import FOREVER, WaitingFor
from schedd.plan.columns import PLANNED
from schedd.policy.accounts import period_at

_ALL: Final = "*"


def next_change(state: EngineState) -> int:
    """When changes are to be followed next: now, or when the first period ends; FOREVER: never."""
    book = account_book(state)
    if book.due:
        return state.now
    return min((one.until for one in book.accounts.values() if one.until), default=FOREVER)


def follow_changes(state: EngineState, event: str) -> None:
    """Begin new periods, plan jobs with sufficient funds, and suspend jobs without them."""
    if next_change(state) > state.now:
        return
    _begin_periods(state)
    book = account_book(state)
    if not book.due:
        return
    due, book.due = book.due, {}
    everybody = _ALL in due
    rules = state.site.part(AccountSettings)
    for name in list(book.accounts) if everybody else due:
        if name in book.accounts and (rules.empty == "wait" or book.accounts[name].closed):
            _remove_unfunded(state, name, event)
    records = [
        record
        for record in state.records.values()
        if record.id not in book.holds and (everybody or find_account(rules, record.facts) in due)
    ]
    records.sort(key=lambda one: (-state.rank[one.slot] if one.slot >= 0 else 0, submission_key(one)))
    for record in records:
        _examine(state, state.records[record.id], event)
    for name in list(book.due):
        if name == _ALL or name in due:  # all jobs that it can pay for were planned
            del book.due[name]


def _examine(state: EngineState, record: JobRecord, event: str) -> None:
    """Plan a job that waited for its account, or let it wait."""
    if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        hold_for_run(state, record)
        return
    if record.slot < 0:
        return
    answer = record.answer
    waits = isinstance(answer, WaitingFor) and answer.kind in ("budget", "account")
    if record.phase is Phase.BLOCKED and not waits:
        return
    wait = wait_for_funds(state, record)
    if waits and wait is None:
        plan_job(state, record, event, Cause.FREED, "its account has enough again")
    elif wait is not None and wait != answer:
        replan(state, record, event, Cause.ADMIN, "its account has too little")


def _remove_unfunded(state: EngineState, name: str, event: str) -> None:
    """Unplan jobs, latest start first, until the account's funds suffice. Bookings keep theirs."""
    book, plan = account_book(state), state.plan
    account = book.accounts[name]
    if book.available(name) >= 0 and not account.closed:
        return
    records = [
        state.records[key] for key, (of, _) in book.holds.items() if of == name and key in state.records
    ]
    waiting = [one for one in records if one.phase is Phase.WAITING and one.slot >= 0]
    waiting.sort(key=lambda one: plan.start(one.slot) if plan.state(one.slot) == PLANNED else FOREVER)
    words = f"account {name} {'is closed' if account.closed else 'has too little'}"
    while waiting and (book.available(name) < 0 or account.closed):
        replan(state, state.records[waiting.pop().id], event, Cause.ADMIN, words)


def _begin_periods(state: EngineState) -> None:
    """Renew accounts at the end of their period, minus their debts; unused amounts are lost."""
    book = account_book(state)
    for account in list(book.accounts.values()):
        if not account.until or account.until > state.now:
            continue
        since, until = period_at(account.period, state.now, state.site.zone)
        owed = min(0, account.balance)
        new = replace(account, since=since, until=until, moved=owed, charged=0)
        book.enter(new, state.now, "period", new.balance - account.balance)
