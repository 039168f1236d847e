"""Translation of Maui's maui.cfg, and of the parameters that Moab's moab.cfg shares with it, to schedd.toml.

Names and meanings follow the Maui Administrator's Guide, appendix F (parameters), 5.1 (priorities), 6.2
(throttling policies), 6.3 (fair share) and 13.2 (what a request to PBS means).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from schedd.cli.importing.maui_entries import MauiEntry, parse_entries
from schedd.cli.importing.maui_fair_share import FAIR_SHARE, translate_fair_share
from schedd.cli.importing.maui_flags import NO_PREEMPTOR
from schedd.cli.importing.maui_limits import CREDENTIALS, translate_credential
from schedd.cli.importing.maui_node_sets import NODE_SETS, translate_node_sets
from schedd.cli.importing.maui_nodes import (
    translate_node_order,
    translate_nodes,
    translate_partition_node_orders,
)
from schedd.cli.importing.maui_parameters import MOAB_ALONE, MOAB_PARAMETERS, OFF, PARAMETERS
from schedd.cli.importing.maui_partitions import translate_partitions
from schedd.cli.importing.maui_preemption import MIN_RUN, translate_preemption
from schedd.cli.importing.maui_qos import translate_qos
from schedd.cli.importing.maui_reservations import translate_reservations
from schedd.cli.importing.maui_share_tree import SHARE_TREE
from schedd.cli.importing.maui_weights import WEIGHTS, MauiWeights, scale_to_bounds, translate_own_priorities
from schedd.cli.importing.result import NO_TRIGGER, ImportResult, Verdict, duration

_ELSEWHERE = frozenset({*WEIGHTS, *FAIR_SHARE, *NODE_SETS, "SRCFG", "NODECFG"})
_MANY = frozenset(
    {*CREDENTIALS, "SRCFG", "NODECFG", "QOSCFG", "PARCFG", "RMCFG", "AMCFG", "RSVPROFILE", SHARE_TREE}
)
"""Parameters that may have several lines, even with the same index; all of the lines count."""
_MOAB_ALONE = {
    "POWERPOLICY": "set mode of power_saving, and the commands of the adapter's [power] "
    "(docs/administrators/power.md); nodes that Moab switched off stay off until you switch them on",
    "NODEIDLEPOWERTHRESHOLD": "set idle of power_saving (docs/administrators/power.md)",
    "SUBMITFILTER": "schedd does not see submissions: use the submit filter of qsub",
    "REMAPCLASS": "schedd does not move jobs to other queues: use routing queues of the server",
    "REMAPCLASSLIST": "schedd does not move jobs to other queues: use routing queues of the server",
    "JOBCFG": "schedd has no job templates",
    "JOBMATCHCFG": "schedd has no job templates",
    "GRESCFG": "see limits of generic resources in docs/administrators/policy.md",
    "IDCFG": "schedd reads limits and shares only from schedd.toml: write them there",
}


def import_maui(text: str, today: date, zone: str = "UTC", moab: bool = False) -> ImportResult:
    """Return the settings equivalent to a maui.cfg, with a finding for each of its parameters.

    Windows of reservations begin in the week of ``today``; times in the file are in ``zone``. With ``moab``
    the file is a moab.cfg, and unknown parameters are blockers.
    """
    done = ImportResult(unknown=Verdict.BLOCKER if moab else Verdict.DIFFERS)
    if moab:
        message = (
            "this is Moab's configuration: parameters that Maui has, too, are read as Maui reads them. "
            "Check each line"
        )
        done.note(Verdict.DIFFERS, 0, "Moab", message)
    entries = _drop_repeated(list(_flatten_partitions(parse_entries(text, done), done)), done)
    weights = MauiWeights(entries, done, moab)
    fair = translate_fair_share(weights, entries, done, moab)
    weights.translate(entries, fair, done)
    translate_own_priorities(weights, entries, done)
    levels = translate_qos(weights, entries, done)
    if not weights.write_formula(done):
        scale_to_bounds(done)
    used = [entry for entry in entries if entry.name != "QOSCFG" or entry.index in levels]
    preempts = _may_preempt(used)
    translate_preemption(used, done)
    nodes = [entry for entry in entries if entry.name == "NODECFG"]
    translate_nodes(entries, done)
    for entry in used:
        _translate_entry(entry, done, nodes, preempts=preempts)
    translate_partitions(entries, done)
    translate_partition_node_orders(entries, done)
    translate_node_sets(entries, done)
    translate_reservations(entries, today, zone, done)
    _translate_node_rule(entries, done)
    done.findings.sort(key=lambda finding: finding.line)
    return done


def _drop_repeated(entries: list[MauiEntry], done: ImportResult) -> list[MauiEntry]:
    """Return the entries without those that a later line repeats."""
    last = {(entry.name, entry.index): entry for entry in entries if entry.name not in _MANY}
    for entry in entries:
        other = last.get((entry.name, entry.index), entry)
        if other is not entry:
            message = f"line {other.line} sets it again, and counts: remove one of them"
            done.note(Verdict.DIFFERS, entry.line, entry.setting, message)
    return [entry for entry in entries if last.get((entry.name, entry.index), entry) is entry]


def _flatten_partitions(entries: Iterable[MauiEntry], done: ImportResult) -> Iterator[MauiEntry]:
    """Return the entries; attributes of PARCFG[ALL] become global parameters."""
    for entry in entries:
        if entry.name != "PARCFG" or entry.index.upper() not in ("", "ALL", "DEFAULT"):
            yield entry
            continue
        message = "it applies to all nodes: its attributes are read as global parameters"
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, message)
        for name, index, value in entry.attributes():
            if name == "TRIGGER":
                done.note(Verdict.DIFFERS, entry.line, f"{entry.setting} {name}", NO_TRIGGER)
            else:
                yield MauiEntry(entry.line, name, index, value)


def _may_preempt(entries: Iterable[MauiEntry]) -> bool:
    """Return whether the file lets any job preempt others; if not, PREEMPTEE has no effect."""
    return any(
        "PREEMPTOR" in entry.value.upper()
        or "OWNERPREEMPT" in entry.value.upper()
        or (entry.name == "BACKFILLPOLICY" and entry.value.upper() == "PREEMPT")
        for entry in entries
    )


def _translate_entry(
    entry: MauiEntry, done: ImportResult, nodes: Sequence[MauiEntry], *, preempts: bool
) -> None:
    name, value = entry.name, entry.value.upper()
    if name in _ELSEWHERE or name == "JOBNODEMATCHPOLICY":
        return
    if name == SHARE_TREE and done.unknown is Verdict.BLOCKER:
        return  # of Moab: with fair share
    if name in CREDENTIALS:
        translate_credential(entry, done, preempts=preempts)
    elif name == "ALLOWMULTIREQNODEUSE":
        pass  # with the rule for units
    elif name == "NODEALLOCATIONPOLICY" and translate_node_order(entry, nodes, done):
        pass
    elif name == "USEMACHINESPEED" and "speeds" in done.site:
        pass  # with the speeds of nodes
    elif name == "PARCFG":
        pass  # with the partitions
    elif name == "NODEACCESSPOLICY":
        _translate_access_policy(entry, done)
    elif name == "JOBMAXOVERRUN":
        _translate_overrun(entry, done)
    elif name in ("NODECPUOVERCOMMITFACTOR", "NODEMEMOVERCOMMITFACTOR") and value in ("1", "1.0"):
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, "a factor of 1 does not overcommit nodes")
    elif name in PARAMETERS:
        if name in ("PREEMPTPOLICY", "PREEMPTIONPOLICY", MIN_RUN) and "preemption" in done.site:
            return
        if name == "PREEMPTPRIOJOBSELECTWEIGHT" and "preemption" in done.site:
            message = "scavengers are preempted first, then the jobs with the least lost work"
            done.note(Verdict.DIFFERS, entry.line, entry.setting, message)
            return
        verdict, message = PARAMETERS[name]
        if value in OFF and verdict is not Verdict.NOT_NEEDED:
            verdict, message = Verdict.NOT_NEEDED, "it is off"
        elif not preempts and "PREEMPT" in name:
            verdict, message = Verdict.NOT_NEEDED, NO_PREEMPTOR
        done.note(verdict, entry.line, entry.setting, message)
    elif name in MOAB_PARAMETERS and done.unknown is Verdict.BLOCKER:
        verdict, message = MOAB_PARAMETERS[name]
        done.note(verdict, entry.line, entry.setting, message)
    elif name in _MOAB_ALONE:
        off = value in OFF
        message = "it is off" if off else _MOAB_ALONE[name]
        done.note(Verdict.NOT_NEEDED if off else Verdict.BLOCKER, entry.line, entry.setting, message)
    elif name in ("INCLUDE", "IMPORT"):
        done.note(
            Verdict.BLOCKER,
            entry.line,
            entry.setting,
            "it names another file, which is not read: insert its contents here and import again",
        )
    elif name in MOAB_ALONE and done.unknown is not Verdict.BLOCKER:
        done.note(
            Verdict.BLOCKER,
            entry.line,
            entry.setting,
            "a parameter of Moab: import the file again with --from moab",
        )
    else:
        done.note_undocumented(
            entry.line, entry.setting, "Moab" if done.unknown is Verdict.BLOCKER else "Maui"
        )


def _translate_access_policy(entry: MauiEntry, done: ImportResult) -> None:
    if entry.value.upper() == "SHARED":
        message = "nodes are shared unless a job requests otherwise"
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, message)
    else:
        message = (
            "nodes are shared unless jobs request whole nodes: set naccesspolicy in resources_default of "
            "the queues"
        )
        done.note(Verdict.BLOCKER, entry.line, entry.setting, message)


def _translate_overrun(entry: MauiEntry, done: ImportResult) -> None:
    try:
        done.cluster["end_allowance"] = duration(entry.value.rpartition(",")[2])
    except ValueError:
        message = f"{entry.value!r} is not understood, and is ignored"
        done.note(Verdict.DIFFERS, entry.line, entry.setting, message)
    else:
        message = (
            f"end_allowance = {done.cluster['end_allowance']} s; pbs_server or the mom ends the job, "
            "not schedd"
        )
        done.note(Verdict.DIFFERS, entry.line, entry.setting, message)


def _translate_node_rule(entries: Sequence[MauiEntry], done: ImportResult) -> None:
    """Set node_rule: the units of a request may share nodes unless the file has EXACTNODE."""
    entry = next((one for one in entries if one.name == "JOBNODEMATCHPOLICY"), None)
    policy = set(re.findall(r"[A-Z]+", entry.value.upper())) if entry is not None else set()
    rule = "exact" if "EXACTNODE" in policy else "pack"
    done.cluster["node_rule"] = rule
    if entry is None:
        message = (
            'not in the file; by default Maui lets the units of a request share nodes: node_rule = "pack"'
        )
        done.note(Verdict.TRANSLATED, 0, "JOBNODEMATCHPOLICY", message)
    elif "EXACTPROC" in policy:
        message = (
            f'node_rule = "{rule}"; jobs may also run on nodes that have more processors than they request'
        )
        done.note(Verdict.BLOCKER, entry.line, entry.setting, message)
    else:
        done.note(Verdict.TRANSLATED, entry.line, entry.setting, f'node_rule = "{rule}"')
    for one in entries:
        if one.name == "ALLOWMULTIREQNODEUSE":
            _translate_node_sharing(one, rule, done)


def _translate_node_sharing(entry: MauiEntry, rule: str, done: ImportResult) -> None:
    """Add a finding: whether parts of one request (``nodes=A+B``) may share a node."""
    allowed = entry.value.upper() not in OFF
    if allowed == (rule == "pack"):
        message = f'node_rule = "{rule}" has the same effect'
        done.note(Verdict.NOT_NEEDED, entry.line, entry.setting, message)
    elif allowed:
        message = 'with node_rule = "exact" the parts of a request are on different nodes'
        done.note(Verdict.DIFFERS, entry.line, entry.setting, message)
    else:
        message = 'with node_rule = "pack" the parts of a request may share a node'
        done.note(Verdict.DIFFERS, entry.line, entry.setting, message)
