"""What transfers add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.transfers.held_placements import has_held_placement
from schedd.features.transfers.rules import (
    apply_bag_end,
    awaits_step,
    forget_old_transfers,
    jobs_in_place,
    note_bag_end,
    note_end,
    note_step,
    release_expired_places,
    release_transfer,
    submit_held,
    withdraw_transfer,
)
from schedd.features.transfers.state import TransferState, publish_transfers
from schedd.wire import (
    BagEndReported,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStepDone,
    TransferWithdrawal,
)

COMPONENT: Final = Component(
    name="transfers",
    state=TransferState,
    work_fields=("kept_places",),
    hook_fields={
        "record_changed": ("bag_ends",),
        "planned_on_hold": ("by_job",),
        "job_gone": ("by_job",),
        "now_and_then": ("transfers",),
    },
    handlers={
        TransferRequest: submit_held,
        TransferRelease: release_transfer,
        TransferWithdrawal: withdraw_transfer,
        TransferStepDone: note_step,
        BagEndReported: note_bag_end,
    },
    planned_on_hold=has_held_placement,
    unmovable_jobs=jobs_in_place,
    job_gone=note_end,
    record_changed=apply_bag_end,
    time_passed=release_expired_places,
    now_and_then=forget_old_transfers,
    published=publish_transfers,
    open_decisions={TransferDecision: awaits_step},
)
