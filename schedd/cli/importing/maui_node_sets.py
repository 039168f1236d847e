"""Maui's node sets (NODESETPOLICY etc.): nodes with one of several features, used together."""

from collections.abc import Sequence

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.maui_parameters import OFF
from schedd.cli.importing.result import ImportResult, Verdict, duration

_KEPT_BY = ("NODESETPOLICY", "NODESETATTRIBUTE", "NODESETLIST", "NODESETDELAY")
_OPTIONAL = "NODESETISOPTIONAL"
NODE_SETS = frozenset({*_KEPT_BY, _OPTIONAL, "NODESETPRIORITYTYPE", "NODESETTOLERANCE"})
"""The parameters about node sets."""


def translate_node_sets(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Write the table node_sets, if the file keeps jobs on nodes with one of several features."""
    said = {entry.name: entry for entry in entries if entry.name in NODE_SETS}
    if not said:
        return
    policy, attribute = (
        said[name].value.upper() if name in said else "" for name in ("NODESETPOLICY", "NODESETATTRIBUTE")
    )
    names = said["NODESETLIST"].value.replace(",", " ").split() if "NODESETLIST" in said else []
    why = ""
    if policy not in ("ONEOF", "FIRSTOF"):
        why = "only the policies ONEOF and FIRSTOF keep a job on one set"
    elif attribute not in ("FEATURE", ""):
        why = (
            f"sets by {attribute} are not supported: give the nodes properties, and name these in "
            "node_sets.sets"
        )
    elif not names:
        why = "the file names no sets: name properties or nodes in node_sets.sets"
    if why:
        for entry in said.values():
            done.note(Verdict.DIFFERS, entry.line, entry.setting, why)
        return
    table = done.table("node_sets")
    table["sets"] = {name: [name] for name in names}
    for name in ("NODESETLIST", "NODESETATTRIBUTE"):
        if name in said:
            message = f"node_sets.sets: {', '.join(names)}"
            done.note(Verdict.TRANSLATED, said[name].line, name, message)
    first = policy == "FIRSTOF"
    message = (
        "the set that allows the earliest start is used, not the first of the list" if first else "node_sets"
    )
    verdict = Verdict.DIFFERS if first else Verdict.TRANSLATED
    done.note(verdict, said["NODESETPOLICY"].line, "NODESETPOLICY", message)
    # In Maui, with any delay except 0 a job waits for one set without a time limit.
    waits = "NODESETDELAY" in said and said["NODESETDELAY"].value.strip("0:") != ""
    forced = waits and done.unknown is not Verdict.BLOCKER
    strict = forced or (_OPTIONAL in said and said[_OPTIONAL].value.upper() in OFF)
    if strict:
        table["strict"] = True
    if _OPTIONAL in said:
        message = f"node_sets.strict = {str(strict).lower()}"
        done.note(Verdict.TRANSLATED, said[_OPTIONAL].line, _OPTIONAL, message)
    if forced:
        message = (
            "node_sets.strict = true: with any delay except 0, jobs in Maui wait for one set without a "
            "time limit"
        )
        done.note(Verdict.TRANSLATED, said["NODESETDELAY"].line, "NODESETDELAY", message)
    elif "NODESETDELAY" in said and strict:
        message = f"{_OPTIONAL} is off: a job waits for one set without a time limit"
        done.note(Verdict.NOT_NEEDED, said["NODESETDELAY"].line, "NODESETDELAY", message)
    elif "NODESETDELAY" in said:
        _translate_wait(said["NODESETDELAY"], table, done)
    for name in ("NODESETPRIORITYTYPE", "NODESETTOLERANCE"):
        if name in said and said[name].value.upper() == "BESTFIT":
            done.note(
                Verdict.NOT_NEEDED, said[name].line, name, "the smallest set that can hold the job is used"
            )
        elif name in said:
            message = "of the sets that are free at the same time, the smallest that can hold the job is used"
            done.note(Verdict.DIFFERS, said[name].line, name, message)


def _translate_wait(entry: MauiEntry, table: dict[str, object], done: ImportResult) -> None:
    try:
        table["wait"] = duration(entry.value)
    except ValueError:
        done.note(
            Verdict.DIFFERS, entry.line, entry.setting, f"{entry.value!r} is not understood, and is ignored"
        )
    else:
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, f"node_sets.wait = {table['wait']}")
