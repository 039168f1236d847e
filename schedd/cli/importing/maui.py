"""Maui's maui.cfg in terms of schedd.toml.

Names and meanings follow the Maui Administrator's Guide, appendix F (parameters), 5.1 (priorities), 6.2
(throttling policies) and 6.3 (fair share).
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date

from schedd.cli.importing.maui_entries import OWNERS, Entry, entries_of
from schedd.cli.importing.maui_limits import credential
from schedd.cli.importing.maui_node_sets import NODE_SETS, node_sets
from schedd.cli.importing.maui_reservations import standing
from schedd.cli.importing.result import Imported, Verdict, duration

__all__ = ["import_maui"]

_PARTS = {  # sub-component: its component
    "QUEUETIMEWEIGHT": "SERVICEWEIGHT",
    "PROCWEIGHT": "RESWEIGHT",
    "CLASSWEIGHT": "CREDWEIGHT",
    "USERWEIGHT": "CREDWEIGHT",
    "GROUPWEIGHT": "CREDWEIGHT",
    "ACCOUNTWEIGHT": "CREDWEIGHT",
    "FSUSERWEIGHT": "FSWEIGHT",
    "FSGROUPWEIGHT": "FSWEIGHT",
    "FSACCOUNTWEIGHT": "FSWEIGHT",
    "FSCLASSWEIGHT": "FSWEIGHT",
}
_COMPONENTS = frozenset(_PARTS.values())
_SHARES = {
    "FSUSERWEIGHT": "user",
    "FSGROUPWEIGHT": "group",
    "FSACCOUNTWEIGHT": "account",
    "FSCLASSWEIGHT": "queue",
}
_OTHER_WEIGHTS = re.compile(r"\w*(WEIGHT|CAP)$")
_FAIR = frozenset({"FSPOLICY", "FSINTERVAL", "FSDEPTH", "FSDECAY"})
_DEFAULT_WEIGHTS = {"QUEUETIMEWEIGHT": 1.0, **dict.fromkeys(_COMPONENTS, 1.0)}
_NOT_NEEDED = {
    "BACKFILLPOLICY": "every job is planned, gaps are always filled",
    "BACKFILLDEPTH": "all jobs are planned",
    "BACKFILLMETRIC": "gaps are filled in the order of priority",
    "BFPRIORITYPOLICY": "gaps are filled in the order of priority",
    "RESERVATIONPOLICY": "every job has a planned start, not only the first ones",
    "RESERVATIONDEPTH": "every job has a planned start, not only the first ones",
    "RESDEPTH": "there is no such bound",
    "JOBAGGREGATIONTIME": "events that come together are handled together",
    "ENABLEMULTINODEJOBS": "jobs may have several nodes",
    "ENABLEMULTIREQJOBS": "requests of several parts are planned",
    "DEFERTIME": "a refused start waits longer each time; see refusal_wait",
    "DEFERCOUNT": "see returns_most",
    "DEFERSTARTCOUNT": "see returns_most",
    "NODEPOLLFREQUENCY": "the adapter hears of nodes from the server",
    "RMPOLLINTERVAL": "the adapter hears of changes from the server",
    "RMCFG": "the adapter speaks with pbs_server; see docs/operations.md",
    "RMSERVER": "the adapter speaks with pbs_server; see docs/operations.md",
    "RMTYPE": "the adapter speaks with pbs_server; see docs/operations.md",
    "SERVERHOST": "see [server]",
    "SERVERPORT": "see [server]",
    "SERVERMODE": "see mode in [clusters.NAME]: NORMAL is scheduler, TEST and SIMULATION are shadow",
    "ADMINHOST": "see [auth]",
    "ADMIN1": "name them in admins of [auth]",
    "ADMIN2": "name them in operators of [auth]",
    "ADMIN3": "name them in operators of [auth]",
    "ADMIN4": "see [auth]",
    "AMCFG": "allocations are not managed here",
    "LOGFILE": "see [log]",
    "LOGDIR": "see [log]",
    "LOGLEVEL": "see [log]",
    "LOGFACILITY": "see [log]",
    "LOGFILEMAXSIZE": "logs go to the journal",
    "LOGFILEROLLDEPTH": "logs go to the journal",
    "STATDIR": "see [store]",
    "CHECKPOINTFILE": "see [store]",
    "CHECKPOINTINTERVAL": "see [store]",
    "CHECKPOINTEXPIRATIONTIME": "see [store]",
    "TOOLSDIR": "there are no such tools",
    "UMASK": "the systemd unit sets it",
}
_BY_REQUEST = "what jobs asked for counts, not the load of nodes"
_BY_SERVER = "the server's affair: resources_max of server and queues"
_OTHERWISE = {
    "NODEMAXLOAD": _BY_REQUEST,
    "NODELOADPOLICY": _BY_REQUEST,
    "NODEAVAILABILITYPOLICY": _BY_REQUEST,
    "ENFORCERESOURCELIMITS": "the mom ends jobs that use more than they asked for ($enforce, cgroups)",
    "RESOURCELIMITPOLICY": "the mom ends jobs that use more than they asked for ($enforce, cgroups)",
    "USEMACHINESPEED": "see speeds in [clusters.NAME.site]: they count in fair share, not in walltimes",
    "SYSTEMMAXPROCPERJOB": _BY_SERVER,
    "SYSTEMMAXPROCSECONDPERJOB": _BY_SERVER,
    "SYSTEMMAXJOBWALLTIME": _BY_SERVER,
    "JOBPRIOACCRUALPOLICY": "waiting counts from when the server says that a job became eligible (etime)",
    "MAXJOB": "there is no bound on the jobs that are planned",
    "MAXJOBQUEUEDPERUSERPOLICY": "the server's affair: max_user_queuable",
    "MAXJOBQUEUEDPERUSERCOUNT": "the server's affair: max_user_queuable",
    "RESERVATIONQOSLIST": "every job has a planned start, of whatever class",
}
_PREEMPTION = frozenset({"PREEMPTPOLICY", "PREEMPTIONPOLICY", "PREEMPTPRIOJOBSELECTWEIGHT"})


def import_maui(text: str, today: date, zone: str = "UTC") -> Imported:
    """The settings that say the same as a maui.cfg, as far as there are such.

    Windows of reservations begin in the week of ``today``; times in the file are those of ``zone``.
    """
    done = Imported()
    entries = list(entries_of(text, done))
    weights = _weights(entries, done)
    _translate_weights(weights, entries, done)
    _fair_share(weights, entries, done)
    for entry in entries:
        _one(entry, done)
    node_sets(entries, done)
    _priorities(weights, entries, done)
    standing(entries, today, zone, done)
    done.findings.sort(key=lambda finding: finding.line)
    return done


# ---- priorities ---------------------------------------------------------------------------------


def _weights(entries: Iterable[Entry], done: Imported) -> dict[str, float]:
    weights = dict(_DEFAULT_WEIGHTS)
    for entry in entries:
        if entry.name not in _PARTS and entry.name not in _COMPONENTS:
            continue
        try:
            weights[entry.name] = float(entry.value.split()[0])
        except (ValueError, IndexError):
            done.note(
                Verdict.DIFFERS, entry.line, entry.setting, f"{entry.value!r} is no number, passed over"
            )
    return weights


def _weight(weights: Mapping[str, float], part: str) -> float:
    return weights.get(part, 0.0) * weights[_PARTS[part]]


def _translate_weights(weights: Mapping[str, float], entries: Iterable[Entry], done: Imported) -> None:
    priority = done.table("priority")
    waiting = _weight(weights, "QUEUETIMEWEIGHT") * 60
    priority["waiting"] = waiting
    if _weight(weights, "PROCWEIGHT"):
        priority["size"] = _weight(weights, "PROCWEIGHT")
    # Maui knows nothing of the server's priorities of queues.
    priority["queue"] = _weight(weights, "CLASSWEIGHT")
    stated = {entry.name: entry for entry in entries}
    if "QUEUETIMEWEIGHT" not in stated:
        done.note(
            Verdict.TRANSLATED, 0, "QUEUETIMEWEIGHT", f"not in the file, so 1 a minute: waiting = {waiting:g}"
        )
    for name, entry in stated.items():
        if name == "QUEUETIMEWEIGHT":
            done.note(Verdict.TRANSLATED, entry.line, name, f"priority.waiting = {waiting:g} points an hour")
        elif name == "PROCWEIGHT":
            done.note(Verdict.TRANSLATED, entry.line, name, "priority.size, points for each cpu")
        elif name == "CLASSWEIGHT":
            done.note(Verdict.TRANSLATED, entry.line, name, "priority.queue, with the priorities of CLASSCFG")
        elif name in ("USERWEIGHT", "GROUPWEIGHT", "ACCOUNTWEIGHT"):
            done.note(Verdict.TRANSLATED, entry.line, name, "multiplied into the points of classes")
        elif name in _COMPONENTS:
            done.note(Verdict.TRANSLATED, entry.line, name, "multiplied into the weights of its parts")


def _priorities(weights: Mapping[str, float], entries: Iterable[Entry], done: Imported) -> None:
    """PRIORITY= of users, groups and accounts: classes; of queues: priorities of queues."""
    kinds = set()
    for entry in entries:
        kind = OWNERS.get(entry.name, "queue" if entry.name == "CLASSCFG" else "")
        for name, _, value in entry.attributes() if kind else ():
            if name != "PRIORITY":
                continue
            points = _number(entry, name, value, done)
            weight = _weight(weights, f"{'CLASS' if kind == 'queue' else kind.upper()}WEIGHT")
            if points is None:
                continue
            if not weight:
                words = f"the weight of {kind} priorities is 0"
                done.note(Verdict.NOT_NEEDED, entry.line, f"{entry.setting} PRIORITY", words)
            elif entry.index.upper() == "DEFAULT":
                words = "a priority of all others is not supported: subtract it from those that are named"
                done.note(Verdict.DIFFERS, entry.line, f"{entry.setting} PRIORITY", words)
            elif kind == "queue":
                done.table("priority").setdefault("queues", {})[entry.index] = points
                done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} PRIORITY", "priority.queues")
            else:
                kinds.add(kind)
                table = done.table("classes").setdefault(f"{kind}-{entry.index}", {})
                table |= {"points": points * weight, f"{kind}s": [entry.index]}
                done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} PRIORITY", "a class of its own")
    if len(kinds) > 1:
        words = f"priorities of {' and '.join(sorted(kinds))} are not added up: the highest counts"
        done.note(Verdict.DIFFERS, 0, "PRIORITY", words)


def _number(entry: Entry, name: str, value: str, done: Imported) -> float | None:
    try:
        return float(value)
    except ValueError:
        done.note(
            Verdict.DIFFERS, entry.line, f"{entry.setting} {name}", f"{value!r} is no number, passed over"
        )
        return None


# ---- fair share ---------------------------------------------------------------------------------


def _fair_share(weights: Mapping[str, float], entries: list[Entry], done: Imported) -> None:
    said = {entry.name: entry for entry in entries if entry.name in _FAIR}
    policy = said.get("FSPOLICY")
    stated = {entry.name: entry for entry in entries if entry.name in _SHARES}
    levels = sorted(
        (part for part in _SHARES if _weight(weights, part)), key=lambda part: -_weight(weights, part)
    )
    if policy is None or policy.value.upper().startswith("NONE") or not levels:
        why = "no FSPOLICY" if policy is None else "FSPOLICY NONE" if levels else "no weight of fair share"
        for entry in (*said.values(), *stated.values()):
            done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, f"fair share is off: {why}")
        return
    kind = policy.value.split()[0].upper().rstrip("%^+-")
    if kind == "DEDICATEDPS":
        done.note(Verdict.TRANSLATED, policy.line, "FSPOLICY", "cpu-seconds held count")
    else:
        done.note(Verdict.DIFFERS, policy.line, "FSPOLICY", f"{kind}: here it is always cpu-seconds held")
    tree = done.table("fair_share")
    tree |= {"interval": 86_400, "depth": 7, "decay": 1.0}
    for name, key in (("FSINTERVAL", "interval"), ("FSDEPTH", "depth"), ("FSDECAY", "decay")):
        if name not in said:
            continue
        entry = said[name]
        try:
            tree[key] = (duration if key == "interval" else int if key == "depth" else float)(entry.value)
        except ValueError:
            done.note(Verdict.DIFFERS, entry.line, name, f"{entry.value!r} is not understood, passed over")
        else:
            done.note(Verdict.TRANSLATED, entry.line, name, f"fair_share.{key} = {tree[key]:g}")
    main = levels[0]
    tree["levels"] = [_SHARES[main]]
    done.table("priority")["fair_share"] = 100 * _weight(weights, main)
    for part, entry in stated.items():
        if part == main:
            words = "the factor is 1 without use and 0.5 at the target: it is not a difference in per cent"
        elif _weight(weights, part):
            words = f"only one level is taken over, that of the largest weight: {_SHARES[main]}"
        else:
            words = "its weight is 0"
        done.note(Verdict.DIFFERS if _weight(weights, part) else Verdict.NOT_NEEDED, entry.line, part, words)
    _targets(_SHARES[main], entries, tree, done)


def _targets(level: str, entries: Iterable[Entry], tree: dict[str, object], done: Imported) -> None:
    shares: dict[str, float] = {}
    for entry in entries:
        kind = OWNERS.get(entry.name, "queue" if entry.name == "CLASSCFG" else "")
        for name, _, value in entry.attributes() if kind else ():
            if name != "FSTARGET":
                continue
            setting = f"{entry.setting} FSTARGET"
            target = _number(entry, name, value.rstrip("+-^%"), done)
            if target is None:
                continue
            if kind != level:
                done.note(Verdict.DIFFERS, entry.line, setting, f"left out: the tree is by {level}")
            elif entry.index.upper() == "DEFAULT":
                tree["unlisted"] = target
                done.note(Verdict.TRANSLATED, entry.line, setting, "fair_share.unlisted")
            else:
                shares[entry.index] = target
                floor = value[-1:] in "+-^"
                words = "a floor or ceiling counts as a plain target" if floor else "fair_share.shares"
                done.note(Verdict.DIFFERS if floor else Verdict.TRANSLATED, entry.line, setting, words)
    if shares:
        tree["shares"] = shares


# ---- all else -----------------------------------------------------------------------------------


def _one(entry: Entry, done: Imported) -> None:
    name, value = entry.name, entry.value.upper()
    if name in _PARTS or name in _COMPONENTS or name in _FAIR:
        return
    if name in OWNERS or name in ("CLASSCFG", "SYSCFG"):
        credential(entry, done)
    elif name in _NOT_NEEDED:
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, _NOT_NEEDED[name])
    elif name in _PREEMPTION:
        done.note(Verdict.BLOCKER, entry.line, entry.setting, "running jobs are never stopped for others")
    elif name == "QOSCFG":
        words = "there is no quality of service: use queues or classes"
        if "PREEMPT" in value:
            words = f"running jobs are never stopped for others; {words}"
        done.note(Verdict.BLOCKER, entry.line, entry.setting, words)
    elif name == "SRCFG" or name in NODE_SETS:
        pass  # several lines may speak of one reservation, and of the sets of nodes
    elif re.fullmatch(r"SR[A-Z]+", name):
        words = "reservations in this old form are not taken over: their nodes would be open to all"
        done.note(Verdict.BLOCKER, entry.line, entry.setting, words)
    elif name == "NODEACCESSPOLICY":
        _access(entry, done)
    elif name == "JOBNODEMATCHPOLICY":
        done.cluster["node_rule"] = "exact" if "EXACTNODE" in value else "pack"
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, f'node_rule = "{done.cluster["node_rule"]}"')
    elif name == "JOBMAXOVERRUN":
        _overrun(entry, done)
    elif name == "NODEALLOCATIONPOLICY":
        words = "nodes are chosen for the earliest start; there is no other preference"
        done.note(Verdict.DIFFERS, entry.line, entry.setting, words)
    elif name == "NODECFG":
        done.note(Verdict.BLOCKER, entry.line, entry.setting, "policies of single nodes are not supported")
    elif name in _OTHERWISE:
        done.note(Verdict.DIFFERS, entry.line, entry.setting, _OTHERWISE[name])
    elif name == "QUEUETIMECAP":
        _cap(entry, done)
    elif _OTHER_WEIGHTS.fullmatch(name):
        off = value in ("0", "0.0", "")
        words = "it is 0" if off else "there is no such term; docs/policy.md lists those there are"
        done.note(Verdict.NOT_NEEDED if off else Verdict.DIFFERS, entry.line, entry.setting, words)
    else:
        done.note(Verdict.DIFFERS, entry.line, entry.setting, "not known here, passed over")


def _access(entry: Entry, done: Imported) -> None:
    if entry.value.upper() == "SHARED":
        done.note(
            Verdict.NOT_NEEDED, entry.line, entry.setting, "nodes are shared unless a job asks otherwise"
        )
    else:
        words = "nodes are shared unless jobs ask for whole ones: make naccesspolicy a default of queues"
        done.note(Verdict.BLOCKER, entry.line, entry.setting, words)


def _overrun(entry: Entry, done: Imported) -> None:
    try:
        done.cluster["end_allowance"] = duration(entry.value.rpartition(",")[2])
    except ValueError:
        done.note(
            Verdict.DIFFERS, entry.line, entry.setting, f"{entry.value!r} is not understood, passed over"
        )
    else:
        words = (
            f"end_allowance = {done.cluster['end_allowance']}; it is pbs_server or the mom that ends a job"
        )
        done.note(Verdict.DIFFERS, entry.line, entry.setting, words)


def _cap(entry: Entry, done: Imported) -> None:
    points = _number(entry, "", entry.value, done)
    waiting = done.table("priority")["waiting"]
    if points and waiting:
        done.table("priority")["waiting_most"] = points / waiting
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, f"waiting_most = {points / waiting:g} hours")
    elif points is not None:
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, "0, or waiting has no weight")
