"""What fair share adds to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.fair_share.rules import (
    charge_run,
    follow_site,
    follow_time,
    forget_old_usage,
    owner_shares,
    present_shares,
    usage_history,
)
from schedd.features.fair_share.state import FairShareState, limit_moments

COMPONENT: Final = Component(
    name="fair_share",
    state=FairShareState,
    work_fields=("usage",),
    hook_fields={
        "run_ended": ("usage",),
        "now_and_then": ("usage",),
    },
    begin=follow_site,
    site_changed=follow_site,
    run_ended=charge_run,
    owner_shares=owner_shares,
    present_shares=present_shares,
    usage_history=usage_history,
    before_dispatch=follow_time,
    now_and_then=forget_old_usage,
    clock_set_back=limit_moments,
)
