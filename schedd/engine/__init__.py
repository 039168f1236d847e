"""The sans-I/O engine: events in, decisions out.

This module is its one door: other packages import the engine's names only from here (import contract "The
engine has one door"). The component, rules and state of a feature are parts of the engine and import its
modules directly.
"""

from schedd.engine.checkpoint import CheckpointError
from schedd.engine.component.hook_values import PreemptedRun, Restriction, StartBarrier
from schedd.engine.component.job_hooks import (
    awaits,
    charge_factor,
    deadline_accuracy,
    first_estimates,
    job_delay_risk,
    job_details,
    job_labels,
    job_refusal,
    job_scopes,
    present_wait,
    start_barrier,
)
from schedd.engine.component.placement_hooks import (
    job_restriction,
    latest_end,
    node_order,
    planned_facts,
)
from schedd.engine.component.promise_hooks import gets_no_promise
from schedd.engine.component.ranking_hooks import policy_note, present_shares, ranking_setting
from schedd.engine.component.registry import components
from schedd.engine.component.what_if_hooks import (
    arrival_note,
    jobs_of_slots,
    rank_in_what_if,
    slots_named,
    variants_in_what_if,
    walltimes_in_what_if,
    what_if_details,
)
from schedd.engine.engine import Engine
from schedd.engine.facts.alerts import OpenAlert, alert_kinds
from schedd.engine.facts.arrays import array_name, hash_array
from schedd.engine.facts.carried_jobs import CarriedJob
from schedd.engine.facts.explanations import explain_choice, format_moment, last_refusal
from schedd.engine.facts.job_requests import (
    BOOKING,
    HYPOTHETICAL,
    ParsedRequest,
    RequestReader,
    as_planned_request,
    find_uncounted,
    first_waiting_reason,
    is_eligible,
    planner_node,
    queue_stop_reason,
    slot_limited,
    unusable_amounts,
    waiting_reasons,
)
from schedd.engine.facts.pools import LimitBook, make_claim
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
from schedd.engine.facts.shares import planned_shares
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.incident import IncidentError, dump_incident, read_incident, rerun_incident
from schedd.engine.log import Incident, LoggedBatch
from schedd.engine.place.backfilling import backfill_rule
from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.request_forms import FormCandidate, best_form
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.engine.plan_improvements import (
    IMPROVED_BY_SEARCH,
    find_allocation,
    improvement_event,
    movable_slots,
    place_facts,
)
from schedd.engine.preview import (
    ConflictingJob,
    OwnerAtRisk,
    Preview,
    PreviewedMove,
    preview_moves,
    preview_settings,
)
from schedd.engine.rank.priorities import current_demand, make_applicant, priority_breakdown
from schedd.engine.rank.promises import queue_slack
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
    "BOOKING",
    "HORIZON",
    "HYPOTHETICAL",
    "IMPROVED_BY_SEARCH",
    "MOST_MOVED",
    "SITE_PUBLISH_HOLD",
    "SITE_PUBLISH_PAUSE",
    "SITE_SLACK",
    "SITE_START_RATE",
    "SITE_START_RATE_NODE",
    "Breach",
    "CarriedJob",
    "Cause",
    "Change",
    "ChangeSet",
    "CheckpointError",
    "ConflictingJob",
    "DueSearch",
    "EndedPromise",
    "Engine",
    "EngineSettings",
    "EngineState",
    "FormCandidate",
    "Incident",
    "IncidentError",
    "JobRecord",
    "JobStatus",
    "JobView",
    "LimitBook",
    "LoggedBatch",
    "OpenAlert",
    "Outcome",
    "OwnerAtRisk",
    "ParsedRequest",
    "Phase",
    "PlanSnapshot",
    "PlanningSettings",
    "PreemptedRun",
    "Preview",
    "PreviewedMove",
    "RequestReader",
    "Restriction",
    "Risk",
    "SearchHistory",
    "SearchReason",
    "SlackText",
    "StartBarrier",
    "StartRate",
    "alert_kinds",
    "array_name",
    "arrival_note",
    "as_planned_request",
    "awaits",
    "backfill_rule",
    "best_form",
    "charge_factor",
    "components",
    "current_demand",
    "deadline_accuracy",
    "due_search",
    "dump_incident",
    "explain_choice",
    "find_allocation",
    "find_uncounted",
    "first_estimates",
    "first_waiting_reason",
    "format_moment",
    "gets_no_promise",
    "hash_array",
    "improvement_event",
    "is_eligible",
    "job_delay_risk",
    "job_details",
    "job_displayed_start",
    "job_expected_start",
    "job_histories",
    "job_history",
    "job_labels",
    "job_promised_start",
    "job_refusal",
    "job_restriction",
    "job_scopes",
    "job_shares",
    "job_status",
    "jobs_of_slots",
    "last_change",
    "last_refusal",
    "last_starts",
    "last_starts_on_hold",
    "latest_end",
    "make_applicant",
    "make_claim",
    "movable_slots",
    "next_search",
    "node_order",
    "place_facts",
    "planned_facts",
    "planned_shares",
    "planner_node",
    "policy_note",
    "present_shares",
    "present_wait",
    "preview_moves",
    "preview_settings",
    "priority_breakdown",
    "promise_end_reason",
    "publish_snapshot",
    "published_record",
    "queue_slack",
    "queue_stop_reason",
    "rank_in_what_if",
    "ranking_setting",
    "read_incident",
    "render_job",
    "requested_search",
    "rerun_incident",
    "slot_limited",
    "slots_named",
    "start_barrier",
    "unusable_amounts",
    "variants_in_what_if",
    "waiting_reasons",
    "walltimes_in_what_if",
    "what_if_details",
]
