"""What a job that is only asked about would have to wait for, by its account."""

from schedd.engine.component.job_hooks import charge_factor
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.show.job_view import published_record
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.accounts.rules import (
    find_account,
    missing_funds,
    most_expensive,
    wait_for_account,
)
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import PublishedAccounts
from schedd.model import WaitingFor
from schedd.policy.accounts import Account
from schedd.wire import JobFacts


def wait_in_what_if(
    published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest, instead_of: str
) -> WaitingFor | None:
    """Return the condition to wait for; the amount held for ``instead_of`` counts as available."""
    site = published.settings.site
    rules = site.part(AccountSettings)
    name = find_account(rules, facts)
    account = published.part(PublishedAccounts).accounts.get(name)
    # A question names an owner at most: of a job that is in no queue, account, project and group are unknown.
    known = bool(facts.owner) if account is not None else bool(name or instead_of)
    wait = wait_for_account(rules, account, facts) if known else None
    if account is None or wait is not None or (rules.empty != "wait" and not account.closed):
        return wait
    available, most = _funds(published, account, facts, understood, instead_of)
    if not account.closed and available >= most:
        return None
    return missing_funds(account, available, most, site.economy.currency)


def _funds(
    published: PlanSnapshot, account: Account, facts: JobFacts, understood: ParsedRequest, instead_of: str
) -> tuple[int, int]:
    """Return what an account has for the job, and the most that the job can cost."""
    book, site = published.part(PublishedAccounts), published.settings.site
    rules = site.part(AccountSettings)
    available = account.balance + account.overdraft - book.held.get(account.name, 0)
    other = published_record(published, instead_of) if instead_of else None
    planned = other is not None and other.slot >= 0 and published.starts[other.slot] >= 0
    if other is not None and planned and find_account(rules, other.facts) == account.name:
        held = most_expensive(site, published.nodes, account, other.facts, other.understood)
        available += round(held * charge_factor(published, other.facts))
    most = most_expensive(site, published.nodes, account, facts, understood)
    return available, round(most * charge_factor(published, facts))
