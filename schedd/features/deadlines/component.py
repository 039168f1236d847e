"""What deadlines add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.deadlines.admission import (
    count_outcome,
    guarantee_met_deadlines,
    guaranteed_start,
    note_changed_policy,
    withdraw_admission,
)
from schedd.features.deadlines.lost import (
    WAIT_KIND,
    follow_settings,
    idle_hooks,
    next_lost_deadline,
    remove_lost_deadlines,
    wait_for_deadline,
    wait_in_what_if,
)
from schedd.features.deadlines.state import DeadlinesState, publish_deadlines
from schedd.features.deadlines.views import (
    comment_remarks,
    job_details,
    latest_end,
    notes,
    what_if_details,
)

COMPONENT: Final = Component(
    name="deadlines",
    state=DeadlinesState,
    work_fields=("policy_changed", "refused", "accepted", "holds_lost"),
    hook_fields={
        "job_gone": ("accepted", "refused"),
    },
    idle_hooks=idle_hooks,
    begin=follow_settings,
    restored=follow_settings,
    site_changed=note_changed_policy,
    must_wait=wait_for_deadline,
    form_must_wait=lambda state, record: wait_for_deadline(state, record) is not None,
    must_wait_in_what_if=wait_in_what_if,
    ends_promise=frozenset({WAIT_KIND}),
    time_passed=remove_lost_deadlines,
    next_wake=next_lost_deadline,
    guaranteed_start=guaranteed_start,
    latest_end=latest_end,
    promise_ended=withdraw_admission,
    settle=guarantee_met_deadlines,
    job_gone=count_outcome,
    comment_remarks=comment_remarks,
    job_details=job_details,
    notes=notes,
    what_if_details=what_if_details,
    published=publish_deadlines,
)
