"""What policy periods add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.periods.rules import (
    describe_period,
    enter_period,
    follow_time,
    next_change,
    restore_policy,
)
from schedd.features.periods.state import PeriodState, examine_again

COMPONENT: Final = Component(
    name="periods",
    state=PeriodState,
    work_fields=("until",),
    begin=enter_period,
    restored=restore_policy,
    site_changed=enter_period,
    time_passed=follow_time,
    next_wake=next_change,
    policy_note=describe_period,
    clock_set_back=examine_again,
)
