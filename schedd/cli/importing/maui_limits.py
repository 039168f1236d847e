"""Throttling policies of Maui, and other attributes in the CFG lines of users, groups, accounts, queues and
QOS.
"""

from typing import Any

from schedd.cli.importing.maui_entries import OWNERS, MauiEntry
from schedd.cli.importing.maui_flags import FLAG_NAMES, NO_PREEMPTION, NO_PREEMPTOR, translate_flags
from schedd.cli.importing.maui_partitions import is_queue_partition
from schedd.cli.importing.maui_qos import MEMBERS
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
_AS_ASKED = "the full request of a job counts until the job ends, not the remaining part of it"
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
"""Bounds of each job in Maui, with the server's names of the resources."""
_ACL = "let the server do it: qmgr -c 'set queue QUEUE acl_{0}_enable = true', and name them in acl_{0}s"
_ATTRIBUTES: dict[str, tuple[Verdict, str]] = {
    "HOSTLIST": (
        Verdict.BLOCKER,
        (
            "jobs of the queue would run on any node: give those nodes a property, and set the queue's "
            "resources_default.neednodes to it; schedd obeys that"
        ),
    ),
    "REQUIREDUSERLIST": (Verdict.BLOCKER, f"schedd does not keep users out of queues; {_ACL.format('user')}"),
    "EXCLUDEDUSERLIST": (
        Verdict.BLOCKER,
        f"schedd does not keep users out of queues; {_ACL.format('user')}, each with a minus sign in front",
    ),
    "MEMBERULIST": (
        Verdict.BLOCKER,
        "only accounts with a budget keep other users out: `schedd account set NAME 20000 --users USERS`",
    ),
    "REQUIREDGROUPLIST": (
        Verdict.BLOCKER,
        f"schedd does not keep groups out of queues; {_ACL.format('group')}",
    ),
    "EXCLUDEDGROUPLIST": (
        Verdict.BLOCKER,
        f"schedd does not keep groups out of queues; {_ACL.format('group')}",
    ),
    "EXCLUDEUSERLIST": (
        Verdict.BLOCKER,
        f"schedd does not keep users out of queues; {_ACL.format('user')}, each with a minus sign in front",
    ),
    "REQUIREDACCOUNTLIST": (Verdict.BLOCKER, "schedd does not keep accounts out of queues"),
    "EXCLUDEDACCOUNTLIST": (Verdict.BLOCKER, "schedd does not keep accounts out of queues"),
    "REQUIREDCLASSLIST": (
        Verdict.BLOCKER,
        "schedd does not restrict users to queues: use acl_users of the server's queues",
    ),
    "ALIST": (Verdict.BLOCKER, "schedd does not restrict users to accounts"),
    "ADEF": (
        Verdict.BLOCKER,
        "jobs without an account get one only from accounts.otherwise, the same for all",
    ),
    "FSWEIGHT": (Verdict.BLOCKER, "schedd has one set of weights for all jobs"),
    "QTWEIGHT": (Verdict.BLOCKER, "schedd has one set of weights for all jobs"),
    "XFWEIGHT": (Verdict.BLOCKER, "schedd has one set of weights for all jobs"),
    "QTTARGET": (Verdict.BLOCKER, "schedd has no target queue times"),
    "XFTARGET": (Verdict.BLOCKER, "schedd has no target expansion factors"),
    "FSCAP": (Verdict.BLOCKER, 'write a hard bound on use in [[limits]], with counts = "used"'),
    "OVERRUN": (
        Verdict.DIFFERS,
        "pbs_server or the mom ends jobs, not schedd, and end_allowance is the same for all queues",
    ),
    "WCOVERRUN": (
        Verdict.DIFFERS,
        "pbs_server or the mom ends jobs, not schedd, and end_allowance is the same for all queues",
    ),
    "NAPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "NODEACCESSPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "FORCENODEACCESSPOLICY": (Verdict.BLOCKER, "set naccesspolicy in the queue's resources_default"),
    "HOLD": (Verdict.BLOCKER, "hold the queue: `schedd hold -q QUEUE --reason TEXT`"),
    "TRIGGER": (Verdict.DIFFERS, NO_TRIGGER),
    "CHARGERATE": (
        Verdict.DIFFERS,
        "not translated: see charge_queues of fair_share",
    ),
    "COMMENT": (Verdict.NOT_NEEDED, "only a remark"),
    "EMAILADDRESS": (Verdict.NOT_NEEDED, "only mail"),
    "ENABLEPROFILING": (Verdict.NOT_NEEDED, "statistics are always kept"),
    "MANAGERS": (Verdict.DIFFERS, "name them in operators of [auth]; they are operators of all queues"),
}


def translate_credential(entry: MauiEntry, done: ImportResult, *, preempts: bool) -> None:
    """Translate the attributes of a user, group, account or queue, or of all of them.

    ``preempts``: the file lets some jobs preempt others.
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
        message = f"cannot be read: {entry.rest[:40]!r}" if entry.rest else "it has no attribute"
        done.note(Verdict.BLOCKER if entry.rest else Verdict.NOT_NEEDED, entry.line, entry.setting, message)
    for name, index, value in entry.attributes():
        setting = f"{entry.setting} {name}{f'[{index}]' if index else ''}"
        each = _EACH.get(index.partition(":")[0])
        ending = next((one for one in _PER if name.endswith(one)), "") if not index else ""
        if ending and name.removesuffix(ending) in _AMOUNTS | _ELIGIBLE:
            name, each = name.removesuffix(ending), _PER[ending]
        if name in ("QDEF", "QLIST") and entry.name == "QOSCFG":
            done.note_undocumented(entry.line, setting, "Maui")
        elif name in ("QDEF", "QLIST") or (name in ("PRIORITY", MEMBERS) and entry.name == "QOSCFG"):
            pass  # with the table qos
        elif name == "FSTARGET" and entry.name == "QOSCFG":
            done.note(Verdict.BLOCKER, entry.line, setting, "fair share has no level for QOS")
        elif name in ("PRIORITY", "FSTARGET") and entry.name == "SYSCFG":
            done.note(
                Verdict.NOT_NEEDED, entry.line, setting, "the same for all jobs, so that it changes no order"
            )
        elif name in ("PRIORITY", "FSTARGET"):
            pass  # with the weights, and with fair share
        elif name not in _AMOUNTS and name not in _ELIGIBLE:
            _translate_attribute(entry, name, setting, value, done, preempts=preempts)
        elif entry.name == "CLASSCFG" and every:
            message = (
                "schedd has no limit for each queue separately: set it on the server's queues, or write a "
                "limit for each queue"
            )
            done.note(Verdict.BLOCKER, entry.line, setting, message)
        elif index and each is None:
            done.note(
                Verdict.BLOCKER, entry.line, setting, f"limits with the index {index} are not supported"
            )
        elif each is not None and "name" in where and each != who:
            message = (
                f"not translated: schedd has no limit for each {each} within one {who}; similar are a "
                f"limit for the {who}, and one for each {each} in a queue, QOS or partition"
            )
            done.note(Verdict.BLOCKER, entry.line, setting, message)
        else:
            what = _AMOUNTS.get(name) or _ELIGIBLE[name]
            counted = {**where, **_named(index)}
            counted |= {"counts": "eligible"} if name in _ELIGIBLE else {}
            _translate_limit(entry, setting, value, what, each or who, counted, done)


def _named(index: str) -> dict[str, str]:
    """Return the owner that a limit with an index such as ``USER:ann`` names; empty: each owner has the
    limit.
    """
    name = index.partition(":")[2]
    return {"name": name} if name else {}


def translate_charge(value: str, line: int, setting: str, table: dict[str, Any], done: ImportResult) -> None:
    """Translate the factor of the costs of a QOS's or a partition's jobs."""
    try:
        charge = number(value)
    except ValueError:
        charge = -1.0
    if not 0 <= charge <= _MAX_CHARGE:
        message = f"{value!r} is not a factor from 0 to {_MAX_CHARGE:g}: these jobs cost as much as others"
        done.note(Verdict.BLOCKER, line, setting, message)
        return
    table["charge"] = charge
    done.note(Verdict.TRANSLATED, line, setting, f"charge = {charge:g}, a factor of the cost of its jobs")


def translate_partition_limit(
    entry: MauiEntry, name: str, index: str, setting: str, value: str, done: ImportResult
) -> bool:
    """Translate a limit on the jobs of a partition. Return whether it is one."""
    if name not in _AMOUNTS and name not in _ELIGIBLE:
        return False
    each = _EACH.get(index.partition(":")[0], "all")
    if index and each == "all":
        done.note(Verdict.BLOCKER, entry.line, setting, f"limits with the index {index} are not supported")
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
        done.note(Verdict.NOT_NEEDED, entry.line, setting, "no limit")
        return
    try:
        amount = duration(hard or soft) if what == "walltime" else int(hard or soft)
    except ValueError:
        done.note(
            Verdict.BLOCKER, entry.line, setting, f"{value!r} is not a number: the limit does not apply"
        )
        return
    if amount < 0:
        done.note(
            Verdict.BLOCKER, entry.line, setting, f"{value!r} is not a valid amount: the limit does not apply"
        )
        return
    if what == "mem":
        amount <<= 10  # Maui counts megabytes
    if amount > _MOST:
        done.note(Verdict.NOT_NEEDED, entry.line, setting, "no limit: it is larger than any cluster")
        return
    lower = _soft_amount(soft, what) if hard and soft != hard and "counts" not in where else None
    more = {"soft": lower} if lower is not None and lower < amount else {}
    done.limit(amount=amount, what=what, who=who, **where, **more)
    as_asked = f"; {_AS_ASKED}" if what in ("cpu_seconds", "walltime") else ""
    if "counts" in where and hard and soft != hard:
        message = f"the hard limit of waiting jobs, {hard}, is set; Maui ignores the soft one"
        done.note(Verdict.TRANSLATED, entry.line, setting, message)
    elif "counts" in where:
        done.note(Verdict.TRANSLATED, entry.line, setting, f"a limit of {amount} {what} of waiting jobs")
    elif as_asked:
        done.note(Verdict.DIFFERS, entry.line, setting, _AS_ASKED)
    else:
        beyond = f"; jobs beyond {lower} are planned after all others" if more else ""
        done.note(Verdict.TRANSLATED, entry.line, setting, f"a limit of {amount} {what}{beyond}")


def _soft_amount(text: str, what: str) -> int | None:
    """Return a soft limit; None if it is not a number."""
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
        done.note(Verdict.NOT_NEEDED, entry.line, setting, "it is empty")
    elif name in FLAG_NAMES:
        translate_flags(entry, setting, value, done, preempts=preempts)
    elif ("PREEMPT" in value.upper() or "PREEMPT" in name) and not preempts:
        done.note(Verdict.NOT_NEEDED, entry.line, setting, NO_PREEMPTOR)
    elif "PREEMPT" in value.upper() or "PREEMPT" in name:
        done.note(Verdict.BLOCKER, entry.line, setting, NO_PREEMPTION)
    elif name in ("PLIST", "PDEF") and entry.name == "QOSCFG":
        message = "a QOS cannot have a list of partitions: write lists for users, groups, accounts or queues"
        done.note(Verdict.BLOCKER, entry.line, setting, f"{message} in partitions.defaults")
    elif name in ("PLIST", "PDEF") or is_queue_partition(entry, name):
        pass  # with the partitions
    elif name.startswith(("MAX.", "MIN.", "DEFAULT.", "REQ.", "REQUIRED.", "EXCL.")):
        _translate_job_limit(entry, name, setting, value, done)
    elif name == "CHARGERATE" and entry.name == "QOSCFG":
        translate_charge(value, entry.line, setting, done.table("qos")["levels"][entry.index], done)
    elif name in _ATTRIBUTES:
        done.note(_ATTRIBUTES[name][0], entry.line, setting, _ATTRIBUTES[name][1])
    elif name.startswith(("MAX", "MIN", "OMAX", "OMIN")):
        done.note(Verdict.BLOCKER, entry.line, setting, "schedd has no such limit")
    else:
        done.note_undocumented(entry.line, setting, "Maui")


def _translate_job_limit(entry: MauiEntry, name: str, setting: str, value: str, done: ImportResult) -> None:
    """Add findings for the bounds and the defaults of the requests of a queue's jobs."""
    kind, _, what = name.partition(".")
    queue = entry.index if entry.name == "CLASSCFG" else "QUEUE"
    if what in ("FEATURES", "FEATURE") and kind != "EXCL":
        properties = ":".join(part for part in value.replace("[", "").replace("]", "").split(",") if part)
        message = (
            f"jobs of the queue would run on any node: qmgr -c 'set queue {queue} "
            f"resources_default.neednodes = {properties}'; schedd obeys that"
        )
        done.note(Verdict.BLOCKER, entry.line, setting, message)
    elif kind in ("MAX", "MIN", "DEFAULT") and what in _SERVER_RESOURCES:
        resource = {"PROC": "procs", "NODE": "nodes"}.get(what) if kind == "DEFAULT" else None
        message = (
            f"the server enforces it, and this import does not set it: qmgr -c 'set queue {queue} "
            f"resources_{kind.lower()}.{resource or _SERVER_RESOURCES[what]} = {value}'"
        )
        done.note(Verdict.DIFFERS, entry.line, setting, message)
    else:
        done.note(
            Verdict.BLOCKER, entry.line, setting, "neither the server nor schedd can add it to requests"
        )
