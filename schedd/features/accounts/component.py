"""What accounts add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.facts.records import Cause
from schedd.features.accounts.changes import follow_changes, next_change
from schedd.features.accounts.rules import (
    charge_run,
    charge_use,
    drop_stored_lines,
    examine_all,
    forget_old_runs,
    goes_last,
    has_funds,
    hold_for_run,
    hold_for_use,
    idle_hooks,
    lacks_funds,
    note_logged_runs,
    release_hold,
    set_account,
    transfer_amount,
    wait_for_funds,
)
from schedd.features.accounts.state import AccountBook, limit_moments, published_accounts, without_jobs
from schedd.features.accounts.what_if import wait_in_what_if
from schedd.wire import AccountMoved, AccountSet, LedgerStored, RunsRead

COMPONENT: Final = Component(
    name="accounts",
    state=AccountBook,
    work_fields=("accounts", "due"),
    hook_fields={
        "goes_last": ("poor",),
        "job_holds_resources": ("accounts", "holds", "poor"),
        "run_ended": ("accounts", "holds", "poor"),
        "job_left_plan": ("holds", "poor"),
        "now_and_then": ("runs",),
    },
    idle_hooks=idle_hooks,
    handlers={
        AccountSet: set_account,
        AccountMoved: transfer_amount,
        LedgerStored: drop_stored_lines,
        RunsRead: note_logged_runs,
    },
    site_changed=examine_all,
    must_wait=wait_for_funds,
    wait_causes={"account": Cause.ADMIN, "budget": Cause.ADMIN},
    form_must_wait=lacks_funds,
    may_lengthen=has_funds,
    must_wait_in_what_if=wait_in_what_if,
    goes_last=goes_last,
    job_holds_resources=hold_for_run,
    run_ended=charge_run,
    job_left_plan=release_hold,
    use_requested=hold_for_use,
    use_began=charge_use,
    before_dispatch=follow_changes,
    next_wake=next_change,
    now_and_then=forget_old_runs,
    published=published_accounts,
    without_plan=without_jobs,
    clock_set_back=limit_moments,
)
