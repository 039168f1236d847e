"""Preemption in Maui and Moab (PREEMPTOR, PREEMPTEE, PREEMPTPOLICY), translated to the table preemption."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.result import ImportResult, Verdict, duration

_SELECTORS: Final[Mapping[str, str]] = {
    "USERCFG": "users",
    "GROUPCFG": "groups",
    "ACCOUNTCFG": "accounts",
    "CLASSCFG": "queues",
    "QOSCFG": "qos",
}
PLANNED_FLAGS: Final = frozenset({"RESERVEALWAYS", "RESERVED", "RUNNOW"})
"""Flags that request a planned start, which every job has."""
_ROLES: Final[Mapping[str, str]] = {"PREEMPTOR": "preemptors", "PREEMPTEE": "targets"}
PREEMPTION_FLAGS: Final = frozenset(_ROLES)
_ALL: Final = frozenset({"", "ALL", "BASE", "DEFAULT"})
_LONGEST_S: Final = 3660 * 86_400
MIN_RUN: Final = "JOBPREEMPTMINACTIVETIME"
_POLICIES: Final[Mapping[str, str]] = {
    "SUSPEND": "suspend",
    "CHECKPOINT": "checkpoint",
    "REQUEUE": "requeue",
}


def translate_preemption(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Write the table preemption, if the file names jobs that may preempt others."""
    table: dict[str, dict[str, list[str]]] = {}
    for entry in entries:
        for role, selector in _roles(entry):
            names = table.setdefault(role, {}).setdefault(selector, [])
            if entry.index not in names:
                names.append(entry.index)
    if "preemptors" not in table:
        return
    done.table("preemption").update(table)
    for entry in entries:
        if entry.name in ("PREEMPTPOLICY", "PREEMPTIONPOLICY"):
            _translate_policy(entry, done)
        elif entry.name == MIN_RUN:
            _translate_min_run(entry, done)


def is_selected_by_preemption(entry: MauiEntry, done: ImportResult) -> bool:
    """Return whether the table preemption was written, and includes the flags of this entry."""
    return "preemption" in done.site and any(True for _ in _roles(entry))


def _roles(entry: MauiEntry) -> Iterator[tuple[str, str]]:
    """Yield the roles of the jobs of an entry, each with the name of the list that selects them."""
    selector = _SELECTORS.get(entry.name)
    if selector is None or entry.index.upper() in _ALL:
        return
    for name, _, value in entry.attributes():
        if name in ("FLAGS", "JOBFLAGS", "QFLAGS"):
            words = value.upper().replace(":", ",").split(",")
            for word, role in _ROLES.items():
                if word in words:
                    yield role, selector


def _translate_min_run(entry: MauiEntry, done: ImportResult) -> None:
    try:
        least = duration(entry.value)
        if least > _LONGEST_S:
            raise ValueError(f"{entry.value} is longer than ten years")
        done.table("preemption")["min_run"] = least
    except ValueError as error:
        done.note(
            Verdict.BLOCKER,
            entry.line,
            entry.setting,
            f"not understood, so that a job may be preempted as soon as it runs: {error}",
        )
    else:
        message = f"preemption.min_run = {done.table('preemption')['min_run']}"
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, message)


def _translate_policy(entry: MauiEntry, done: ImportResult) -> None:
    method = _POLICIES.get(entry.value.strip().upper())
    if method is None:
        message = f"preemption.methods has no {entry.value}: only suspend, checkpoint and requeue"
        done.note(Verdict.BLOCKER, entry.line, entry.setting, message)
        return
    done.table("preemption")["methods"] = [method]
    done.note(Verdict.TRANSLATED, entry.line, entry.setting, f"preemption.methods = {method}")
