"""Throttling policies of Maui: what USERCFG, GROUPCFG, ACCOUNTCFG, CLASSCFG and SYSCFG limit."""

from schedd.cli.importing.maui_entries import OWNERS, Entry
from schedd.cli.importing.result import Imported, Verdict, duration

__all__ = ["credential"]

_AMOUNTS = {
    "MAXJOB": "jobs",
    "MAXPROC": "cpus",
    "MAXNODE": "nodes",
    "MAXMEM": "mem",
    "MAXPS": "cpu_seconds",
    "MAXWC": "walltime",
}
_AS_ASKED = "what jobs asked for counts until they end, not what is left of it"
_EACH = {"USER": "user", "GROUP": "group", "ACCOUNT": "account"}


def credential(entry: Entry, done: Imported) -> None:
    """Limits and more of a user, group, account, queue, or of all."""
    every = entry.index.upper() in ("", "DEFAULT")
    who = OWNERS.get(entry.name, "all")
    where: dict[str, str] = {}
    if entry.name == "CLASSCFG":
        where = {"queue": entry.index}
    elif who != "all" and not every:
        where = {"name": entry.index}
    for name, index, value in entry.attributes():
        setting = f"{entry.setting} {name}{f'[{index}]' if index else ''}"
        each = _EACH.get(index)
        if name.endswith("PERUSER") and not index:
            name, each = name.removesuffix("PERUSER"), "user"
        if name in ("PRIORITY", "FSTARGET"):
            continue
        if name not in _AMOUNTS:
            done.note(
                *_no_limit(entry, name, value),
            )
            continue
        if entry.name == "CLASSCFG" and every:
            words = "a limit of each queue by itself: set it on the server's queues, or one by one"
            done.note(Verdict.BLOCKER, entry.line, setting, words)
            continue
        if index and each is None:
            done.note(Verdict.BLOCKER, entry.line, setting, f"limits by {index} are not supported")
            continue
        _limit(entry, setting, value, _AMOUNTS[name], each or who, where, done)


def _limit(
    entry: Entry, setting: str, value: str, what: str, who: str, where: dict[str, str], done: Imported
) -> None:
    soft, _, hard = value.partition(",")
    try:
        amount = duration(hard or soft) if what == "walltime" else int(hard or soft)
    except ValueError:
        done.note(Verdict.BLOCKER, entry.line, setting, f"{value!r} is no number: the limit is not kept")
        return
    if what == "mem":
        amount <<= 10  # Maui counts megabytes
    done.limit(amount=amount, what=what, who=who, **where)
    differs = [f"only the hard limit, {hard}, is kept"] if hard else []
    if what in ("cpu_seconds", "walltime"):
        differs.append(_AS_ASKED)
    if differs:
        done.note(Verdict.DIFFERS, entry.line, setting, "; ".join(differs))
    else:
        done.note(Verdict.TRANSLATED, entry.line, setting, f"a limit of {amount} {what}")


def _no_limit(entry: Entry, name: str, value: str) -> tuple[Verdict, int, str, str]:
    setting = f"{entry.setting} {name}"
    if "PREEMPT" in value.upper():
        return Verdict.BLOCKER, entry.line, setting, "running jobs are never stopped for others"
    if name.startswith("MAXI"):
        words = "how many jobs may wait is the server's affair: max_queuable, max_user_queuable"
        return Verdict.DIFFERS, entry.line, setting, words
    if name.startswith(("MAX.", "MIN.", "DEFAULT.")):
        words = "the server's affair: resources_max, resources_min, resources_default of the queue"
        return Verdict.DIFFERS, entry.line, setting, words
    if name in ("QLIST", "QDEF"):
        return Verdict.BLOCKER, entry.line, setting, "there is no quality of service"
    if name in ("PLIST", "PDEF"):
        return Verdict.BLOCKER, entry.line, setting, "there are no partitions: use properties of nodes"
    if name.startswith("MAX"):
        return Verdict.BLOCKER, entry.line, setting, "there is no such limit"
    return Verdict.DIFFERS, entry.line, setting, "not known here, passed over"
