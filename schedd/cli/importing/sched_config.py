"""Translation of the sched_config of pbs_sched (TORQUE, OpenPBS, PBS Professional) to settings of
schedd.toml.

Names and meanings are from the schedulers' sources. Companion files are read, too: resource_group (shares),
holidays (prime time) and dedicated_time.
"""

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from schedd.cli.importing.preempt_order import parse_preempt_order
from schedd.cli.importing.prime_time import has_prime_time, read_prime_time
from schedd.cli.importing.result import LOAD_NOTE, NODE_CHOICE_NOTE, ImportResult, Verdict
from schedd.cli.importing.sched_fair_share import FAIR_SHARE_PARTS, translate_fair_share
from schedd.cli.importing.sched_options import SchedConfig, SchedOption, parse_options
from schedd.cli.importing.sched_order import SORTS, translate_by_queue, translate_sort_keys
from schedd.cli.importing.sched_times import (
    translate_dedicated_prefix,
    translate_dedicated_times,
    translate_holidays,
    translate_prime_option,
    translate_prime_prefix,
)
from schedd.policy.expressions import FormulaError, parse_formula
from schedd.policy.recurrence import Recurrence
from schedd.policy.site_tables import VARIABLE_TABLES
from schedd.wire.resources import SORT_PRIORITY

Half = Literal["prime", "non_prime"]
_Handler = Callable[[SchedOption, SchedConfig], None]
_FAIR_SHARE = 800_000_000.0  # fair share comes before the sort keys
_REPEATED = SORTS | {"node_sort_key", "ignore_queue", "server_dyn_res", "peer_queue"}
_ALWAYS_COUNTED = {"ncpus": "cpus", "mem": "memory"}
"""Resources that schedd always counts; OpenPBS counts them only if the option resources names them."""
_KNOWN_RESOURCES = frozenset(
    {"ncpus", "mem", "vmem", "arch", "host", "vnode", "ngpus", "walltime", "netwins", "aoe", "eoe"}
)


def import_sched_config(
    text: str, companions: Mapping[str, str], now: datetime | None = None, zone: str = "UTC"
) -> ImportResult:
    """Return the settings equivalent to a sched_config, with a finding for each of its options.

    ``companions`` has the texts of the companion files by their names; ``now`` is the present local time in
    ``zone``, for dedicated times.
    """
    now = now or datetime.now()  # noqa: DTZ005  (on the wall clock)
    done = ImportResult()
    said = list(parse_options(text, done))
    source, others = _translate_half("prime", said, done, companions, now, zone)
    if others:
        _translate_other_time(said, others, source)
    done.findings.sort(key=lambda finding: (finding.file, finding.line))
    return done


def _translate_half(
    half: Half,
    said: list[SchedOption],
    done: ImportResult,
    companions: Mapping[str, str],
    now: datetime,
    zone: str,
) -> tuple[SchedConfig, list[SchedOption]]:
    """Translate the options that apply in prime or in non-prime time. Return them, and the options with
    another value in the other time.
    """
    prime_time = has_prime_time(companions.get("holidays", ""))
    options, others = _select_half(half, said, prime_time, done)
    source = SchedConfig(options, companions, now, zone, done)
    translate_by_queue(source)
    share = source.get("fair_share") or SchedOption(0, "fair_share", "false", "all")
    translate_fair_share(share, source, _FAIR_SHARE)
    if not share.line:
        done.findings = [one for one in done.findings if (one.setting, one.line) != ("fair_share", 0)]
    translate_sort_keys(source)
    for option in options:
        if option.name in SORTS or option.name in ("by_queue", "sort_queues", "fair_share"):
            continue
        _HANDLERS.get(option.name, _unknown)(option, source)
    translate_dedicated_times(source)
    prefixed = any(option.name.endswith("primetime_prefix") for option in options)
    translate_holidays(source, bool(others) or prefixed or source.on("backfill_prime"))
    _note_server_settings(source)
    return source, others


def _select_half(
    half: Half, said: list[SchedOption], prime_time: bool, done: ImportResult
) -> tuple[list[SchedOption], list[SchedOption]]:
    """Return the options that apply in one time, and those with another value in the other time."""
    kept: list[SchedOption] = []
    others: list[SchedOption] = []
    for option in said:
        if option.prime == "none":
            done.note(Verdict.NOT_NEEDED, option.line, option.name, "it never applies (none)")
            continue
        if option.prime in ("all", half):
            later = next(
                (one for one in reversed(said) if one.name == option.name and one.prime in ("all", half)),
                option,
            )
            if option.name in _REPEATED or later is option:
                kept.append(option)
            else:
                message = f"line {later.line} sets it again, and counts"
                done.note(Verdict.NOT_NEEDED, option.line, option.name, message)
            continue
        same = [one for one in said if one.name == option.name and one.prime in ("all", half)]
        if any(one.value.lower() == option.value.lower() for one in same):
            message = f"the same as in prime time, line {same[-1].line}"
            done.note(Verdict.NOT_NEEDED, option.line, option.name, message)
        elif not prime_time:
            message = "the file holidays has no non-prime time: the options for prime time always apply"
            done.note(Verdict.NOT_NEEDED, option.line, option.name, message)
        else:
            others.append(option)
    return kept, others


def _translate_other_time(said: list[SchedOption], others: list[SchedOption], source: SchedConfig) -> None:
    """Translate the options for non-prime time to a period with its own tables of the policy."""
    done = source.done
    other = ImportResult()
    _translate_half("non_prime", said, other, source.companions, source.now, source.zone)
    differ = {
        name for name in done.site.keys() | other.site.keys() if done.site.get(name) != other.site.get(name)
    }
    if "fair_share" in differ and not (done.site.get("fair_share") and other.site.get("fair_share")):
        # Use must be recorded at all times; the weight decides when it counts.
        done.site["fair_share"] = done.site.get("fair_share") or other.site["fair_share"]
        differ.discard("fair_share")
    fixed = sorted(differ.difference(VARIABLE_TABLES))
    tables = {name: other.site[name] for name in VARIABLE_TABLES if name in differ and name in other.site}
    windows, unread = [], ""
    try:
        times = read_prime_time(source.companions.get("holidays", ""))
        windows = [
            Recurrence(**{**one, "without": tuple(one.get("without", ()))}, zone=source.zone).text
            for one in times.windows(prime=False, today=source.now.date())
        ]
    except ValueError as error:
        unread = str(error)
    if tables and windows:
        done.table("periods")["sets"] = {"non_prime": {"windows": windows, "tables": tables}}
        done.site["zone"] = source.zone
    for option in others:
        found = [one for one in other.findings if one.line == option.line and not one.file]
        for one in found:
            verdict, message = one.verdict, f"in non-prime time: {one.message}"
            if unread:
                verdict, message = Verdict.BLOCKER, f"the options for prime time would always apply: {unread}"
            elif verdict is Verdict.TRANSLATED and fixed:
                verdict = Verdict.BLOCKER
                message = (
                    f"{', '.join(fixed)} cannot differ in non-prime time: the options for prime time "
                    "always apply"
                )
            done.note(verdict, option.line, option.name, message)


# ---- single options -----------------------------------------------------------------------------


def _note_handler(verdict: Verdict, message: str) -> _Handler:
    """Return a handler that adds this finding if the option is on."""

    def handler(option: SchedOption, source: SchedConfig) -> None:
        off = option.off and verdict is not Verdict.NOT_NEEDED
        source.done.note(
            Verdict.NOT_NEEDED if off else verdict, option.line, option.name, "it is off" if off else message
        )

    return handler


def _strict(option: SchedOption, source: SchedConfig) -> None:
    if option.on:
        message = "jobs are planned in order; later ones fill gaps if they delay no other job"
    else:
        message = (
            "pbs_sched starts every job that fits now. In schedd, a later job starts earlier only if its "
            "walltime ends before the planned starts of others: users who request far too much time wait "
            "longer, and large jobs do not starve"
        )
    source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def _preemption(option: SchedOption, source: SchedConfig) -> None:
    if option.off:
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "it is off")
        source.done.preempts = False
        return
    source.done.preempts = True
    levels = source.get("preempt_prio")
    special = levels is not None and set(levels.value.replace(",", " ").split()) - {
        "express_queue",
        "normal_jobs",
    }
    if special or source.get("preempt_queue_prio") is not None:
        message = (
            "running jobs are preempted only if the table preemption selects them: name the express queues "
            "in its preemptors and the others in its targets; with --server this import finds them by "
            "their Priority"
        )
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        message = (
            "this is the default, and preempts only for queues with a Priority of at least "
            "preempt_queue_prio (150), or by preempt_prio on the server: see `qmgr -c 'print server'` and "
            "`qmgr -c 'list sched'`. If there are such queues, name them in the preemptors of the table "
            "preemption; otherwise nothing changes"
        )
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def _preempt_prio(option: SchedOption, source: SchedConfig) -> None:
    if set(option.value.replace(",", " ").split()) <= {"express_queue", "normal_jobs"}:
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "see preemptive_sched")
    elif source.on("preemptive_sched"):
        message = (
            "schedd has no preemption levels: name the jobs to preempt in targets and scavengers of the "
            "table preemption (docs/administrators/preemption.md)"
        )
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
    else:
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "preemptive_sched is off")


def _preempt_order(option: SchedOption, source: SchedConfig) -> None:
    methods, left = parse_preempt_order(option.value)
    if not source.on("preemptive_sched"):
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "preemptive_sched is off")
        return
    if not methods:
        message = "preemption never deletes a job: it suspends, checkpoints or requeues jobs"
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
        return
    source.done.table("preemption")["methods"] = methods
    message = f"preemption.methods = {', '.join(methods)}"
    if left:
        source.done.note(Verdict.DIFFERS, option.line, option.name, f"{message}; {left}")
    else:
        source.done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _preempt_queue_prio(option: SchedOption, source: SchedConfig) -> None:
    if option.value.isdecimal():
        source.done.express_priority = int(option.value)
    _preempting(option, source)


def _preempting(option: SchedOption, source: SchedConfig) -> None:
    if source.on("preemptive_sched"):
        message = "running jobs are preempted only if the table preemption selects them: see preemptive_sched"
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)
    else:
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "preemptive_sched is off")


def _resources(option: SchedOption, source: SchedConfig) -> None:
    names = [name.strip() for name in option.value.split(",") if name.strip()]
    own = [name for name in names if name not in _KNOWN_RESOURCES]
    more = [message for name, message in _ALWAYS_COUNTED.items() if name not in names]
    said = []
    if more:
        said.append(
            f"{' and '.join(more)}: not in the list, so that PBS does not count it; in schedd, jobs "
            "wait for it"
        )
    if own:
        said.append(
            f"{', '.join(own)}: counted on nodes that have it, and as a total that the server or a "
            "limit defines"
        )
    said.append(
        "schedd also obeys requests for resources that are not in the list: such a job waits for nodes "
        "with the resource, while PBS starts it anywhere"
    )
    source.done.note(Verdict.DIFFERS, option.line, option.name, "; ".join(said))


def _dynamic(option: SchedOption, source: SchedConfig) -> None:
    """Translate ``server_dyn_res: "matlab !/opt/bin/matlab_free ARGUMENT"``, a program that prints the free
    amount.
    """
    name, _, program = option.value.partition("!")
    try:
        command = shlex.split(program)
    except ValueError:
        command = []
    if not command or not name.strip() or name.strip() in _KNOWN_RESOURCES:
        message = f"{option.value}: not understood, or a resource of nodes: schedd would not count it"
        source.done.note(Verdict.BLOCKER, option.line, option.name, message)
        return
    source.done.table("licences")[name.strip()] = {"command": command, "free": True}
    message = "a licence; the daemon runs the program every minute, as its own user instead of root"
    source.done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _check_fair_share_part(option: SchedOption, source: SchedConfig) -> None:
    if not source.on("fair_share"):
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "fair share is off")


def _nodes_distributed(option: SchedOption, source: SchedConfig) -> None:
    """Translate ``smp_cluster_dist``: pack, round_robin or lowest_load."""
    value = option.value.lower()
    if value == "pack":
        source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "node_choice packs nodes by default")
        return
    if value not in ("round_robin", "lowest_load"):
        message = f"not translated: {value} is not pack, round_robin or lowest_load; {NODE_CHOICE_NOTE}"
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)
        return
    source.done.table("node_choice")["arrange"] = "spread"
    message = (
        'node_choice.arrange = "spread": of the nodes that allow the same start, those with the most free '
        "cpus"
    )
    source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def _nodes_sorted(option: SchedOption, source: SchedConfig) -> None:
    """Translate ``node_sort_key: "ncpus HIGH unused"``: a resource, HIGH or LOW, and total, assigned or
    unused.
    """
    found, done = _node_order(option), source.done
    if isinstance(found, str):
        source.done.note(Verdict.DIFFERS, option.line, option.name, f"not translated: {found}")
        return
    name, value = found
    # Points come before the arrangement, which applies only to nodes with equal points.
    arranged = any(
        one.setting == option.name and "node_choice.arrange" in one.message for one in done.findings
    )
    first = done.site.get("node_choice", {}).get(name, value)
    if name == "expression" and not arranged and first.lstrip("-") in _SMALL_TERMS and first != value:
        done.table("node_choice")[name] = f"{first} * 1e10 + {value}"
        message = "added to node_choice.expression: it decides among nodes with equal values of the first key"
        source.done.note(Verdict.TRANSLATED, option.line, option.name, message)
        return
    if first != value or (name == "expression" and arranged):
        message = "only the first of these keys is translated; write node_choice.expression for several"
        source.done.note(Verdict.DIFFERS, option.line, option.name, message)
        return
    done.table("node_choice")[name] = value
    message = f'node_choice.{name} = "{value}"; it decides only among nodes that allow the same start'
    source.done.note(Verdict.TRANSLATED, option.line, option.name, message)


def _node_order(option: SchedOption) -> tuple[str, str] | str:
    """Return a setting of node_choice with its value, or a text that says why there is none."""
    words = option.value.split()
    if option.name != "node_sort_key" or not 2 <= len(words) <= _SORT_WORDS:
        wanted = "a key is a resource, then HIGH or LOW, then total, assigned or unused"
        return f"{wanted}; {NODE_CHOICE_NOTE}" if option.name == "node_sort_key" else NODE_CHOICE_NOTE
    resource, direction = words[0], words[1].upper()
    amount = words[2].lower() if len(words) == _SORT_WORDS else "total"
    if direction not in ("HIGH", "LOW"):
        return f"{words[1]} is neither HIGH nor LOW"
    if amount not in ("total", "assigned", "unused"):
        return f"{words[2]} is not total, assigned or unused"
    if resource == SORT_PRIORITY:
        amount = "total"  # jobs do not use up a priority
    if amount == "total":
        term = {"ncpus": "cpus", "ngpus": "gpus"}.get(resource, resource)
        text = term if direction == "HIGH" else f"-{term}"
        try:
            parse_formula(text)
        except FormulaError:
            return f"{resource} cannot be a term of node_choice.expression"
        return "expression", text
    fullest = (amount, direction) in (("unused", "LOW"), ("assigned", "HIGH"))
    if resource == "ncpus":
        return "arrange", "pack" if fullest else "spread"
    if resource == "mem" and (amount, direction) == ("unused", "LOW"):
        return "arrange", "least_memory"
    return (
        f"schedd has no order by {resource} {amount} {direction}: node_choice.arrange can use free cpus, "
        "or the least free memory"
    )


def _provisioning(option: SchedOption, source: SchedConfig) -> None:
    message = "schedd does not provision nodes: jobs that request an aoe run only on nodes that have it"
    source.done.note(Verdict.DIFFERS, option.line, option.name, message)


def _jobs_looked_at(option: SchedOption, source: SchedConfig) -> None:
    source.done.note(Verdict.NOT_NEEDED, option.line, option.name, "all jobs are planned")


def _unknown(option: SchedOption, source: SchedConfig) -> None:
    source.done.note_undocumented(option.line, option.name, "pbs_sched")


def _note_server_settings(source: SchedConfig) -> None:
    """Add a finding about the scheduler's settings on the server, which the file does not have."""
    if source.openpbs:
        message = (
            "some settings are only on the server: see `qmgr -c 'list sched'` for job_sort_formula, "
            "preempt_*, backfill_depth"
        )
        source.done.note(Verdict.DIFFERS, 0, "qmgr", message)


_PEERS = (
    "schedd does not pull jobs from other servers: a federation distributes them "
    "(docs/administrators/federation.md)"
)
_PROMISED = "every job has a planned start, and a promise that bounds its wait"
_SETS = "set by of [clusters.NAME.site.node_sets] to the server's node_group_key"
_SORT_WORDS = 3
_SMALL_TERMS = frozenset({SORT_PRIORITY, "cpus", "gpus"})
"""Terms of node_choice.expression with small values, which leave digits for a second key."""
_LOCAL = "only in NASA's own builds of PBS"
_HANDLERS: Mapping[str, _Handler] = {
    **dict.fromkeys(FAIR_SHARE_PARTS, _check_fair_share_part),
    "strict_fifo": _strict,
    "strict_ordering": _strict,
    "round_robin": _note_handler(
        Verdict.BLOCKER, "queues do not take turns: jobs are ordered by priority, then by age"
    ),
    "help_starving_jobs": _note_handler(Verdict.NOT_NEEDED, _PROMISED),
    "max_starve": _note_handler(Verdict.NOT_NEEDED, _PROMISED),
    "backfill": _note_handler(Verdict.NOT_NEEDED, "gaps are always filled"),
    "opt_backfill_fuzzy": _note_handler(Verdict.NOT_NEEDED, "gaps are always filled"),
    "opt_backfill_fuzzy_time": _note_handler(Verdict.NOT_NEEDED, "gaps are always filled"),
    "log_filter": _note_handler(Verdict.NOT_NEEDED, "see [log]"),
    "logs": _note_handler(Verdict.NOT_NEEDED, "see [log]"),
    "sync_time": _note_handler(Verdict.NOT_NEEDED, "schedd stores usage with every checkpoint"),
    "update_comments": _note_handler(Verdict.NOT_NEEDED, "see the adapter's settings tell and comment"),
    "max_jobs_to_check": _jobs_looked_at,
    "max_job_check": _jobs_looked_at,
    "dedicated_prefix": translate_dedicated_prefix,
    "primetime_prefix": translate_prime_prefix,
    "nonprimetime_prefix": translate_prime_prefix,
    "backfill_prime": translate_prime_option,
    "prime_spill": translate_prime_option,
    "prime_exempt_anytime_queues": translate_prime_option,
    "resources": _resources,
    "resource_unset_infinite": _note_handler(
        Verdict.BLOCKER,
        "in schedd, a node without a value of a resource has none of it; that is so for all resources",
    ),
    "ignore_queue": _note_handler(
        Verdict.BLOCKER, "schedd would start jobs of this queue: stop the queue on the server"
    ),
    "preemptive_sched": _preemption,
    "preempt_prio": _preempt_prio,
    "preempt_queue_prio": _preempt_queue_prio,
    "preempt_order": _preempt_order,
    "preempt_sort": _preempting,
    "preempt_checkpoint": _preempting,
    "preempt_suspend": _preempting,
    "preempt_requeue": _preempting,
    "preempt_attempts": _preempting,
    "susp_threshold": _preempting,
    "preempt_starving": _preempting,
    "preempt_fairshare": _preempting,
    "dont_preempt_starving": _preempting,
    **dict.fromkeys(
        ("assign_ssinodes", "cpus_per_ssinode", "mem_per_ssinode"),
        _note_handler(
            Verdict.NOT_NEEDED, "PBS no longer reads it: it was for machines with a single memory image"
        ),
    ),
    "job_sort_formula": _note_handler(
        Verdict.BLOCKER,
        "PBS reads it from the server, not from this file: set it with qmgr, or write formula.expression",
    ),
    "peer_queue": _note_handler(Verdict.BLOCKER, _PEERS),
    "peer_translation": _note_handler(Verdict.BLOCKER, _PEERS),
    "server_dyn_res": _dynamic,
    "mom_resources": _note_handler(
        Verdict.BLOCKER, "schedd does not ask moms for amounts of resources, and would not count this one"
    ),
    "load_balancing": _note_handler(Verdict.DIFFERS, LOAD_NOTE),
    "load_balancing_rr": _note_handler(Verdict.DIFFERS, LOAD_NOTE),
    "smp_cluster_dist": _nodes_distributed,
    "node_sort_key": _nodes_sorted,
    "sort_nodes": _nodes_sorted,
    "node_group_key": _note_handler(
        Verdict.NOT_NEEDED, "PBS reads it from the server, not from this file: see node_sets"
    ),
    "provision_policy": _provisioning,
    "allow_aoe_calendar": _provisioning,
    "do_not_span_psets": _note_handler(Verdict.BLOCKER, f"{_SETS}, with strict = true"),
    "only_explicit_psets": _note_handler(Verdict.BLOCKER, f"{_SETS}; nodes without a value form no set"),
    "throughput_mode": _note_handler(Verdict.NOT_NEEDED, "jobs are started without waiting for each other"),
    "resv_confirm_ignore": _note_handler(
        Verdict.DIFFERS, "reservations of pbs_rsub are confirmed only on vnodes that are free in the plan"
    ),
    **dict.fromkeys(
        (
            "max_borrow",
            "shares_track_only",
            "per_share_depth",
            "per_share_topjobs",
            "per_queues_topjobs",
            "min_interrupted_cycle_length",
            "max_cons_interrupted_cycles",
        ),
        _note_handler(Verdict.BLOCKER, _LOCAL),
    ),
}
