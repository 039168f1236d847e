"""What walltime extensions add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.walltime_extensions.descriptions import describe_extension
from schedd.features.walltime_extensions.rules import (
    awaits_extension,
    extend_due_runs,
    follow_settings,
    forget_job,
    forget_past,
    next_examination,
    note_outcome,
    note_run,
    note_settings,
    restore_orders,
    still_refused,
)
from schedd.features.walltime_extensions.state import (
    WalltimeExtensions,
    published_extensions,
    shift_extensions,
)
from schedd.wire import ExtendRun, ExtensionDone

COMPONENT: Final = Component(
    name="walltime_extensions",
    state=WalltimeExtensions,
    work_fields=("due", "runs"),
    hook_fields={
        "record_changed": ("selects", "runs"),
        "job_gone": ("due", "runs"),
        "now_and_then": ("runs",),
    },
    handlers={ExtensionDone: note_outcome},
    begin=follow_settings,
    restored=note_settings,
    site_changed=follow_settings,
    record_changed=note_run,
    job_gone=forget_job,
    now_and_then=forget_past,
    time_passed=restore_orders,
    settle=extend_due_runs,
    next_wake=next_examination,
    alerts={"walltime_extension": AlertKind("the walltime of a run could not be extended", still_refused)},
    published=published_extensions,
    notes=describe_extension,
    open_decisions={ExtendRun: awaits_extension},
    clock_set_back=shift_extensions,
)
