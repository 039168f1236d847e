"""What follows for jobs when accounts have more or less than before, when periods end and prices change."""

from dataclasses import replace
from typing import Final

from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.costs import move_earlier_affordably, over_limit
from schedd.engine.place.placement import plan_job, replan
from schedd.engine.rank.accounts import account_of, budget, hold_run
from schedd.engine.rank.promises import note_one
from schedd.engine.rank.quarantine import Concerning
from schedd.model import FOREVER, WaitingFor
from schedd.plan.columns import PLANNED
from schedd.policy.accounts import period_at

__all__ = ["apply_budgets", "apply_cost_limits", "next_period"]

_ALL: Final = "*"
"""Among the accounts that are due: every job is to be looked at."""


def next_period(state: EngineState) -> int:
    """When the first period of an account ends; FOREVER: none does."""
    accounts = state.books.accounts
    return (
        min((one.until for one in accounts.values() if one.until), default=FOREVER) if accounts else FOREVER
    )


def apply_budgets(state: EngineState, event: str) -> None:
    """Begin periods anew; let jobs be planned whose accounts have enough by now, and let those wait whose
    accounts have too little.
    """
    book = state.books
    if next_period(state) <= state.now:
        _new_periods(state)
    if not book.due:
        return
    due, book.due = book.due, {}
    everybody = _ALL in due
    rules = state.site.accounts
    if rules.empty == "wait":
        for name in due if not everybody else list(book.accounts):
            if name in book.accounts:
                _remove_unaffordable(state, name, event)
    found = [
        record
        for record in state.records.values()
        if record.id not in book.holds and (everybody or account_of(rules, record.facts) in due)
    ]
    found.sort(key=lambda one: (-state.rank[one.slot] if one.slot >= 0 else 0, one.facts.submitted, one.id))
    for record in found:
        _recheck_budget(state, state.records[record.id], event)
    for name in list(book.due):
        # Whoever could be let in was; what this freed is looked at by the next call.
        if name == _ALL or name in due:
            del book.due[name]


def apply_cost_limits(state: EngineState, event: str) -> None:
    """Look for earlier places of jobs that may cost no more than their limits; try again for those that have
    none.
    """
    state.costs_due = state.now + state.settings.priority_every
    for job_id in list(state.capped):
        record = state.records[job_id]
        if record.phase not in (Phase.WAITING, Phase.BLOCKED):
            del state.capped[job_id]
        elif isinstance(record.answer, WaitingFor) and record.answer.kind == "cost":
            plan_job(state, record, event, Cause.FREED, "prices are others than before")
        elif record.slot >= 0 and state.plan.state(record.slot) == PLANNED:
            with Concerning(state, job_id, event):
                if over_limit(state, record):
                    replan(state, record, event, Cause.ADMIN, "it would cost more than its limit")
                    continue
                old = move_earlier_affordably(state, record, event)
                if old >= 0:
                    words = "there is room where it costs no more than it may"
                    note_one(
                        state, event, Cause.FREED, words, record.slot, old, state.plan.start(record.slot)
                    )
    state.due = None


def _recheck_budget(state: EngineState, record: JobRecord, event: str) -> None:
    if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        hold_run(state, record)
        return
    if record.slot < 0:
        return
    answer = record.answer
    waits = isinstance(answer, WaitingFor) and answer.kind in ("budget", "account")
    if record.phase is Phase.BLOCKED and not waits:
        return
    wait = budget(state, record)
    if waits and wait is None:
        plan_job(state, record, event, Cause.FREED, "its account has enough again")
    elif wait is not None and wait != answer:
        replan(state, record, event, Cause.ADMIN, "its account has too little")


def _remove_unaffordable(state: EngineState, name: str, event: str) -> None:
    """Take jobs out of the plan for which the account has too little, the latest to start first."""
    book, plan = state.books, state.plan
    account = book.accounts[name]
    if book.available(name) >= 0 and not account.closed:
        return
    # Bookings hold something, too; they keep what they have.
    records = [
        state.records[job] for job, (of, _) in book.holds.items() if of == name and job in state.records
    ]
    waiting = [one for one in records if one.phase is Phase.WAITING and one.slot >= 0]
    waiting.sort(key=lambda one: plan.start(one.slot) if plan.state(one.slot) == PLANNED else FOREVER)
    while waiting and (book.available(name) < 0 or account.closed):
        replan(state, state.records[waiting.pop().id], event, Cause.ADMIN, f"account {name} has too little")


def _new_periods(state: EngineState) -> None:
    """Accounts have their amounts anew; what one owes is taken from it, what it did not use is gone."""
    book = state.books
    for account in list(book.accounts.values()):
        if not account.until or account.until > state.now:
            continue
        since, until = period_at(account.period, state.now, state.site.accounts.zone)
        owed = min(0, account.balance)
        new = replace(account, since=since, until=until, moved=owed, charged=0)
        book.enter(new, state.now, "period", new.balance - account.balance)
