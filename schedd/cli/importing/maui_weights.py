"""Priorities of Maui: weights, caps, and the PRIORITY of users, groups, accounts and queues.

A term's effective weight is its own times that of its component (Maui Administrator's Guide, 5.1). If the
table priority lacks the term of a weight, all weights become a formula, which replaces that table.
"""

from collections.abc import Iterable, Sequence

from schedd.cli.importing.maui_entries import OWNERS, MauiEntry
from schedd.cli.importing.result import ImportResult, Verdict, duration, number

_SUPPORTED_WEIGHTS = {  # sub-component: (its component, the verdict)
    "QUEUETIMEWEIGHT": ("SERVICEWEIGHT", ""),
    "PROCWEIGHT": ("RESWEIGHT", "priority.size, points for each cpu"),
    "CLASSWEIGHT": ("CREDWEIGHT", "priority.queue, with the PRIORITY of CLASSCFG"),
    "QOSWEIGHT": ("CREDWEIGHT", "priority.qos, with the PRIORITY of QOSCFG"),
    "USERWEIGHT": ("CREDWEIGHT", "included in the points of classes"),
    "GROUPWEIGHT": ("CREDWEIGHT", "included in the points of classes"),
    "ACCOUNTWEIGHT": ("CREDWEIGHT", "included in the points of classes"),
}
FAIR_SHARE_WEIGHTS = {
    "FSUSERWEIGHT": "user",
    "FSGROUPWEIGHT": "group",
    "FSACCOUNTWEIGHT": "account",
    "FSCLASSWEIGHT": "queue",
}
"""Weights of fair share, with the level of each."""
_FORMULA_WEIGHTS = {  # sub-component: (its component, the term of a formula)
    "XFACTORWEIGHT": ("SERVICEWEIGHT", "xfactor"),
    "NODEWEIGHT": ("RESWEIGHT", "nodect"),
    "MEMWEIGHT": ("RESWEIGHT", "mem / 1024"),
    "SWAPWEIGHT": ("RESWEIGHT", "vmem / 1024"),
    "PSWEIGHT": ("RESWEIGHT", "ncpus * walltime"),
    "WALLTIMEWEIGHT": ("RESWEIGHT", "walltime"),
    "USERPRIOWEIGHT": ("SERVICEWEIGHT", "min(job_priority, 0)"),
}
_POSITIVE_WISHES = "ENABLEPOSUSERPRIORITY"
"""The parameter that lets users raise the priority of their own jobs, not only lower it."""
_PRIORITY_TERMS = {  # weight of the table priority: the same term in a formula
    "waiting": "eligible_time / 3600",
    "size": "ncpus",
    "queue": "queue_priority",
    "qos": "qos_priority",
    "fair_share": "fairshare_factor",
}
_UNSUPPORTED_WEIGHTS = {  # sub-component: (its component, what it counts)
    "BYPASSWEIGHT": ("SERVICEWEIGHT", "how often a job was passed over"),
    "SPVIOLATIONWEIGHT": ("SERVICEWEIGHT", "violations of soft limits"),
    "DISKWEIGHT": (
        "RESWEIGHT",
        "the requested disk space; write a formula with the name of that resource (formula.expression)",
    ),
    "PEWEIGHT": ("RESWEIGHT", "processor equivalents"),
    "UJOBWEIGHT": ("RESWEIGHT", "the jobs of the same user"),
    "UPROCWEIGHT": ("RESWEIGHT", "the processors of the same user"),
    "DIRECTSPECWEIGHT": ("RESWEIGHT", "individual users"),
    "FSQOSWEIGHT": ("FSWEIGHT", "the fair share of a QOS"),
    "AFSWEIGHT": ("FSWEIGHT", "fair share under this old name: write FSACCOUNTWEIGHT and import again"),
    "GFSWEIGHT": ("FSWEIGHT", "fair share under this old name: write FSGROUPWEIGHT and import again"),
    "UFSWEIGHT": ("FSWEIGHT", "fair share under this old name: write FSUSERWEIGHT and import again"),
    "TARGETQUEUETIMEWEIGHT": ("TARGETWEIGHT", "a target queue time"),
    "TARGETXFACTORWEIGHT": ("TARGETWEIGHT", "a target expansion factor"),
    "QUEUETIMETARGETWEIGHT": ("TARGETWEIGHT", "a target queue time"),
    "XFACTORTARGETWEIGHT": ("TARGETWEIGHT", "a target expansion factor"),
    "CONSUMEDWEIGHT": ("USAGEWEIGHT", "what a running job has used"),
    "REMAININGWEIGHT": ("USAGEWEIGHT", "the remaining part of a running job"),
    "PERCENTWEIGHT": ("USAGEWEIGHT", "the elapsed part of a running job"),
    "USAGEEXECUTIONTIMEWEIGHT": ("USAGEWEIGHT", "how long a running job has run"),
    "ATTRATTRWEIGHT": ("ATTRWEIGHT", "attributes of jobs"),
    "ATTRSTATEWEIGHT": ("ATTRWEIGHT", "states of jobs"),
    "ATTRGRESWEIGHT": ("ATTRWEIGHT", "requested generic resources"),
}
_PARTS = {
    **{
        name: component
        for name, (component, _) in (_SUPPORTED_WEIGHTS | _FORMULA_WEIGHTS | _UNSUPPORTED_WEIGHTS).items()
    },
    **dict.fromkeys(FAIR_SHARE_WEIGHTS, "FSWEIGHT"),
}
_COMPONENTS = frozenset({*_PARTS.values(), "SERVICETARGETWEIGHT"})
_CAPS = {f"{name.removesuffix('WEIGHT')}CAP": name for name in (*_PARTS, *_COMPONENTS)} | {
    "SERVICEWCAP": "SERVICEWEIGHT"
}
_SHORTEST_WALLTIME = "XFMINWCLIMIT"
"""The shortest walltime that counts in the expansion factor."""
_DEFAULT_SHORTEST_WALLTIME = 120.0  # in Maui, in seconds; Moab has none
WEIGHTS = frozenset({*_PARTS, *_COMPONENTS, *_CAPS, _SHORTEST_WALLTIME})
"""All parameters that this module translates."""
_MOST_HOURS = 1e6  # the longest wait that schedd.toml accepts as a cap
_MAX_POINTS = 1e9  # the largest weight that schedd.toml accepts
_ALL_PARTITIONS = frozenset({"", "0", "ALL", "BASE", "DEFAULT"})


class MauiWeights:
    """The weights in the file that apply to all partitions. By default a weight is 0; those of queue time and
    of components are 1.
    """

    def __init__(self, entries: Sequence[MauiEntry], done: ImportResult, moab: bool = False) -> None:
        self._said: dict[str, float] = {"QUEUETIMEWEIGHT": 1.0, **dict.fromkeys(_COMPONENTS, 1.0)}
        if not moab:
            self._said[_SHORTEST_WALLTIME] = _DEFAULT_SHORTEST_WALLTIME
        self._bad: set[int] = set()
        self._positive_wishes = any(
            entry.name == _POSITIVE_WISHES and entry.value.upper() in ("TRUE", "1", "ON", "YES")
            for entry in entries
        )
        for entry in entries:
            if entry.name not in WEIGHTS or entry.index.upper() not in _ALL_PARTITIONS:
                continue
            try:
                read = duration if entry.name == _SHORTEST_WALLTIME else number
                self._said[entry.name] = read(entry.value_parts[0])
            except (ValueError, IndexError):
                self._bad.add(entry.line)
                message = f"{entry.value!r} is not a number, and is ignored"
                done.note(Verdict.DIFFERS, entry.line, entry.setting, message)

    def effective_weight(self, part: str) -> float:
        """Return the effective weight of a term: its weight times that of its component. For a component,
        return 1.0 if one of its terms has a weight, else 0.0.
        """
        if part in _PARTS:
            return self._said.get(part, 0.0) * self._said[_PARTS[part]]
        return float(
            any(self.effective_weight(one) for one, component in _PARTS.items() if component == part)
        )

    def translate(self, entries: Sequence[MauiEntry], fair: bool, done: ImportResult) -> None:
        """Write the table priority, with a finding for each weight and cap. ``fair``: fair share is on."""
        priority = done.table("priority")
        waiting = self.effective_weight("QUEUETIMEWEIGHT") * 60
        priority["waiting"] = waiting
        if self.effective_weight("PROCWEIGHT"):
            priority["size"] = self.effective_weight("PROCWEIGHT")
        if (cap := self._said.get("QUEUETIMECAP", 0.0)) > 0:
            priority["waiting_most"] = min(cap / 60, _MOST_HOURS)
        said = {entry.name for entry in entries if entry.index.upper() in _ALL_PARTITIONS}
        if "QUEUETIMEWEIGHT" not in said:
            message = (
                f"not in the file; Maui's default is 1 point a minute: priority.waiting = {waiting:g} "
                "points an hour"
            )
            done.note(Verdict.TRANSLATED, 0, "QUEUETIMEWEIGHT", message)
        for entry in entries:
            if entry.name in WEIGHTS and entry.line not in self._bad:
                done.note(*self._finding(entry, fair, done))

    def _finding(self, entry: MauiEntry, fair: bool, done: ImportResult) -> tuple[Verdict, int, str, str]:
        where = entry.line, entry.setting
        if entry.index.upper() not in _ALL_PARTITIONS:
            return Verdict.BLOCKER, *where, "schedd has one set of weights for all partitions"
        name, points = entry.name, self._said[entry.name]
        if name == _SHORTEST_WALLTIME:
            if self.effective_weight("XFACTORWEIGHT") and points:
                return Verdict.TRANSLATED, *where, "in the formula"
            return Verdict.NOT_NEEDED, *where, "the expansion factor has no weight, or this minimum is 0"
        if name in _CAPS:
            return self._cap(entry, points)
        if name in _COMPONENTS:
            if not self.effective_weight(name) or (name == "FSWEIGHT" and not fair):
                return Verdict.NOT_NEEDED, *where, "none of its terms has a weight, or fair share is off"
            return Verdict.TRANSLATED, *where, "included in the weights of its terms"
        if not self.effective_weight(name) and name != "QUEUETIMEWEIGHT":
            return Verdict.NOT_NEEDED, *where, "the weight is 0"
        if name == "QUEUETIMEWEIGHT":
            waiting = done.table("priority")["waiting"]
            return Verdict.TRANSLATED, *where, f"priority.waiting = {waiting:g} points an hour"
        if name in _FORMULA_WEIGHTS:
            return Verdict.TRANSLATED, *where, f"a formula, with the term {self._formula_term(name)}"
        if name in _UNSUPPORTED_WEIGHTS:
            return (
                Verdict.BLOCKER,
                *where,
                f"neither priority nor a formula has a term for {_UNSUPPORTED_WEIGHTS[name][1]}",
            )
        if name in FAIR_SHARE_WEIGHTS and not fair:
            return Verdict.NOT_NEEDED, *where, "fair share is off"
        if name in FAIR_SHARE_WEIGHTS:
            return Verdict.DIFFERS, *where, "see FSPOLICY"
        return Verdict.TRANSLATED, *where, _SUPPORTED_WEIGHTS[name][1]

    def _cap(self, entry: MauiEntry, points: float) -> tuple[Verdict, int, str, str]:
        where, capped = (entry.line, entry.setting), _CAPS[entry.name]
        if points <= 0 or not self.effective_weight(capped):
            return Verdict.NOT_NEEDED, *where, "no effect: 0 means no cap, or the capped term has no weight"
        if entry.name == "QUEUETIMECAP":
            return Verdict.TRANSLATED, *where, f"priority.waiting_most = {points / 60:g} hours"
        if capped in _FORMULA_WEIGHTS or capped == "PROCWEIGHT":
            return Verdict.TRANSLATED, *where, f"a formula, with the term {self._formula_term(capped)}"
        return Verdict.BLOCKER, *where, "schedd has no caps for components, credentials and fair share"

    def _formula_term(self, part: str) -> str:
        """Return the term of a weight, capped before the multiplication, as in Maui."""
        term = "ncpus" if part == "PROCWEIGHT" else _FORMULA_WEIGHTS[part][1]
        shortest = self._said.get(_SHORTEST_WALLTIME, 0)
        if part == "XFACTORWEIGHT" and shortest:
            term = f"1 + eligible_time / max(planned_walltime, {shortest:g})"
        if part == "USERPRIOWEIGHT" and self._positive_wishes:
            term = "job_priority"
        cap = self._said.get(f"{part.removesuffix('WEIGHT')}CAP", 0.0)
        return f"min({term}, {cap:g})" if cap > 0 else term

    def write_formula(self, done: ImportResult) -> bool:
        """Write a formula if the table priority lacks a term or a cap; the formula replaces all weights of
        that table. Return whether a formula was written.
        """
        parts = [(self.effective_weight(name), self._formula_term(name)) for name in _FORMULA_WEIGHTS]
        capped_size = self.effective_weight("PROCWEIGHT") and self._said.get("PROCCAP")
        if not capped_size and not any(weight for weight, _ in parts):
            return False
        _bound_queue_priorities(done)
        priority = done.table("priority")
        for name, term in _PRIORITY_TERMS.items():
            value = term
            if name == "waiting" and (most := priority.pop("waiting_most", None)) is not None:
                value = f"min({term}, {most:g})"
            elif name == "size":
                value = self._formula_term("PROCWEIGHT")
            parts.append((priority.pop(name, 0.0), value))
        classes: list[dict[str, float]] = list(done.site.get("classes", {}).values())
        factor = max([1.0, *(abs(one["points"]) / _MAX_POINTS for one in classes)])
        for one in classes:
            one["points"] /= factor
        parts.append((factor if classes else 0.0, "class_points"))
        if not priority:
            del done.site["priority"]
        words = [_format_part(weight, term) for weight, term in parts if weight]
        done.table("formula")["expression"] = " + ".join(words)
        message = "formula.expression replaces all weights"
        done.note(Verdict.TRANSLATED, 0, "priority", message)
        return True


def _format_part(weight: float, term: str) -> str:
    """Return a summand of the formula."""
    if any(sign in term for sign in "+/*") and not term.startswith("min("):
        term = f"({term})"
    return term if weight == 1 else f"{weight:.12g} * {term}"


def translate_own_priorities(weights: MauiWeights, entries: Iterable[MauiEntry], done: ImportResult) -> None:
    """Translate PRIORITY= of users, groups and accounts to classes, and of queues to priority.queues."""
    found: dict[str, dict[str, tuple[MauiEntry, float]]] = {}
    for entry in entries:
        kind = OWNERS.get(entry.name, "queue" if entry.name == "CLASSCFG" else "")
        for name, _, value in entry.attributes() if kind else ():
            if name != "PRIORITY":
                continue
            setting = f"{entry.setting} PRIORITY"
            try:
                points = number(value)
            except ValueError:
                done.note(Verdict.DIFFERS, entry.line, setting, f"{value!r} is not a number, and is ignored")
                continue
            if not weights.effective_weight(_weight_name(kind)):
                done.note(Verdict.NOT_NEEDED, entry.line, setting, f"the weight of {kind} priorities is 0")
                continue
            found.setdefault(kind, {})[entry.index] = entry, points
    _queues(weights, found.pop("queue", {}), done)
    for kind, owners in found.items():
        _classes(kind, weights.effective_weight(_weight_name(kind)), owners, done)
    if len(found) > 1:
        message = (
            f"points of {' and '.join(sorted(found))} are not added: a job with several gets the largest"
        )
        done.note(Verdict.DIFFERS, 0, "PRIORITY", message)


def scale_to_bounds(done: ImportResult) -> None:
    """Divide all points by the same number, if one is larger than schedd.toml accepts; the order stays."""
    _bound_queue_priorities(done)
    priority = done.table("priority")
    terms = [name for name in ("queue", "qos", "waiting", "size", "fair_share") if name in priority]
    classes: list[dict[str, float]] = list(done.site.get("classes", {}).values())
    largest = max([abs(priority[name]) for name in terms] + [abs(one["points"]) for one in classes])
    if largest <= _MAX_POINTS:
        return
    for name in terms:
        priority[name] /= largest / _MAX_POINTS
    for one in classes:
        one["points"] /= largest / _MAX_POINTS
    factor = largest / _MAX_POINTS
    message = f"all points are divided by {factor:.6g}, since the largest is {largest:.6g}; the order is the"
    done.note(
        Verdict.TRANSLATED,
        0,
        "weights",
        f"{message} same, except for differences that are now below one point",
    )


def _bound_queue_priorities(done: ImportResult) -> None:
    """Divide the priorities of queues by the largest one, if that is larger than schedd.toml accepts."""
    priority = done.table("priority")
    queues: dict[str, float] = priority.get("queues", {})
    most = max((abs(points) for points in queues.values()), default=0)
    if most > _MAX_POINTS:
        priority["queues"] = {name: points / most for name, points in queues.items()}
        priority["queue"] *= most


def _weight_name(kind: str) -> str:
    return f"{'CLASS' if kind == 'queue' else kind.upper()}WEIGHT"


def _queues(weights: MauiWeights, owners: dict[str, tuple[MauiEntry, float]], done: ImportResult) -> None:
    """Set the points of queues. Maui ignores the server's priorities of queues: queues without an entry have
    0.
    """
    priority = done.table("priority")
    priority["queue"] = weights.effective_weight("CLASSWEIGHT") if owners else 0.0
    if not owners:
        return
    queues = {"*": 0.0}
    for index, (entry, points) in owners.items():
        queues["*" if index.upper() == "DEFAULT" else index] = points
        message = 'priority.queues; "*" stands for all others, whose Priority on the server is ignored'
        done.note(Verdict.TRANSLATED, entry.line, f"{entry.setting} PRIORITY", message)
    priority["queues"] = queues


def _classes(
    kind: str, weight: float, owners: dict[str, tuple[MauiEntry, float]], done: ImportResult
) -> None:
    """Write a class for each named owner, with its points minus the points of all others (DEFAULT)."""
    rest = next((points for name, (_, points) in owners.items() if name.upper() == "DEFAULT"), 0.0)
    for index, (entry, points) in owners.items():
        setting = f"{entry.setting} PRIORITY"
        if index.upper() == "DEFAULT":
            message = f"subtracted from the points of the named {kind}s, which keeps the order"
            done.note(Verdict.TRANSLATED, entry.line, setting, message)
            continue
        table = done.table("classes").setdefault(f"{kind}-{index}", {})
        table |= {"points": (points - rest) * weight, f"{kind}s": [index]}
        done.note(Verdict.TRANSLATED, entry.line, setting, "a class in classes")
