"""Throttling policies of Maui, and what else the CFG lines of users, groups, accounts, queues and QOS say."""

from typing import Any

from schedd.cli.importing.maui_entries import OWNERS, MauiEntry
from schedd.cli.importing.maui_flags import FLAG_NAMES, NO_PREEMPTION, NO_PREEMPTOR, translate_flags
from schedd.cli.importing.result import NO_TRIGGER, ImportResult, Verdict, duration, number

CREDENTIALS = frozenset({*OWNERS, "CLASSCFG", "QOSCFG", "SYSCFG"})
_AMOUNTS = {
    "MAXJOB": "jobs",
    "MAXPROC": "cpus",
    "MAXNODE": "nodes",
    "MAXMEM": "mem",
    "MAXPS": "cpu_seconds",
    "MAXWC": "walltime",
}
_MOST = 1 << 48  # the largest amount of a limit in schedd.toml
_MAX_CHARGE = 1e6
_AS_ASKED = "the full request of a job counts until it ends, not the remaining part"
_EACH = {"USER": "user", "GROUP": "group", "ACCOUNT": "account"}
_PER = {f"PER{kind}": each for kind, each in _EACH.items()}
"""Old endings of limits, ``MAXJOBPERUSER``."""
_ELIGIBLE = {"MAXIJOB": "jobs", "MAXIPROC": "cpus", "MAXINODE": "nodes"}
"""Bounds of the waiting jobs that are considered."""
_SERVER_RESOURCES = {
    "WCLIMIT": "walltime",
    "CPUTIME": "cput",
    "PROC": "procct",
    "NODE": "nodect",
    "MEM": "mem",
}
"""What Maui bounds of each job, by the server's name for it."""
_ACL = "the server can do it: qmgr -c 'set queue QUEUE acl_{0}_enable = true', and name them in acl_{0}s"
_ATTRIBUTES: dict[str, tuple[Verdict, str]] = {
    "HOSTLIST": (
        Verdict.BLOCKER,
        (
            "jobs of the queue would go to any node: give those nodes a property, and set the queue's "
            "resources_default.neednodes to it, which is followed"
        ),
    ),
    "REQUIREDUSERLIST": (Verdict.BLOCKER, f"users are not kept out of queues here; {_ACL.format('user')}"),
    "EXCLUDEDUSERLIST": (
        Verdict.BLOCKER,
        f"users are not kept out of queues here; {_ACL.format('user')}, with a minus before each",
    ),
    "REQUIREDGROUPLIST": (Verdict.BLOCKER, f"groups are not kept out of queues here; {_ACL.format('group')}"),
    "EXCLUDEDGROUPLIST": (Verdict.BLOCKER, f"groups are not kept out of queues here; {_ACL.format('group')}"),
    "REQUIREDACCOUNTLIST": (Verdict.BLOCKER, "accounts are not kept out of queues"),
    "EXCLUDEDACCOUNTLIST": (Verdict.BLOCKER, "accounts are not kept out of queues"),
    "REQUIREDCLASSLIST": (Verdict.BLOCKER, "users are not bound to queues; the server's acl_users can do it"),
    "ALIST": (Verdict.BLOCKER, "users are not bound to accounts"),
    "ADEF": (
        Verdict.BLOCKER,
        "only the table accounts has an account for jobs without one, the same for all: accounts.otherwise",
    ),
    "FSWEIGHT": (Verdict.BLOCKER, "weights are the same for all"),
    "QTWEIGHT": (Verdict.BLOCKER, "weights are the same for all"),
    "XFWEIGHT": (Verdict.BLOCKER, "weights are the same for all"),
    "QTTARGET": (Verdict.BLOCKER, "there are no targets of waiting"),
    "XFTARGET": (Verdict.BLOCKER, "there are no targets of the expansion factor"),
    "FSCAP": (Verdict.BLOCKER, 'a hard bound of use is a limit with counts = "used": write it as [[limits]]'),
    "OVERRUN": (Verdict.DIFFERS, "it is pbs_server or the mom that ends a job, for all queues alike"),
    "WCOVERRUN": (Verdict.DIFFERS, "it is pbs_server or the mom that ends a job, for all queues alike"),
    "NAPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "NODEACCESSPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "FORCENODEACCESSPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "HOLD": (Verdict.BLOCKER, "hold the queue: `schedd hold -q QUEUE --reason TEXT`"),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    "CHARGERATE": (
        Verdict.DIFFERS,
        "charges are not taken over: see charge_queues of fair_share",
    ),
    "COMMENT": (Verdict.NO_MATTER, "only a remark"),
    "EMAILADDRESS": (Verdict.NO_MATTER, "only mail"),
    "ENABLEPROFILING": (Verdict.NO_MATTER, "statistics are always kept"),
    "MANAGERS": (Verdict.DIFFERS, "name them in operators of [auth], for all queues"),
}


def translate_credential(entry: MauiEntry, done: ImportResult, *, preempts: bool) -> None:
    """Limits and more of a user, group, account, queue, or of all.

    ``preempts``: somewhere in the file jobs are allowed to preempt others.
    """
    every = entry.index.upper() in ("", "DEFAULT", "ALL", "BASE")
    who = OWNERS.get(entry.name, "all")
    where: dict[str, str] = {}
    if entry.name == "CLASSCFG":
        where = {"queue": entry.index}
    elif entry.name == "QOSCFG":
        where = {"qos": entry.index}
        every = False
    elif who != "all" and not every:
        where = {"name": entry.index}
    if entry.rest or not entry.value:
        message = f"cannot be read: {entry.rest[:40]!r}" if entry.rest else "says nothing"
        done.note(Verdict.BLOCKER if entry.rest else Verdict.NO_MATTER, entry.line, entry.setting, message)
    for name, index, value in entry.attributes():
        setting = f"{entry.setting} {name}{f'[{index}]' if index else ''}"
        each = _EACH.get(index.partition(":")[0])
        ending = next((one for one in _PER if name.endswith(one)), "") if not index else ""
        if ending and name.removesuffix(ending) in _AMOUNTS | _ELIGIBLE:
            name, each = name.removesuffix(ending), _PER[ending]
        if name in ("QDEF", "QLIST") and entry.name == "QOSCFG":
            done.strange(entry.line, setting, "Maui")
        elif name in ("QDEF", "QLIST") or (name == "PRIORITY" and entry.name == "QOSCFG"):
            pass  # with the table qos
        elif name == "FSTARGET" and entry.name == "QOSCFG":
            done.note(Verdict.BLOCKER, entry.line, setting, "no level of fair share is a QOS")
        elif name in ("PRIORITY", "FSTARGET") and entry.name == "SYSCFG":
            done.note(Verdict.NO_MATTER, entry.line, setting, "the same for all jobs")
        elif name in ("PRIORITY", "FSTARGET"):
            pass  # with the weights, and with fair share
        elif name not in _AMOUNTS and name not in _ELIGIBLE:
            _translate_attribute(entry, name, setting, value, done, preempts=preempts)
        elif entry.name == "CLASSCFG" and every:
            message = "a limit of each queue by itself: set it on the server's queues, or one by one"
            done.note(Verdict.BLOCKER, entry.line, setting, message)
        elif index and each is None:
            done.note(Verdict.BLOCKER, entry.line, setting, f"limits by {index} are not supported")
        elif each is not None and "name" in where and each != who:
            message = (
                f"not taken over: there is no limit of each {each} within one {who}; the nearest are one of "
                f"the {who}, and one of each {each} in a queue, QOS or partition"
            )
            done.note(Verdict.BLOCKER, entry.line, setting, message)
        else:
            what = _AMOUNTS.get(name) or _ELIGIBLE[name]
            counted = {**where, **_named(index)}
            counted |= {"counts": "eligible"} if name in _ELIGIBLE else {}
            _translate_limit(entry, setting, value, what, each or who, counted, done)


def _named(index: str) -> dict[str, str]:
    """Return for whom a limit with the index ``USER:ann`` is; empty: for each one."""
    name = index.partition(":")[2]
    return {"name": name} if name else {}


def translate_charge(value: str, line: int, setting: str, table: dict[str, Any], done: ImportResult) -> None:
    """Translate the factor of the costs of a QOS's or a partition's jobs."""
    try:
        charge = number(value)
    except ValueError:
        charge = -1.0
    if not 0 <= charge <= _MAX_CHARGE:
        message = f"{value!r} is no factor from 0 to {_MAX_CHARGE:g}: jobs cost as much as others"
        done.note(Verdict.BLOCKER, line, setting, message)
        return
    table["charge"] = charge
    done.note(Verdict.TRANSLATED, line, setting, f"charge = {charge:g}, a factor of the costs of its jobs")


def translate_partition_limit(
    entry: MauiEntry, name: str, index: str, setting: str, value: str, done: ImportResult
) -> bool:
    """Translate a limit on the jobs of a partition. Return whether it is one."""
    if name not in _AMOUNTS and name not in _ELIGIBLE:
        return False
    each = _EACH.get(index.partition(":")[0], "all")
    if index and each == "all":
        done.note(Verdict.BLOCKER, entry.line, setting, f"limits by {index} are not supported")
        return True
    where = {"partition": entry.index, **_named(index)}
    if name in _ELIGIBLE:
        where["counts"] = "eligible"
    _translate_limit(entry, setting, value, _AMOUNTS.get(name) or _ELIGIBLE[name], each, where, done)
    return True


def _translate_limit(
    entry: MauiEntry, setting: str, value: str, what: str, who: str, where: dict[str, str], done: ImportResult
) -> None:
    soft, _, hard = value.partition(",")
    if (hard or soft).upper() in ("NONE", "INFINITY", "UNLIMITED", "-1"):
        done.note(Verdict.NO_MATTER, entry.line, setting, "no limit")
        return
    try:
        amount = duration(hard or soft) if what == "walltime" else int(hard or soft)
    except ValueError:
        done.note(Verdict.BLOCKER, entry.line, setting, f"{value!r} is no number: the limit is not kept")
        return
    if amount < 0:
        done.note(Verdict.BLOCKER, entry.line, setting, f"{value!r} is no amount: the limit is not kept")
        return
    if what == "mem":
        amount <<= 10  # Maui counts megabytes
    if amount > _MOST:
        done.note(Verdict.NO_MATTER, entry.line, setting, "no limit: it is more than any cluster has")
        return
    lower = _soft_amount(soft, what) if hard and soft != hard and "counts" not in where else None
    more = {"soft": lower} if lower is not None and lower < amount else {}
    done.limit(amount=amount, what=what, who=who, **where, **more)
    as_asked = f"; {_AS_ASKED}" if what in ("cpu_seconds", "walltime") else ""
    if "counts" in where and hard and soft != hard:
        message = f"the hard limit, {hard}, of waiting jobs is set; Maui ignores the soft one"
        done.note(Verdict.TRANSLATED, entry.line, setting, message)
    elif "counts" in where:
        done.note(Verdict.TRANSLATED, entry.line, setting, f"a limit of {amount} {what} of waiting jobs")
    elif as_asked:
        done.note(Verdict.DIFFERS, entry.line, setting, _AS_ASKED)
    else:
        beyond = f", beyond {lower} after all other jobs" if more else ""
        done.note(Verdict.TRANSLATED, entry.line, setting, f"a limit of {amount} {what}{beyond}")


def _soft_amount(text: str, what: str) -> int | None:
    """A soft limit; None if it is no number."""
    try:
        amount = duration(text) if what == "walltime" else int(text)
    except ValueError:
        return None
    if amount < 0:
        return None
    return amount << 10 if what == "mem" else amount


def _translate_attribute(
    entry: MauiEntry, name: str, setting: str, value: str, done: ImportResult, *, preempts: bool
) -> None:
    if not value and name not in ("REQUIREDUSERLIST", "HOSTLIST"):
        done.note(Verdict.NO_MATTER, entry.line, setting, "it is empty")
    elif name in FLAG_NAMES:
        translate_flags(entry, setting, value, done, preempts=preempts)
    elif ("PREEMPT" in value.upper() or "PREEMPT" in name) and not preempts:
        done.note(Verdict.NO_MATTER, entry.line, setting, NO_PREEMPTOR)
    elif "PREEMPT" in value.upper() or "PREEMPT" in name:
        done.note(Verdict.BLOCKER, entry.line, setting, NO_PREEMPTION)
    elif name in ("PLIST", "PDEF") and entry.name == "QOSCFG":
        message = "no list of partitions is of a QOS: name them for users, groups, accounts or queues"
        done.note(Verdict.BLOCKER, entry.line, setting, f"{message} in partitions.defaults")
    elif name in ("PLIST", "PDEF"):
        pass  # with the partitions
    elif name.startswith(("MAX.", "MIN.", "DEFAULT.", "REQ.", "REQUIRED.", "EXCL.")):
        _translate_job_limit(entry, name, setting, value, done)
    elif name == "CHARGERATE" and entry.name == "QOSCFG":
        translate_charge(value, entry.line, setting, done.table("qos")["levels"][entry.index], done)
    elif name in _ATTRIBUTES:
        done.note(_ATTRIBUTES[name][0], entry.line, setting, _ATTRIBUTES[name][1])
    elif name.startswith(("MAX", "MIN", "OMAX", "OMIN")):
        done.note(Verdict.BLOCKER, entry.line, setting, "there is no such limit")
    else:
        done.strange(entry.line, setting, "Maui")


def _translate_job_limit(entry: MauiEntry, name: str, setting: str, value: str, done: ImportResult) -> None:
    """What each job of a queue may ask for, or gets where it asks for nothing."""
    kind, _, what = name.partition(".")
    queue = entry.index if entry.name == "CLASSCFG" else "QUEUE"
    if what in ("FEATURES", "FEATURE") and kind != "EXCL":
        properties = ":".join(part for part in value.replace("[", "").replace("]", "").split(",") if part)
        message = (
            f"jobs of the queue would go to any node: qmgr -c 'set queue {queue} "
            f"resources_default.neednodes = {properties}', which is followed"
        )
        done.note(Verdict.BLOCKER, entry.line, setting, message)
    elif kind in ("MAX", "MIN", "DEFAULT") and what in _SERVER_RESOURCES:
        resource = {"PROC": "procs", "NODE": "nodes"}.get(what) if kind == "DEFAULT" else None
        message = (
            f"the server's affair, and not set by this import: qmgr -c 'set queue {queue} "
            f"resources_{kind.lower()}.{resource or _SERVER_RESOURCES[what]} = {value}'"
        )
        done.note(Verdict.DIFFERS, entry.line, setting, message)
    else:
        done.note(Verdict.BLOCKER, entry.line, setting, "neither the server nor schedd adds it to jobs")
