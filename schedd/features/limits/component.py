"""What limits add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.engine.facts.records import Cause
from schedd.features.limits.admission import (
    charge_use,
    count_again,
    follow_room,
    forget_idle,
    goes_last,
    has_room,
    hold_for_run,
    idle_hooks,
    job_notes,
    lacks_room,
    leave,
    next_room,
    present_wait,
    publish_limits,
    wait_for_room,
    wait_in_what_if,
)
from schedd.features.limits.rules import follow_queue_limits, follow_server_limits, limit_sources
from schedd.features.limits.state import LimitState, limit_moments

COMPONENT: Final = Component(
    name="limits",
    state=LimitState,
    work_fields=("due", "over", "again_at"),
    hook_fields={
        "goes_last": ("last",),
        "now_and_then": ("meters", "limits"),
    },
    idle_hooks=idle_hooks,
    limits=limit_sources,
    site_changed=count_again,
    must_wait=wait_for_room,
    wait_causes={"limit": Cause.QUEUE},
    form_must_wait=lacks_room,
    may_lengthen=has_room,
    must_wait_in_what_if=wait_in_what_if,
    present_wait=present_wait,
    goes_last=goes_last,
    job_holds_resources=hold_for_run,
    run_ended=charge_use,
    job_left_plan=leave,
    before_dispatch=follow_room,
    now_and_then=forget_idle,
    next_wake=next_room,
    clock_set_back=limit_moments,
    notes=job_notes,
    published=publish_limits,
    queue_changed=follow_queue_limits,
    server_changed=follow_server_limits,
    alerts={
        "limit": AlertKind(
            "a limit of the server cannot be read and is not enforced",
            lambda _state, _about: True,  # until the limits are read again
        )
    },
)
