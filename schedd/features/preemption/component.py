"""What preemption adds to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.preemption.descriptions import (
    block_names,
    describe_arrival,
    describe_preemption,
    preemption_barrier,
)
from schedd.features.preemption.ended_runs import charged_jobs, count_run, is_being_preempted
from schedd.features.preemption.following import follow_preemptions, leave_preemption
from schedd.features.preemption.risks import delay_risk, note_start
from schedd.features.preemption.rules import (
    apply_settings,
    awaits_preemption,
    block_slots,
    forget_job,
    forget_past,
    gets_no_promise,
    goes_last,
    has_failed,
    idle_hooks,
    next_step,
    note_outcome,
    note_preemptor,
    plan_preemptions,
    preview_preemptions,
    still_suspended,
)
from schedd.features.preemption.state import (
    PreemptionState,
    limit_moments,
    lost_by_alteration,
    owners_of_blocks,
    planned_preemptors,
    published_preemptions,
    without_slots,
)
from schedd.features.preemption.suspensions import awaits_resume, note_run, suspended_slots
from schedd.wire import Preempt, PreemptionDone, Resume

COMPONENT: Final = Component(
    name="preemption",
    state=PreemptionState,
    work_fields=("planned", "waiting", "suspended"),
    hook_fields={
        "record_changed": ("suspending", "suspended"),
        "job_left_plan": ("planned",),
        "job_gone": (
            "waiting",
            "tried",
            "preempted",
            "ordered",
            "refused",
            "counted",
            "away",
            "suspending",
            "suspended",
            "checkpoints",
        ),
        "slots": ("planned", "suspended"),
        "deferred_slots": ("suspended",),
        "now_and_then": ("preempted", "ordered", "refused", "suspending", "suspended", "checkpoints"),
    },
    idle_hooks=idle_hooks,
    handlers={PreemptionDone: note_outcome},
    begin=apply_settings,
    site_changed=apply_settings,
    must_wait=note_preemptor,
    promises_nothing=gets_no_promise,
    start_barrier=preemption_barrier,
    goes_last=goes_last,
    requeued_on_purpose=is_being_preempted,
    charged_jobs=charged_jobs,
    job_holds_resources=note_start,
    run_ended=count_run,
    delay_risk=delay_risk,
    job_left_plan=leave_preemption,
    job_gone=forget_job,
    time_passed=follow_preemptions,
    before_dispatch=plan_preemptions,
    now_and_then=forget_past,
    next_wake=next_step,
    slots=block_slots,
    slot_names=block_names,
    jobs_of_slots=owners_of_blocks,
    alerts={
        "preemption": AlertKind("a job could not be preempted", has_failed),
        "suspension": AlertKind("a suspended job could not be resumed", still_suspended),
    },
    published=published_preemptions,
    notes=describe_preemption,
    preempted_in_preview=preview_preemptions,
    arrival_note=describe_arrival,
    clock_set_back=limit_moments,
    open_decisions={Preempt: awaits_preemption, Resume: awaits_resume},
    record_changed=note_run,
    deferred_slots=suspended_slots,
    without_plan=without_slots,
    unmovable_jobs=planned_preemptors,
    lost_by_alteration=lost_by_alteration,
)
