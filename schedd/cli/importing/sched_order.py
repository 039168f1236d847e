"""The order of jobs under pbs_sched: by queue, fair share, and sort keys.

Each outweighs those that follow, as in a sort by several keys: the maximum of a term times its weight is less
than one step of the term before. Weights go up to 10^9, which is enough for three keys.
"""

from schedd.cli.importing.result import Verdict
from schedd.cli.importing.sched_fair_share import fair_share_level, parse_shares
from schedd.cli.importing.sched_options import SchedConfig, SchedOption

SORTS = frozenset({"sort_by", "key", "job_sort_key"})  # the options that sort jobs
_QUEUES = 1_000_000_000
_LEVELS = (800_000_000.0, 390_000.0, 190.0)
"""Points of a key between its minimum and its maximum; one step of the first is more than all of the second.
"""
_REACH = {"short": 1.0, "wish": 2048.0, "size": 1000.0, "class": 100.0, "fair_share": 1.0}
"""Largest expected value of each term. With more cpus, the order by this term is kept, but may override the
key before it.
"""
_SORTS = {  # TORQUE's sort_by: (term, sign); None: no order
    "no_sort": None,
    "short_walltime_first": ("short", 1),
    "large_walltime_first": ("short", -1),
    "high_priority_first": ("wish", 1),
    "low_priority_first": ("wish", -1),
    "fair_share": ("class", 1),
}
_KEYS = {  # OpenPBS's job_sort_key: (term, sign if HIGH comes first)
    "ncpus": ("size", 1),
    "walltime": ("short", -1),
    "job_priority": ("wish", 1),
    "sort_priority": ("wish", 1),
    "fair_share_perc": ("class", 1),
    "fairshare_perc": ("class", 1),
}
_NO_WEIGHT = "the table priority has no weight for {}: write a formula (docs/administrators/formula.md)"
_BY_CPUT = frozenset({"shortest_job_first", "longest_job_first"})
_CPUT = (
    "pbs_sched sorts by requested cput (-l cput), not by walltime. schedd keeps the order of arrival, as "
    "pbs_sched does for jobs without cput. For short walltimes first, give priority.short a weight, and "
    "also priority.waiting, so that long jobs do not starve"
)


def key_weights(source: SchedConfig) -> list[float]:
    """Return the weights of the sort keys, without that of fair share, which comes before them."""
    return list(_LEVELS[1:] if source.on("fair_share") else _LEVELS)


def translate_by_queue(source: SchedConfig) -> None:
    """Translate by_queue and sort_queues: whether the server's priorities of queues come first."""
    done, option, sort = source.done, source.get("by_queue"), source.get("sort_queues")
    if source.on("strict_fifo") and not source.openpbs:
        queue, message = 0, "strict_fifo takes precedence: queues do not change the order"
    elif option is None or not option.on:
        queue, message = 0, "queues do not change the order: priority.queue = 0"
    elif not source.openpbs and (sort is None or not sort.on):
        queue = 0
        message = (
            "sort_queues is off: in PBS queues come in the server's order, in schedd they do not change "
            "the order:"
        )
        message += "give queues a Priority on the server, and give priority.queue a weight"
    else:
        queue = _QUEUES
        message = f"priority.queue = {_QUEUES}: jobs of a queue with a higher Priority come first"
    done.table("priority")["queue"] = queue
    verdict = Verdict.BLOCKER if "server's order" in message else Verdict.TRANSLATED
    if option is None:
        done.note(verdict, 0, "by_queue", message)
    else:
        done.note(verdict, option.line, option.name, message)
    if sort is not None:
        done.note(Verdict.NOT_NEEDED if source.openpbs else verdict, sort.line, sort.name, "see by_queue")


def translate_sort_keys(source: SchedConfig) -> None:
    """Translate the sort keys to weights of terms."""
    done = source.done
    sort_by = source.get("sort_by")
    multi = sort_by is not None and sort_by.value.lower() == "multi_sort"
    free = key_weights(source)
    for option in source.options:
        if option.name not in SORTS:
            continue
        name = f"{option.name} {option.value}"
        if multi and option is sort_by:
            done.note(Verdict.TRANSLATED, option.line, name, "the keys that follow")
        elif option.name == "key" and not multi:
            done.note(Verdict.NOT_NEEDED, option.line, name, "it has an effect only with sort_by: multi_sort")
        elif source.on("fair_share") and not source.openpbs:
            done.note(
                Verdict.NOT_NEEDED,
                option.line,
                name,
                "fair_share is on, and decides the order without the sort keys",
            )
        elif option.value.lower() in _BY_CPUT:
            done.note(Verdict.DIFFERS, option.line, name, _CPUT)
        else:
            _translate_key(option, name, source, free)


def _translate_key(option: SchedOption, name: str, source: SchedConfig, free: list[float]) -> None:
    done = source.done
    try:
        key = _term(option)
    except KeyError:
        done.note(Verdict.BLOCKER, option.line, name, _NO_WEIGHT.format(option.value.split()[0]))
        return
    if key is None:
        done.note(Verdict.NOT_NEEDED, option.line, name, "equal jobs keep their order")
        return
    term, sign = key
    if term in done.table("priority"):
        done.note(Verdict.NOT_NEEDED, option.line, name, f"an earlier key already set priority.{term}")
        return
    if not free:
        message = "not translated: only three keys are possible, including fair share"
        done.note(Verdict.BLOCKER, option.line, name, message)
        return
    if term == "class" and not _fixed_shares(source):
        message = "resource_group has no entries: all users have the same shares"
        done.note(Verdict.NOT_NEEDED, option.line, name, message)
        return
    points = sign * free.pop(0) / _REACH[term]
    done.table("priority")[term] = points
    message = f"priority.{term} = {points:.10g}"
    if term == "class":
        message += (
            ", with a class for each share in resource_group: the order is by the share, regardless of use"
        )
    elif term == "short":
        message += "; others delay a job only within its promise (slack)"
    done.note(Verdict.TRANSLATED, option.line, name, message)


def _term(option: SchedOption) -> tuple[str, int] | None:
    """Return the term and its sign; None for no order. Raises KeyError for an unsupported key."""
    if option.name != "job_sort_key":
        return _SORTS[option.value.lower()]
    name, _, direction = option.value.partition(" ")
    term, sign = _KEYS[name.lower()]
    return term, {"HIGH": sign, "LOW": -sign}[direction.strip().upper()]


def _fixed_shares(source: SchedConfig) -> bool:
    """Write a class for each owner of shares; return whether there are any."""
    level, shares = fair_share_level(source), parse_shares(source.companions.get("resource_group", ""))
    for name, (_, _, part) in shares.leaves.items():
        source.done.table("classes")[f"share-{name}"] = {"points": round(part, 4), f"{level}s": [name]}
    return bool(shares.leaves)
