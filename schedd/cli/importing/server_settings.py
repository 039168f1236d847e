"""Translation of scheduling attributes of pbs_server to settings of schedd.toml.

Names and meanings are from the servers' manuals (pbs_server_attributes, pbs_queue_attributes,
pbs_sched_attributes). Values that are read from the running server need no setting.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from schedd.cli.importing.preempt_order import parse_preempt_order
from schedd.cli.importing.result import NODE_CHOICE_NOTE, ImportResult, Verdict
from schedd.feature_list import feature_modules
from schedd.policy.limits import parse_server_limits
from schedd.wire import ResourceFacts, ResourceTypes

_Note = Callable[[Verdict, str], None]


@dataclass(frozen=True, slots=True)
class ServerObject:
    """The server, a queue, a scheduler or a resource, with all of its attributes by ``name`` or
    ``name.resource``.
    """

    kind: str
    name: str
    values: Mapping[str, str]

    @property
    def location(self) -> str:
        """The location of a finding in the report."""
        return "server" if self.kind == "server" else f"{self.kind} {self.name}"


def import_server(objects: Iterable[ServerObject], done: ImportResult, *, openpbs: bool) -> None:
    """Add a finding for every attribute, and write settings. Resources have no findings."""
    listed = list(objects)
    server = {name: value for one in listed if one.kind == "server" for name, value in one.values.items()}
    types = ResourceTypes(
        {
            one.name: ResourceFacts(one.values["type"], one.values.get("flag", ""))
            for one in listed
            if one.kind == "resource" and "type" in one.values
        }
    )
    for one in listed:
        for name, value in one.values.items() if one.kind != "resource" else ():
            _translate_attribute(one, name, value, server, types, done)
    if openpbs:
        _translate_preemption(listed, done)
        _note_eligible_time(listed, server, done)


# ---- attributes with their own rules ------------------------------------------------------------


def _translate_attribute(
    one: ServerObject,
    name: str,
    value: str,
    server: Mapping[str, str],
    types: ResourceTypes,
    done: ImportResult,
) -> None:
    def note(verdict: Verdict, message: str) -> None:
        done.note(verdict, 0, f"{name} = {value}" if len(value) <= _SHOWN else name, message, one.location)

    plain = name.partition(".")[0]
    off = value.lower() in ("false", "f", "0", "no", "n", "")
    of_features = {
        key: one for module in feature_modules("importing") for key, one in module.SERVER_ATTRIBUTES.items()
    }
    if name in of_features:
        of_features[name](value, types, done, note)
    elif name == "node_group_key":
        _translate_node_groups(value, server, one, done, note)
    elif plain in ("do_not_span_psets", "only_explicit_psets"):
        _translate_node_set_option(name, off=off, done=done, note=note)
    elif plain in _RUN_LIMITS:
        queue = one.name if one.kind == "queue" else ""
        limits, odd = parse_server_limits({name: value}, queue, types)
        if not limits and not odd:
            note(Verdict.NOT_NEEDED, "the server enforces it, with any scheduler")
        elif odd:
            note(Verdict.BLOCKER, "this limit is not understood: jobs would run beyond it")
        else:
            note(Verdict.TRANSLATED, "read from the server; the plan respects it at all times")
    elif plain == "preempt_prio" and set(re.split(r"[\s,\"]+", value)) - _PLAIN_LEVELS:
        note(Verdict.BLOCKER, _LEVELS)
    elif plain == "node_pack":
        arrange = "spread" if off else "pack"
        done.table("node_choice")["arrange"] = arrange
        note(
            Verdict.TRANSLATED,
            f'node_choice.arrange = "{arrange}"; it decides only among nodes that allow the same start',
        )
    elif plain in _SIGNIFICANT and not (off and plain not in _ALSO_OFF):
        note(*_SIGNIFICANT[plain])
    elif plain in _SIGNIFICANT:
        note(Verdict.NOT_NEEDED, "it is off")
    elif plain in _READ_FROM_SERVER:
        note(Verdict.TRANSLATED, _READ_FROM_SERVER[plain])
    elif message := next(
        (said for pattern, said in _ONLY_OLD_SCHEDULER.items() if fnmatchcase(plain, pattern)), ""
    ):
        note(Verdict.NOT_NEEDED, message)
    elif any(fnmatchcase(plain, pattern) for pattern in _STATE_ATTRIBUTES):
        note(Verdict.NOT_NEEDED, "a state, not a setting")
    elif any(fnmatchcase(plain, pattern) for pattern in _ENFORCED_BY_SERVER):
        note(Verdict.NOT_NEEDED, "the server enforces it, with any scheduler")
    else:
        note(Verdict.DIFFERS, "not known to this import: look up whether the scheduler obeys it")


def _translate_node_groups(
    value: str, server: Mapping[str, str], one: ServerObject, done: ImportResult, note: _Note
) -> None:
    if server.get("node_group_enable", "").lower() not in ("true", "t", "1", "yes", "y"):
        note(Verdict.NOT_NEEDED, "node_group_enable is off")
        return
    keys = [key.strip() for key in value.strip('"').split(",") if key.strip()]
    if one.kind != "server":
        note(Verdict.BLOCKER, "node sets apply to the whole cluster, not to a queue")
    elif len(keys) != 1:
        note(Verdict.BLOCKER, f"node sets can use only one resource: choose one of {', '.join(keys)}")
    else:
        done.table("node_sets")["by"] = keys[0]
        note(
            Verdict.TRANSLATED,
            f'node_sets.by = "{keys[0]}"; set node_sets.wait to how long a job waits for one set',
        )


def _translate_node_set_option(name: str, *, off: bool, done: ImportResult, note: _Note) -> None:
    if off:
        note(Verdict.NOT_NEEDED, "it is off")
    elif name == "do_not_span_psets":
        sets = done.table("node_sets")
        if not sets:
            del done.site["node_sets"]
            note(Verdict.NOT_NEEDED, "there is no node_group_key")
            return
        sets["strict"] = True
        note(Verdict.TRANSLATED, "node_sets.strict = true")
    else:
        note(Verdict.DIFFERS, "in schedd, nodes without the resource are in no set, and are used last")


def _translate_preemption(listed: list[ServerObject], done: ImportResult) -> None:
    """Write the table preemption if there are express queues: those with a Priority of at least
    preempt_queue_prio.
    """
    if done.preempts is False:
        return
    schedulers = [one for one in listed if one.kind == "scheduler"]
    bounds = [_int_or_none(one.values.get("preempt_queue_prio", "")) for one in schedulers]
    known = [bound for bound in (*bounds, done.express_priority) if bound is not None]
    least = min(known, default=_EXPRESS)
    message = f"queues with a Priority of at least {least} are preemptors: see the findings about queues"
    done.findings = [
        replace(one, verdict=Verdict.TRANSLATED, message=message) if one.setting in _ANSWERED else one
        for one in done.findings
    ]
    express, others = [], []
    for one in listed:
        if one.kind != "queue":
            continue
        priority = _int_or_none(one.values.get("Priority", ""))
        if priority is None or priority < least:
            if not one.values.get("queue_type", "").lower().startswith("r"):
                others.append(one.name)
            continue
        express.append(one.name)
        message = (
            f"an express queue (preempt_queue_prio {least}): it is in the preemptors of the table "
            "preemption, and queues with a lower Priority are in its targets"
        )
        if done.preempts is None:
            message += ". Remove the table if preemptive_sched is off in sched_config"
        done.note(Verdict.DIFFERS, 0, f"Priority = {priority}", message, one.location)
    if not express:
        return
    table = done.table("preemption")
    table.update({"preemptors": {"queues": express}, "targets": {"queues": others}})
    for one in schedulers:
        methods, left = parse_preempt_order(one.values.get("preempt_order", ""))
        if methods:
            table["methods"] = methods
            message = f"preemption.methods = {', '.join(methods)}"
            verdict = Verdict.DIFFERS if left else Verdict.TRANSLATED
            done.note(verdict, 0, "preempt_order", f"{message}; {left}" if left else message, one.location)
            break


def _note_eligible_time(
    listed: Iterable[ServerObject], server: Mapping[str, str], done: ImportResult
) -> None:
    """Add a finding if a formula uses eligible_time while the server does not count it."""
    formulas = [one.values.get("job_sort_formula", "") for one in listed]
    if server.get("eligible_time_enable", "").lower() in ("true", "t", "1", "yes", "y"):
        return
    if any(re.search(r"\beligible_time\b", text) for text in formulas):
        message = (
            "it is off, so that eligible_time is 0 in PBS's formula. In schedd it is the time that a job "
            "has waited: to keep PBS's order, remove the term from the formula"
        )
        done.findings = [one for one in done.findings if not one.setting.startswith("eligible_time_enable")]
        done.note(Verdict.DIFFERS, 0, "eligible_time_enable", message, "server")


def _int_or_none(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


# ---- the others ---------------------------------------------------------------------------------


_SHOWN: Final = 60
_EXPRESS: Final = 150
_PLAIN_LEVELS: Final = frozenset({"express_queue", "normal_jobs", ""})
_LEVELS: Final = (
    "schedd has no preemption levels: name the jobs to preempt in targets and scavengers of the table "
    "preemption (docs/administrators/preemption.md)"
)
_ANSWERED: Final = ("preemptive_sched", "preempt_queue_prio")
"""Options of a sched_config whose findings are replaced once the Priority of the queues is known."""
_RUN_LIMITS: Final = frozenset(
    {
        "max_running", "max_user_run", "max_group_run", "max_run", "max_run_res", "max_user_res",
        "max_group_res", "resources_available",
    }
)  # fmt: skip
_SOFT_LIMIT: Final = (
    "in PBS a soft limit only selects jobs to preempt: name these in targets of the table preemption. In "
    "schedd, soft of [[limits]] plans jobs beyond it after all others"
)
_SIGNIFICANT: Final[Mapping[str, tuple[Verdict, str]]] = {
    **dict.fromkeys(
        (
            "max_run_soft", "max_run_res_soft", "max_user_run_soft", "max_group_run_soft",
            "max_user_res_soft", "max_group_res_soft",
        ),
        (Verdict.DIFFERS, _SOFT_LIMIT),
    ),
    "job_exclusive_on_use": (
        Verdict.BLOCKER,
        "nodes would be shared: set naccesspolicy=singlejob in resources_default of the queues",
    ),
    "preempt_targets": (
        Verdict.DIFFERS,
        "a job's preempt_targets restrict the jobs that it preempts: set resources_default.preempt_targets",
    ),
    "node_sort": (Verdict.DIFFERS, NODE_CHOICE_NOTE),
    "default_node": (Verdict.DIFFERS, NODE_CHOICE_NOTE),
    "partition": (Verdict.DIFFERS, "set server.scheduler in pbs-adapter.toml to the name of the scheduler"),
    "job_run_wait": (
        Verdict.DIFFERS,
        "with runjob_hook or none the server acknowledges a run at once, instead of after about 50 ms",
    ),
    "resources_cost": (Verdict.NOT_NEEDED, "schedd counts the requests of jobs"),
    "system_cost": (Verdict.NOT_NEEDED, "schedd counts the requests of jobs"),
}  # fmt: skip
_ALSO_OFF: Final = frozenset({"partition", "job_run_wait", "default_node"})
_READ_FROM_SERVER: Final[Mapping[str, str]] = {
    "scheduling": "read from the server: no job starts while it is False",
    "started": "read from the server: jobs of a stopped queue are not planned",
    "enabled": "the server refuses new jobs of a disabled queue",
    "queue_type": "read from the server: no job runs in a routing queue",
    "Priority": "read from the server: priority.queue is its weight, and priority.queues can replace it",
    "resources_default": "read from the server: used where a job does not request the resource",
    "default_chunk": "the server writes it into jobs",
    "features_required": "read from the server: the queue's jobs go to nodes with these properties",
    "query_other_jobs": "read from the server: whether users see other users' jobs",
    "restrict_res_to_release_on_suspend": "read from the server: the resources that suspended jobs release",
    "backfill_depth": "every job has a planned start, and all jobs may fill gaps",
    "node_group_enable": "see node_group_key",
}
_ONLY_OLD_SCHEDULER: Final[Mapping[str, str]] = {
    "scheduler_iteration": "schedd starts each job at its planned start",
    "sched_*": "it concerns only the replaced scheduler",
    "throughput_mode": "jobs are started without waiting for each other",
    "opt_backfill_fuzzy": "all gaps are filled",
    "est_start_time_freq": "every job has a planned start at all times",
    "eligible_time_enable": "waiting time counts from the moment at which a job became eligible",
    "server_dyn_res_alarm": "schedd runs the programs every minute: see licences",
    "attr_update_period": "see the adapter's setting tell",
    "preempt_*": "running jobs are preempted only if the table preemption selects them: see the findings "
    "queues",
}
"""Attributes that only the replaced scheduler obeys."""
_STATE_ATTRIBUTES: Final = (
    "server_state", "total_jobs", "state_count", "state", "resources_assigned", "license_count",
    "pbs_version", "hasnodes", "mtime", "net_counter", "server_host", "sched_host", "comment",
    "next_job_number", "FLicenses", "node_suffix", "rerunnable*", "sched_version",
    "accounting_keep_days", "disp_*",
)  # fmt: skip
_ENFORCED_BY_SERVER: Final = (
    "acl_*", "managers", "operators", "default_queue", "log_*", "mail*", "max_queue*", "max_queued*",
    "max_user_queuable", "max_group_queuable", "max_queuable", "max_array_size", "max_job_array_size",
    "max_job_sequence_id", "max_slot_limit", "idle_slot_limit", "max_concurrent_provision",
    "max_run_subjobs", "max_threads", "min_threads", "resources_max", "resources_min",
    "queued_jobs_threshold*", "node_*", "job_*", "resend_term_delay", "pbs_license_*",
    "clear_topjob_estimates_enable", "power_provisioning", "resv_*", "default_qdel_arguments",
    "default_qsub_arguments", "flatuid", "keep_completed", "kill_*", "route_*", "from_route_only",
    "disallowed_types", "required_login_property", "submit_hosts", "allow_*", "auto_node_*", "tcp_*",
    "poll_jobs", "poll_*", "mom_*", "np_default", "owner_purge", "checkpoint_*", "require_*",
    "restrict_*", "server_name", "tokens", "use_jobs_subdirs", "moab_array_compatible", "nppcu",
    "timeout_*", "lock_file*", "interactive_jobs_can_roam", "thread_idle_seconds",
    "ghost_array_recovery", "cgroup_*", "copy_on_rerun", "down_on_error", "exit_code_canceled_job",
    "legacy_vmem", "no_mail_force", "note_append_on_error",
    "pass_cpu_clock", "stall_*", "display_job_server_suffix",
    "extra_resc", "automatic_requeue_exit_code", "array_*", "credential_lifetime", "python_*",
    "restart_*", "email_batch_seconds", "dont_write_nodes_file", "alt_router", "is_transit", "ntype",
    "ghost_queue", "max_report", "cray_enabled", "checkpoint_min", "checkpoint_defaults", "ping_rate",
    "sync_mom_hookfiles*", "rpp_*",
    "jobscript_max_size", "server_dyn_res_alarm",
)  # fmt: skip
