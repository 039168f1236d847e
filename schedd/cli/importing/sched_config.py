"""The sched_config of pbs_sched in terms of schedd.toml: TORQUE's, and that of OpenPBS and PBS Professional.

Names and meanings are those of the comments in the files themselves and of the PBS Professional
Administrator's Guide, "Scheduling". Beside the file stand others that say the rest: resource_group (who has
which share), holidays (prime time) and dedicated_time.
"""

import shlex
from collections.abc import Callable, Mapping

from schedd.cli.importing.result import Imported, Verdict
from schedd.cli.importing.sched_fair_share import FAIR_SHARE_PARTS, fair_share
from schedd.cli.importing.sched_options import Option, options_of

__all__ = ["import_sched_config"]

_FIRST, _SECOND, _THIRD = 1_000_000, 1000, 1
"""Keys of a sort come one after another: each outweighs those that follow, for values within its reach."""
_SORTS = {  # TORQUE's sort_by: (term, sign), or None for none
    "no_sort": None,
    "shortest_job_first": ("short", 1),
    "short_walltime_first": ("short", 1),
    "large_walltime_first": ("short", -1),
    "longest_job_first": ("short", -1),
    "high_priority_first": ("wish", 1),
    "low_priority_first": ("wish", -1),
    "fair_share": ("fair_share", 1),
}
_KEYS = {  # OpenPBS's job_sort_key: (term, sign when HIGH goes first)
    "ncpus": ("size", 1),
    "walltime": ("short", -1),
    "job_priority": ("wish", 1),
    "fair_share_perc": ("fair_share", 1),
    "fairshare_perc": ("fair_share", 1),
}
_KNOWN_RESOURCES = frozenset(
    {"ncpus", "mem", "vmem", "arch", "host", "vnode", "ngpus", "walltime", "netwins"}
)
_HOOKS = frozenset({"aoe", "eoe"})
_SETS = "name the server's node_group_key as by in [clusters.NAME.site.node_sets]"
_OTHERWISE = {
    "do_not_span_psets": f"{_SETS}; strict = true is the same",
    "only_explicit_psets": f"{_SETS}; nodes without a value make no set",
    "allow_aoe_calendar": "nodes are not provisioned",
    "throughput_mode": "jobs are started without waiting for each other",
}
_NOT_NEEDED = {
    "log_filter": "see [log]",
    "sync_time": "usage is kept with every checkpoint",
    "logs": "see [log]",
    "help_starving_jobs": "every job has a planned start, and a promise that bounds it",
    "max_starve": "every job has a planned start, and a promise that bounds it",
    "strict_fifo": "jobs are planned in order; later ones only fill gaps and delay nobody",
    "strict_ordering": "jobs are planned in order; later ones only fill gaps and delay nobody",
    "backfill": "gaps are always filled",
    "opt_backfill_fuzzy": "gaps are always filled",
    "max_jobs_to_check": "all jobs are planned",
    "prime_exempt_anytime_queues": "prime time is not followed",
}


def import_sched_config(text: str, beside: Mapping[str, str]) -> Imported:
    """The settings that say the same as a sched_config, as far as there are such.

    ``beside`` has the texts of the files that stand in the same directory, by their names.
    """
    done = Imported()
    options = list(options_of(text, done))
    prime_time = _prime_time(beside.get("holidays", ""))
    _differing(options, prime_time, done)
    seen: set[str] = set()
    sort: list[Option] = []
    for option in options:
        again = option.name in seen and option.name not in _REPEATED
        seen.add(option.name)
        if again:
            continue  # the other half of the day: said by _differing
        if option.name in ("sort_by", "key", "job_sort_key"):
            sort.append(option)
        elif option.name in _NOT_NEEDED:
            done.note(Verdict.NOT_NEEDED, option.line, option.name, _NOT_NEEDED[option.name])
        else:
            _HANDLERS.get(option.name, _unknown)(option, options, beside, done)
    _sorting(sort, done)
    if any(
        name in seen for name in ("job_sort_key", "fairshare_entity", "preemptive_sched", "strict_ordering")
    ):
        words = (
            "look for job_sort_formula and preempt_* with `qmgr -c 'list sched'`: these are not in the file"
        )
        done.note(Verdict.DIFFERS, 0, "qmgr", words)
    done.findings.sort(key=lambda finding: finding.line)
    return done


def _differing(options: list[Option], prime_time: bool, done: Imported) -> None:
    """Options with one value for prime time and another for the rest."""
    values: dict[str, dict[str, Option]] = {}
    for option in options:
        values.setdefault(option.name, {}).setdefault(option.prime, option)
    for name, by in values.items():
        if name in _REPEATED or len({option.value.lower() for option in by.values()}) < 2:
            continue
        line = max(option.line for option in by.values())
        if prime_time:
            words = "prime time is not supported: what the file says first holds all day"
            done.note(Verdict.BLOCKER, line, f"{name} prime/non_prime", words)
        else:
            words = "there is no prime time in holidays: what the file says first holds"
            done.note(Verdict.DIFFERS, line, f"{name} prime/non_prime", words)


def _prime_time(holidays: str) -> bool:
    """Whether the file holidays tells prime time from other time on any day: ``weekday 0600 1730``."""
    for line in holidays.splitlines():
        words = line.split("#")[0].split("*")[0].lower().split()
        if len(words) >= 3 and words[0] in _DAYS and {words[1], words[2]} != {"all", "none"}:
            return True
    return False


_DAYS = ("weekday", "saturday", "sunday", "monday", "tuesday", "wednesday", "thursday", "friday")
_REPEATED = frozenset(
    {"sort_by", "key", "job_sort_key", "node_sort_key", "ignore_queue", "server_dyn_res", "peer_queue"}
)


# ---- the order of jobs --------------------------------------------------------------------------


def _sorting(sort: list[Option], done: Imported) -> None:
    keys = [option for option in sort if not (option.name == "sort_by" and option.value == "multi_sort")]
    weights = iter((_FIRST, _SECOND, _THIRD))
    half = "all"
    for option in keys:
        if option.prime != "all" and half not in ("all", option.prime):
            done.note(
                Verdict.DIFFERS, option.line, _sort_name(option), "of the other half of the day: left out"
            )
            continue
        half = option.prime if option.prime != "all" else half
        try:
            key = _key(option)
        except KeyError:
            done.note(Verdict.DIFFERS, option.line, _sort_name(option), "jobs cannot be ordered by that")
            continue
        if key is None:
            done.note(Verdict.NOT_NEEDED, option.line, _sort_name(option), "equal jobs keep their order")
            continue
        term, sign = key
        weight = next(weights, None)
        if weight is None:
            done.note(Verdict.DIFFERS, option.line, _sort_name(option), "only three keys are taken over")
            continue
        if term == "fair_share" and "fair_share" not in done.site:
            done.note(Verdict.DIFFERS, option.line, _sort_name(option), "left out: fair_share is off")
            continue
        points = done.table("priority").setdefault(term, sign * weight)
        done.note(Verdict.TRANSLATED, option.line, _sort_name(option), f"priority.{term} = {points}")


def _sort_name(option: Option) -> str:
    return f"{option.name} {option.value}"


def _key(option: Option) -> tuple[str, int] | None:
    """The term and its sign; None where nothing is sorted. Raises KeyError for what is no term."""
    if option.name != "job_sort_key":
        return _SORTS[option.value.lower()]
    name, _, direction = option.value.partition(" ")
    term, sign = _KEYS[name.lower()]
    return term, {"HIGH": sign, "LOW": -sign}[direction.strip().upper()]


_Handler = Callable[[Option, list[Option], Mapping[str, str], Imported], None]


# ---- all else -----------------------------------------------------------------------------------


def _by_queue(option: Option, options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    sorted_queues = next((other.on for other in options if other.name == "sort_queues"), True)
    if option.on and sorted_queues:
        done.table("priority")["queue"] = _QUEUES
        words = f"priority.queue = {_QUEUES}: jobs of a queue of higher priority go first"
        done.note(Verdict.TRANSLATED, option.line, option.name, words)
    else:
        done.table("priority")["queue"] = 0
        words = "queues are not told apart: priority.queue = 0"
        done.note(Verdict.TRANSLATED, option.line, option.name, words)


def _sort_queues(option: Option, options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    if any(other.name == "by_queue" for other in options):
        done.note(Verdict.TRANSLATED, option.line, option.name, "with by_queue")
    else:
        _by_queue(option, options, {}, done)


def _round_robin(option: Option, _options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    if option.on:
        words = "queues do not take turns: jobs go by priority, then by age"
        done.note(Verdict.DIFFERS, option.line, option.name, words)
    else:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "it is off")


def _dedicated(option: Option, _options: list[Option], beside: Mapping[str, str], done: Imported) -> None:
    times = [line for line in beside.get("dedicated_time", "").splitlines() if line.split("#")[0].strip()]
    if times:
        words = "dedicated time is not supported, and dedicated_time has some: queues that "
        words += f"begin with {option.value} would run at any time, and others in it; make reservations"
        done.note(Verdict.BLOCKER, option.line, option.name, words)
    else:
        words = (
            f"dedicated_time has no entry: stop the queues that begin with {option.value}, if there are any"
        )
        done.note(Verdict.DIFFERS, option.line, option.name, words)


def _prime_queues(option: Option, _options: list[Option], beside: Mapping[str, str], done: Imported) -> None:
    if _prime_time(beside.get("holidays", "")):
        words = (
            f"prime time is not supported: queues {option.value}*, if there are any, would run at any time"
        )
        done.note(Verdict.BLOCKER, option.line, option.name, words)
    else:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "there is no prime time in holidays")


def _across_prime(option: Option, _options: list[Option], beside: Mapping[str, str], done: Imported) -> None:
    if option.on and _prime_time(beside.get("holidays", "")):
        words = "prime time is not supported: jobs would run across its edges"
        done.note(Verdict.BLOCKER, option.line, option.name, words)
    else:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "it is off, or there is no prime time")


def _blocked(words: str) -> _Handler:
    """A handler of what stands in the way when it is on."""

    def handler(option: Option, _o: list[Option], _b: Mapping[str, str], done: Imported) -> None:
        off = option.value.lower() in ("false", "no", "0", "f", "n")
        note = "it is off" if off else words
        done.note(Verdict.NOT_NEEDED if off else Verdict.BLOCKER, option.line, option.name, note)

    return handler


def _differs(words: str) -> _Handler:
    """A handler of what has another effect here when it is on."""

    def handler(option: Option, _o: list[Option], _b: Mapping[str, str], done: Imported) -> None:
        off = option.value.lower() in ("false", "no", "0", "f", "n")
        note = "it is off" if off else words
        done.note(Verdict.NOT_NEEDED if off else Verdict.DIFFERS, option.line, option.name, note)

    return handler


def _resources(option: Option, _options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    names = [name.strip() for name in option.value.split(",") if name.strip()]
    own = [name for name in names if name not in _KNOWN_RESOURCES | _HOOKS]
    if own:
        words = f"{', '.join(own)}: counted on nodes that have it; a resource of the server is not counted"
        done.note(Verdict.DIFFERS, option.line, option.name, words)
    else:
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "these are planned anyway")


def _dynamic(option: Option, _options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    """``server_dyn_res: "matlab !/opt/bin/matlab_free ARGUMENT"``: a program that says how much is free."""
    name, _, program = option.value.partition("!")
    try:
        command = shlex.split(program)
    except ValueError:
        command = []
    if not command or not name.strip() or name.strip() in _KNOWN_RESOURCES:
        words = f"{option.value}: not understood, or what nodes have: it would not be counted"
        done.note(Verdict.BLOCKER, option.line, option.name, words)
        return
    done.table("licences")[name.strip()] = {"command": command, "free": True}
    done.note(Verdict.TRANSLATED, option.line, option.name, f"licences.{name.strip()}, asked every minute")


def _of_fair_share(option: Option, options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    if not any(other.name == "fair_share" and other.on for other in options):
        done.note(Verdict.NOT_NEEDED, option.line, option.name, "fair share is off")


def _unknown(option: Option, _options: list[Option], _beside: Mapping[str, str], done: Imported) -> None:
    words = _OTHERWISE.get(option.name, "not known here, passed over")
    done.note(Verdict.DIFFERS, option.line, option.name, words)


_QUEUES = 100_000_000
"""And queues go before all else."""

_PREEMPTION = "running jobs are never stopped for others: an express queue goes first, but waits for room"

_HANDLERS: Mapping[str, _Handler] = {
    "fair_share": fair_share,
    **dict.fromkeys(FAIR_SHARE_PARTS, _of_fair_share),
    "by_queue": _by_queue,
    "sort_queues": _sort_queues,
    "round_robin": _round_robin,
    "dedicated_prefix": _dedicated,
    "primetime_prefix": _prime_queues,
    "nonprimetime_prefix": _prime_queues,
    "backfill_prime": _across_prime,
    "prime_spill": _across_prime,
    "resources": _resources,
    "ignore_queue": _blocked("jobs of this queue would be started: stop the queue on the server"),
    "preemptive_sched": _blocked(_PREEMPTION),
    "preempt_prio": _blocked(_PREEMPTION),
    "preempt_order": _blocked(_PREEMPTION),
    "preempt_queue_prio": _blocked(_PREEMPTION),
    "preempt_sort": _blocked(_PREEMPTION),
    "preempt_checkpoint": _blocked(_PREEMPTION),
    "preempt_suspend": _blocked(_PREEMPTION),
    "preempt_requeue": _blocked(_PREEMPTION),
    "job_sort_formula": _blocked("formulas are not supported: see docs/policy.md for the terms there are"),
    "peer_queue": _blocked("jobs are not taken from other servers"),
    "server_dyn_res": _dynamic,
    "mom_resources": _blocked("moms are not asked for amounts of resources: it would not be counted"),
    "load_balancing": _differs("the load of nodes is not followed: what was asked for is counted"),
    "load_balancing_rr": _differs("the load of nodes is not followed: what was asked for is counted"),
    "smp_cluster_dist": _differs("nodes are chosen for the earliest start"),
    "node_sort_key": _differs("nodes are chosen for the earliest start"),
    "provision_policy": _differs("nodes are not provisioned; without such requests nothing changes"),
}
