"""The sans-I/O engine: events in, decisions out.

This module is its one door: other packages import the engine's names from here. Exceptions are listed in the
import contract "The engine has one door"; the list may only shrink. The component, rules and state of a
feature are parts of the engine and import its modules directly.
"""

from schedd.engine.checkpoint import CheckpointError
from schedd.engine.component.job_hooks import (
    deadline_accuracy,
    first_estimates,
    job_delay_risk,
    job_details,
    job_labels,
    job_refusal,
    job_scopes,
)
from schedd.engine.component.what_if_hooks import rank_in_what_if, what_if_details
from schedd.engine.engine import Engine
from schedd.engine.facts.alerts import OpenAlert, alert_kinds
from schedd.engine.facts.records import (
    Breach,
    Cause,
    ChangeSet,
    EndedPromise,
    JobRecord,
    Outcome,
    Phase,
    Risk,
)
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.log import Incident, LoggedBatch
from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.engine.plan_improvements import find_allocation, improvement_event, movable_slots, place_facts
from schedd.engine.preview import OwnerAtRisk, preview_settings
from schedd.engine.run.altered_requests import promise_end_reason
from schedd.engine.search_schedule import (
    MOST_MOVED,
    DueSearch,
    SearchHistory,
    SearchReason,
    due_search,
    next_search,
    requested_search,
)
from schedd.engine.show.job_view import (
    Change,
    JobStatus,
    JobView,
    job_displayed_start,
    job_expected_start,
    job_histories,
    job_history,
    job_promised_start,
    job_shares,
    job_status,
    last_change,
    published_record,
    render_job,
)
from schedd.engine.show.plan_snapshot import PlanSnapshot, publish_snapshot
from schedd.policy.engine_settings import (
    SITE_PUBLISH_HOLD,
    SITE_PUBLISH_PAUSE,
    SITE_SLACK,
    SITE_START_RATE,
    SITE_START_RATE_NODE,
    EngineSettings,
    PlanningSettings,
    SlackText,
    StartRate,
)

__all__ = [
    "HORIZON",
    "MOST_MOVED",
    "SITE_PUBLISH_HOLD",
    "SITE_PUBLISH_PAUSE",
    "SITE_SLACK",
    "SITE_START_RATE",
    "SITE_START_RATE_NODE",
    "Breach",
    "Cause",
    "Change",
    "ChangeSet",
    "CheckpointError",
    "DueSearch",
    "EndedPromise",
    "Engine",
    "EngineSettings",
    "EngineState",
    "Incident",
    "JobRecord",
    "JobStatus",
    "JobView",
    "LoggedBatch",
    "OpenAlert",
    "Outcome",
    "OwnerAtRisk",
    "Phase",
    "PlanSnapshot",
    "PlanningSettings",
    "Risk",
    "SearchHistory",
    "SearchReason",
    "SlackText",
    "StartRate",
    "alert_kinds",
    "deadline_accuracy",
    "due_search",
    "find_allocation",
    "first_estimates",
    "improvement_event",
    "job_delay_risk",
    "job_details",
    "job_displayed_start",
    "job_expected_start",
    "job_histories",
    "job_history",
    "job_labels",
    "job_promised_start",
    "job_refusal",
    "job_scopes",
    "job_shares",
    "job_status",
    "last_change",
    "last_starts",
    "last_starts_on_hold",
    "movable_slots",
    "next_search",
    "place_facts",
    "preview_settings",
    "promise_end_reason",
    "publish_snapshot",
    "published_record",
    "rank_in_what_if",
    "render_job",
    "requested_search",
    "what_if_details",
]
