"""What trials of nodes add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.node_trials.rules import (
    close_node,
    closed_because,
    follow_settings,
    follow_trials,
    is_open_for_trial,
    judge_run,
    next_trial,
    slot_names,
    start_trial,
    trial_slots,
)
from schedd.features.node_trials.state import NodeTrials, shift_trials, without_slots

COMPONENT: Final = Component(
    name="node_trials",
    state=NodeTrials,
    hook_fields={
        "job_dispatched": ("trials",),
        "run_judged": ("trials",),
        "time_passed": ("trials",),
        "next_wake": ("trials",),
        "slots": ("trials",),
    },
    begin=follow_settings,
    restored=follow_settings,
    site_changed=follow_settings,
    node_closed=close_node,
    is_open_for_trial=is_open_for_trial,
    closed_because=closed_because,
    job_dispatched=start_trial,
    run_judged=judge_run,
    time_passed=follow_trials,
    next_wake=next_trial,
    slots=trial_slots,
    slot_names=slot_names,
    without_plan=without_slots,
    clock_set_back=shift_trials,
)
