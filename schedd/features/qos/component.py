"""What QOS adds to the engine."""

from typing import Final

from schedd.dialect.qos import QOS_NAMES
from schedd.engine.component.declaration import Component
from schedd.features.qos.rules import charge_factor, labels, points, refusal
from schedd.features.qos.state import QosState, idle_hooks, publish_qos
from schedd.features.qos.waits import forget_run, note_start

COMPONENT: Final = Component(
    name="qos",
    state=QosState,
    idle_hooks=idle_hooks,
    named_by=QOS_NAMES,
    labels=labels,
    refusal=refusal,
    label_points=points,
    charge_factor=charge_factor,
    job_holds_resources=note_start,
    run_ended=forget_run,
    published=publish_qos,
)
