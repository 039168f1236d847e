"""What licences add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.licences.rules import (
    alert_outdated,
    counted_limits,
    is_outdated,
    note_count,
    read_site,
)
from schedd.features.licences.state import LicenceCounts
from schedd.wire import ResourceCounted

COMPONENT: Final = Component(
    name="licences",
    state=LicenceCounts,
    hook_fields={
        "now_and_then": ("polled",),
    },
    handlers={ResourceCounted: note_count},
    begin=read_site,
    site_changed=read_site,
    limits=counted_limits,
    now_and_then=alert_outdated,
    alerts={"licence": AlertKind("a licence count is out of date", is_outdated)},
)
