"""Standing reservations of Maui: SRCFG. Meanings: Maui Administrator's Guide, 7.1.3 and 7.1.5."""

import re
from datetime import date, datetime, time, timedelta

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.result import ImportResult, Verdict, duration

_DAYS = {"SUN": "SU", "MON": "MO", "TUE": "TU", "WED": "WE", "THU": "TH", "FRI": "FR", "SAT": "SA"}
_ORDER = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
_ACCESS = {"USERLIST": "users", "GROUPLIST": "groups", "ACCOUNTLIST": "accounts", "CLASSLIST": "queues"}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TIMES = frozenset({"PERIOD", "STARTTIME", "ENDTIME", "DAYS", "HOSTLIST"})
_IRRELEVANT = frozenset({"DEPTH", "PRIORITY", "COMMENT", "CHARGEACCOUNT", "ACCESS", "NAME"})
_SHORT = ("TIMELIMIT", "MAXTIME")  # longest part of a job in the reservation, without being on a list
_TASKS = ("TASKCOUNT", "RESOURCES", "TPN")
_UNITS = {"PROCS": ("cores", 1), "GPUS": ("gpus", 1), "GPU": ("gpus", 1), "MEM": ("mem", 1024)}
"""Resources of a task, with their names in schedd.toml and their units: MEM is in MB."""
"""Resources of a task that can be reserved."""
_FEATURES = ("NODEFEATURES", "FEATURES")  # features that all nodes of the reservation have
_SEPARATORS = re.compile(r"[,:|\s]+")
_FLAGS = frozenset({"IGNSTATE", "SPACEFLEX"})
"""Flags that choose other nodes while some are down or in use."""
_TAKEN = frozenset({*_SHORT, *_TASKS, *_FEATURES, "TIMELOGIC", "TRIGGER", "FLAGS", "OWNER"})
_MISSING = {  # unsupported: the corresponding attributes
    "task counts that change automatically": ("MAXTASKS", "MINTASKS"),
    "access by the size of jobs": ("PROCLIMIT",),
    "access by QOS": ("QOSLIST",),
    "access by the requests of jobs": ("JOBATTRLIST",),
    "reservations of a partition": ("PARTITION",),
    "reservations that end when they are idle": ("IDLETIME",),
}
_NEEDED_BY = {name: what for what, names in _MISSING.items() for name in names}


class _InexpressibleError(ValueError):
    """An entry has no equivalent in schedd.toml; ``example`` is the part in which equal lines differ."""

    def __init__(self, message: str, example: str) -> None:
        super().__init__(f"{example}: {message}")
        self.message = message
        self.example = example


def translate_reservations(entries: list[MauiEntry], today: date, zone: str, done: ImportResult) -> None:
    """Translate SRCFG parameters; those with the same index are one reservation. Its first window is in
    today's week.
    """
    said: dict[str, dict[str, str]] = {}
    lines: dict[str, list[int]] = {}
    for entry in entries:
        if entry.name == "SRCFG":
            lines.setdefault(entry.index, []).append(entry.line)
            said.setdefault(entry.index, {}).update({name: value for name, _, value in entry.attributes()})
            if entry.rest:
                message = f"cannot be read: {entry.rest[:40]!r}"
                done.note(Verdict.BLOCKER, entry.line, entry.setting, message)
    for name, attributes in said.items():
        setting = f"SRCFG[{name}]"
        try:
            table = _reservation(attributes, today)
        except _InexpressibleError as error:
            message = f"not translated, so that its nodes are open to all jobs: {error.message}"
            for line in lines[name]:
                done.note(Verdict.BLOCKER, line, setting, message, example=error.example)
            continue
        except ValueError as error:
            message = f"not translated, so that its nodes are open to all jobs: {error}"
            for line in lines[name]:
                done.note(Verdict.BLOCKER, line, setting, message)
            continue
        done.table("reservations")[re.sub(r"[^\w.-]", "-", name)] = table
        done.site["zone"] = zone
        for line in lines[name]:
            done.note(*_reservation_finding(attributes, table, zone, line, setting))


def _reservation_finding(
    said: dict[str, str], table: dict[str, object], zone: str, line: int, setting: str
) -> tuple[Verdict, int, str, str]:
    message = f"a reservation, with times in the zone {zone}"
    differs = []
    if "shorter" in table:
        differs.append(
            "jobs with up to that walltime have access (shorter); in Maui, jobs that overlap it for at "
            "most that time"
        )
    if "RESOURCES" in said and "total" not in table:
        differs.append("as many tasks as its nodes can hold: whole nodes are reserved")
    if "total" in table:
        differs.append("its cores are reserved on the first of these nodes that are up, not on any of them")
    if said.get("OWNER"):
        differs.append(
            "OWNER is not charged for unused time, and cannot change the reservation: operators and admins "
            "can"
        )
    if said.get("FLAGS"):
        differs.append(f"{said['FLAGS']} has no effect: the reservation keeps its nodes while some are down")
    if said.get("TRIGGER"):
        differs.append("schedd runs no program for it (TRIGGER): see webhooks in docs/reference/api.md")
    if not any(key in table for key in (*_ACCESS.values(), "shorter")):
        message += "; nobody has access, as in the file"
    if said.get("PERIOD", "").upper() == "INFINITY":
        message += (
            "; it is a series of weeks without an end, planned 60 days ahead: a job that can run only on "
            "its nodes gets a start after that, although it can never start"
        )
        return Verdict.DIFFERS, line, setting, "; ".join([message, *differs])
    return Verdict.DIFFERS if differs else Verdict.TRANSLATED, line, setting, "; ".join([message, *differs])


def _reservation(said: dict[str, str], today: date) -> dict[str, object]:
    """Return the reservation as a table of schedd.toml. Raises ValueError if there is no equivalent."""
    missing = sorted(name for name in said.keys() & _NEEDED_BY.keys() if said[name])
    if missing:
        kinds = " and ".join(dict.fromkeys(_NEEDED_BY[name] for name in missing))
        raise ValueError(f"{', '.join(missing)}: schedd has no {kinds}")
    required = sorted(name for name in _SHORT if said.get(name, "").endswith("*"))
    if required:
        raise ValueError(
            f"{required[0]}={said[required[0]]}: a job has access by one match, and no match can be required"
        )
    shorter = [duration(said[name]) for name in _SHORT if said.get(name)]
    lists = [name for name in _ACCESS if said.get(name)]
    if shorter and lists and said.get("TIMELOGIC", "").upper() == "AND":
        raise ValueError(
            "TIMELOGIC=AND: a job has access by one match, so a list and a walltime cannot both be required"
        )
    strange = sorted(said.keys() - _ACCESS.keys() - _TIMES - _IRRELEVANT - _NEEDED_BY.keys() - _TAKEN)
    if strange:
        raise ValueError(f"{', '.join(strange)}: not known to this import")
    flags = {flag for flag in _SEPARATORS.split(said.get("FLAGS", "").upper()) if flag} - _FLAGS
    if flags:
        raise ValueError(f"FLAGS={','.join(sorted(flags))}: schedd's reservations have no such flags")
    return {
        **_window(said, today),
        **_nodes(said),
        **{key: _names(name, said[name]) for name, key in _ACCESS.items() if said.get(name)},
        **({"shorter": min(shorter)} if shorter else {}),
        **_parts(said),
    }


def _nodes(said: dict[str, str]) -> dict[str, object]:
    """Return its nodes, by name or by features; all nodes if its tasks have a number of cores on any nodes.
    Raises ValueError.
    """
    hosts = [host for host in _SEPARATORS.split(said.get("HOSTLIST", "")) if host]
    everywhere = [host.upper() for host in hosts] == ["ALL"]
    features = [one for name in _FEATURES for one in re.split(r"[,:|\s\[\]]+", said.get(name, "")) if one]
    if features and hosts and not everywhere:
        raise ValueError("HOSTLIST with NODEFEATURES: name nodes, or features, but not both")
    if features:
        return {"features": list(dict.fromkeys(features))}
    if everywhere or (not hosts and "total" in _parts(said)):
        return {"everywhere": True}
    if not hosts:
        raise ValueError("it has no HOSTLIST: schedd cannot reserve whole nodes without naming them")
    odd = [host for host in hosts if not _HOST.fullmatch(host)]
    if odd:
        raise _InexpressibleError(
            "HOSTLIST is a pattern: name the nodes, or a property of these nodes", odd[0]
        )
    return {"nodes": hosts}


def _parts(said: dict[str, str]) -> dict[str, object]:
    """Return the cores, gpus and memory of its tasks; empty for whole nodes. Raises ValueError.

    A task has the resources of RESOURCES, by default all processors of a node (PROCS:-1).
    """
    if not any(said.get(name) for name in _TASKS):
        return {}
    task: dict[str, int] = {}
    for part in re.split(r"[;,+]", said.get("RESOURCES", "") or "PROCS:-1"):
        name, _, amount = part.partition(":" if ":" in part else "=")
        if name.strip().upper() not in _UNITS:
            raise ValueError(
                f"RESOURCES={part}: only cores, gpus and memory can be reserved (PROCS, GPUS, MEM)"
            )
        unit, factor = _UNITS[name.strip().upper()]
        number = _number("RESOURCES", amount)
        task[unit] = -1 if number == -1 else task.get(unit, 0) + number * factor
    count, per_node = _number("TASKCOUNT", said.get("TASKCOUNT")), _number("TPN", said.get("TPN"))
    if -1 in task.values():
        if len(task) > 1 or count or per_node:
            raise ValueError(
                "TASKCOUNT needs a number of PROCS in RESOURCES: tasks of whole nodes cannot be counted"
            )
        return {}
    if any(amount < 1 for amount in task.values()):
        raise ValueError("RESOURCES has no number of PROCS, GPUS or MEM")
    if min(count, per_node) < 0:
        raise ValueError("TASKCOUNT and TPN must not be negative")
    if count and per_node:
        raise ValueError(
            "TASKCOUNT with TPN: schedd cannot select nodes by the number of tasks that fit on each"
        )
    if not count:  # as many tasks as the nodes can hold
        return {}
    return {**{unit: amount * count for unit, amount in task.items()}, "total": True}


def _number(name: str, text: str | None) -> int:
    """Return the number in an attribute; 0 if it has none. Raises ValueError."""
    if not text:
        return 0
    if not re.fullmatch(r"-?\d{1,7}", text.strip()):
        raise ValueError(f"{name}={text} is not understood")
    return int(text)


def _names(attribute: str, text: str) -> list[str]:
    """Return the users with access, without marks of preference. Raises ValueError for exclusions."""
    names = []
    for part in _SEPARATORS.split(text):
        if part.startswith(("!", "~", "^")) or part[-1:] in ("&", "*"):
            raise _InexpressibleError(
                "schedd's access lists name only permitted users, and one match gives access",
                f"{attribute}={part}",
            )
        names.append(part.strip("+-="))
    return [name for name in names if name]


def _window(said: dict[str, str], today: date) -> dict[str, object]:
    """Return begin and end of the first window, and its recurrence rule."""
    period = said.get("PERIOD", "DAY").upper()
    if period not in ("DAY", "WEEK", "INFINITY"):
        raise ValueError(f"PERIOD={period} is not understood")
    monday = today - timedelta(days=today.weekday())
    # In Maui, weeks begin on Sunday.
    sunday = datetime.combine(monday - timedelta(days=1), time())
    if period == "INFINITY":
        if said.keys() & {"STARTTIME", "ENDTIME", "DAYS"}:
            raise ValueError("PERIOD=INFINITY cannot have times of day")
        return {"first": sunday, "last": sunday + timedelta(days=7), "rule": "FREQ=WEEKLY"}
    begin, end = _times(said, period)
    if period == "WEEK":
        first, rule = sunday, "FREQ=WEEKLY"
    else:
        days = _days(said.get("DAYS", "ALL"))
        start = monday if not days else monday + timedelta(days=_ORDER.index(days[0]))
        first = datetime.combine(start, time())
        rule = f"FREQ=WEEKLY;BYDAY={','.join(days)}" if days else "FREQ=DAILY"
    return {"first": first + timedelta(seconds=begin), "last": first + timedelta(seconds=end), "rule": rule}


def _times(said: dict[str, str], period: str) -> tuple[int, int]:
    whole = 86_400 * (7 if period == "WEEK" else 1)
    begin, end = duration(said.get("STARTTIME", "0")), duration(said.get("ENDTIME", str(whole)))
    if not 0 <= begin < end <= whole:
        raise ValueError(f"it ends at {said.get('ENDTIME')}, before its start at {said.get('STARTTIME')}")
    return begin, end


def _days(text: str) -> list[str]:
    if text.upper() in ("ALL", "[ALL]"):
        return []
    names = [name for name in re.split(r"[,:|\s\[\]]+", text.upper()) if name]
    unknown = [name for name in names if name[:3] not in _DAYS]
    if unknown:
        raise ValueError(f"DAYS={text} is not understood")
    return sorted({_DAYS[name[:3]] for name in names}, key=_ORDER.index)
