"""What deadlines with a probability add to the engine."""

from typing import Final

from schedd.dialect.deadline import DEADLINE_NAMES
from schedd.engine.component.declaration import Component
from schedd.features.deadline_forecasts.admission import (
    close_batch,
    count_outcome,
    follow_policy,
    follow_record,
    forget_unstarted,
    on_deadlines_forecast,
)
from schedd.features.deadline_forecasts.state import DeadlineForecastsState, publish_forecasts
from schedd.features.deadline_forecasts.views import (
    comment_remarks,
    deadline_accuracy,
    job_details,
    notes,
    what_if_details,
)
from schedd.wire import DeadlinesForecast

COMPONENT: Final = Component(
    name="deadline_forecasts",
    state=DeadlineForecastsState,
    work_fields=("waiting", "running"),
    hook_fields={
        "record_changed": ("requested", "judged", "waiting"),
        "job_removed": ("waiting",),
        "job_gone": ("waiting", "running", "requested", "judged"),
    },
    named_by=DEADLINE_NAMES,
    handlers={DeadlinesForecast: on_deadlines_forecast},
    site_changed=follow_policy,
    restored=follow_policy,
    record_changed=follow_record,
    job_removed=forget_unstarted,
    job_gone=count_outcome,
    batch_ended=close_batch,
    comment_remarks=comment_remarks,
    job_details=job_details,
    notes=notes,
    what_if_details=what_if_details,
    deadline_accuracy=deadline_accuracy,
    published=publish_forecasts,
)
