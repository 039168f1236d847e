"""Attributes of server and queues: names, types, and their order in status replies."""

from collections.abc import Mapping

BOOLEANS = frozenset(
    [
        *("scheduling", "enabled", "started", "query_other_jobs", "poll_jobs", "down_on_error"),
        *("acl_host_enable", "acl_user_enable", "acl_group_enable", "mom_job_sync", "node_pack"),
        *("moab_array_compatible", "note_append_on_error", "allow_node_submit", "auto_node_np"),
        *("disable_server_id_check", "interactive_jobs_can_roam"),
    ]
)
NUMBERS = frozenset(
    [
        *("scheduler_iteration", "keep_completed", "node_check_rate", "node_ping_rate", "tcp_timeout"),
        *("job_stat_rate", "log_level", "log_events", "log_keep_days", "max_running", "max_user_run"),
        *("max_group_run", "max_queuable", "max_user_queuable", "Priority", "nppcu", "kill_delay"),
        *("timeout_for_job_delete", "timeout_for_job_requeue", "max_job_array_size", "max_slot_limit"),
        *("job_start_timeout", "next_job_number"),
    ]
)
TEXTS = frozenset(
    [
        *("managers", "operators", "default_queue", "mail_from", "mail_domain", "acl_hosts", "acl_users"),
        *("acl_groups", "comment", "queue_type", "node_suffix", "resources_default", "resources_max"),
        *("resources_min", "resources_available", "submit_hosts", "default_node", "disallowed_types"),
        *("features_required", "route_destinations"),
    ]
)
SETTABLE = BOOLEANS | NUMBERS | TEXTS

# In the order of real servers; `status_attributes` inserts the server's own attributes.
_SERVER = [
    *("server_state", "scheduling", "max_running", "max_user_run", "max_group_run", "total_jobs"),
    *("state_count", "acl_host_enable", "acl_hosts", "acl_user_enable", "acl_users", "managers", "operators"),
    *("default_queue", "log_events", "mail_from", "query_other_jobs", "resources_available"),
    *("resources_default", "resources_max", "resources_assigned", "scheduler_iteration", "node_check_rate"),
    *("node_ping_rate", "tcp_timeout", "comment", "default_node", "node_pack", "node_suffix"),
    *("job_stat_rate", "poll_jobs", "log_level", "down_on_error", "mom_job_sync", "mail_domain"),
    *("pbs_version", "kill_delay", "keep_completed", "submit_hosts", "allow_node_submit", "auto_node_np"),
    *("next_job_number", "net_counter", "job_start_timeout", "log_keep_days", "max_job_array_size"),
    *("max_slot_limit", "moab_array_compatible", "max_user_queuable", "nppcu", "timeout_for_job_delete"),
    *("timeout_for_job_requeue", "note_append_on_error"),
]
_QUEUE = [
    *("queue_type", "Priority", "max_queuable", "max_user_queuable", "total_jobs", "state_count"),
    *("max_running", "acl_host_enable", "acl_hosts", "acl_user_enable", "acl_users", "resources_max"),
    *("resources_min", "resources_default", "acl_group_enable", "acl_groups", "mtime", "disallowed_types"),
    *("resources_available", "resources_assigned", "kill_delay", "max_user_run", "max_group_run"),
    *("keep_completed", "features_required", "enabled", "started"),
]
SERVER_RANK: Mapping[str, int] = {name: rank for rank, name in enumerate(_SERVER)}
QUEUE_RANK: Mapping[str, int] = {name: rank for rank, name in enumerate(_QUEUE)}
