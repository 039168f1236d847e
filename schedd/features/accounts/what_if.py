"""What a job that is only asked about would have to wait for, by its account."""

from schedd.engine.component.job_hooks import charge_factor
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.show.job_view import published_record
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.accounts.rules import find_account, missing_funds, most_expensive
from schedd.features.accounts.settings import AccountSettings
from schedd.features.accounts.state import PublishedAccounts
from schedd.model import WaitingFor
from schedd.wire import JobFacts


def wait_in_what_if(
    published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest, instead_of: str
) -> WaitingFor | None:
    """Return the condition to wait for; the amount held for ``instead_of`` counts as available."""
    book = published.part(PublishedAccounts)
    if not book.accounts:
        return None
    site = published.settings.site
    account = book.accounts.get(find_account(site.part(AccountSettings), facts))
    user = facts.owner.partition("@")[0]
    if account is None or site.part(AccountSettings).empty != "wait":
        return None  # it may be planned, or its owner is unknown
    if user and not account.lets(user):
        return WaitingFor("account", f"account {account.name} to be open to {user}")
    available = account.balance + account.overdraft - book.held.get(account.name, 0)
    other = published_record(published, instead_of) if instead_of else None
    planned = other is not None and other.slot >= 0 and published.starts[other.slot] >= 0
    if (
        other is not None
        and planned
        and find_account(site.part(AccountSettings), other.facts) == account.name
    ):
        held = most_expensive(site, published.nodes, account, other.facts, other.understood)
        available += round(held * charge_factor(published, other.facts))
    most = most_expensive(site, published.nodes, account, facts, understood)
    most = round(most * charge_factor(published, facts))
    if not account.closed and available >= most:
        return None
    return missing_funds(account, available, most, site.economy.currency)
