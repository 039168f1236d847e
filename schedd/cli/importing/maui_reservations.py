"""Standing reservations of Maui: SRCFG. Meanings: Maui Administrator's Guide, 7.1.3."""

import re
from datetime import date, datetime, time, timedelta

from schedd.cli.importing.maui_entries import Entry
from schedd.cli.importing.result import Imported, Verdict, duration

__all__ = ["standing"]

_DAYS = {"SUN": "SU", "MON": "MO", "TUE": "TU", "WED": "WE", "THU": "TH", "FRI": "FR", "SAT": "SA"}
_ORDER = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
_ACCESS = {"USERLIST": "users", "GROUPLIST": "groups", "ACCOUNTLIST": "accounts", "CLASSLIST": "queues"}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NO_MATTER = frozenset({"DEPTH", "PRIORITY", "COMMENT", "TIMELIMIT"})


def standing(entries: list[Entry], today: date, zone: str, done: Imported) -> None:
    """All SRCFG parameters; those of one name are one reservation. The first window lies in today's week."""
    said: dict[str, dict[str, str]] = {}
    line: dict[str, int] = {}
    for entry in entries:
        if entry.name == "SRCFG":
            line.setdefault(entry.index, entry.line)
            said.setdefault(entry.index, {}).update({name: value for name, _, value in entry.attributes()})
    for name, attributes in said.items():
        setting = f"SRCFG[{name}]"
        try:
            table = _reservation(attributes, today)
        except ValueError as error:
            words = f"its nodes would be open to all: {error}"
            done.note(Verdict.BLOCKER, line[name], setting, words)
            continue
        done.table("reservations")[re.sub(r"[^\w.-]", "-", name)] = table
        done.site["zone"] = zone
        rest = sorted(attributes.keys() - _ACCESS.keys() - _NO_MATTER - _TIMES)
        words = f"a reservation of its own, on the clock of {zone}"
        if rest:
            done.note(Verdict.DIFFERS, line[name], setting, f"{words}; without {', '.join(rest)}")
        else:
            done.note(Verdict.TRANSLATED, line[name], setting, words)


_TIMES = frozenset({"PERIOD", "STARTTIME", "ENDTIME", "DAYS", "HOSTLIST"})


def _reservation(said: dict[str, str], today: date) -> dict[str, object]:
    """The same as a table of schedd.toml. Raises ValueError for what cannot be said there."""
    period = said.get("PERIOD", "DAY").upper()
    if period not in ("DAY", "WEEK"):
        raise ValueError(f"PERIOD={period} has no windows; make a reservation without an end")
    monday = today - timedelta(days=today.weekday())
    begin, end = _times(said, period)
    if period == "WEEK":
        # Weeks begin on Sunday there.
        first, rule = datetime.combine(monday - timedelta(days=1), time()), "FREQ=WEEKLY"
    else:
        days = _days(said.get("DAYS", "ALL"))
        start = monday if not days else monday + timedelta(days=_ORDER.index(days[0]))
        first = datetime.combine(start, time())
        rule = f"FREQ=WEEKLY;BYDAY={','.join(days)}" if days else "FREQ=DAILY"
    hosts = [host for host in re.split(r"[,:\s]+", said.get("HOSTLIST", "")) if host]
    if not hosts:
        raise ValueError("it names no HOSTLIST; tasks anywhere cannot be reserved")
    everywhere = [host.upper() for host in hosts] == ["ALL"]
    odd = [host for host in hosts if not everywhere and not _HOST.fullmatch(host)]
    if odd:
        raise ValueError(f"HOSTLIST={odd[0]} is a pattern: name the nodes, or a property of theirs")
    lists = {
        key: re.split(r"[,:]", said[name].rstrip("+-&")) for name, key in _ACCESS.items() if said.get(name)
    }
    return {
        "first": first + timedelta(seconds=begin),
        "last": first + timedelta(seconds=end),
        "rule": rule,
        **({"everywhere": True} if everywhere else {"nodes": hosts}),
        **lists,
    }


def _times(said: dict[str, str], period: str) -> tuple[int, int]:
    whole = 86_400 * (7 if period == "WEEK" else 1)
    begin, end = duration(said.get("STARTTIME", "0")), duration(said.get("ENDTIME", str(whole)))
    if not 0 <= begin < end <= whole:
        raise ValueError(f"it goes from {said.get('STARTTIME')} to {said.get('ENDTIME')}")
    return begin, end


def _days(text: str) -> list[str]:
    if text.upper() in ("ALL", "[ALL]"):
        return []
    names = [name for name in re.split(r"[,\s\[\]]+", text.upper()) if name]
    unknown = [name for name in names if name[:3] not in _DAYS]
    if unknown:
        raise ValueError(f"DAYS={text} is not understood")
    return sorted({_DAYS[name[:3]] for name in names}, key=_ORDER.index)
