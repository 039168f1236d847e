"""What predictions add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.prediction.rules import (
    begin_predictions,
    close_batch,
    is_inaccurate,
    note_absence,
    on_starts_expected,
    record_job_end,
    review_predictions,
    update_prediction,
)
from schedd.features.prediction.speed_note import describe_speed
from schedd.features.prediction.state import (
    PredictionState,
    first_estimates,
    forecast_rounds,
    is_blank,
    run_time_predictions,
)
from schedd.wire import StartsExpected

COMPONENT: Final = Component(
    name="prediction",
    state=PredictionState,
    work_fields=("predictor",),
    hook_fields={
        "record_changed": ("predictor",),
        "job_removed": ("predictor",),
    },
    handlers={StartsExpected: on_starts_expected},
    begin=begin_predictions,
    is_blank=is_blank,
    restored=review_predictions,
    before_events=note_absence,
    record_changed=update_prediction,
    job_removed=record_job_end,
    batch_ended=close_batch,
    run_time_predictions=run_time_predictions,
    forecast_rounds=forecast_rounds,
    notes=describe_speed,
    first_estimates=first_estimates,
    alerts={
        "expected": AlertKind(
            "too many or too few jobs start by the time predicted for 90 % of them", is_inaccurate
        )
    },
)
