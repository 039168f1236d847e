"""Flags of jobs in Maui and Moab: FLAGS, JOBFLAGS and QFLAGS. Meanings: Maui Administrator's Guide, 7.3."""

from collections.abc import Mapping
from typing import Final

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.maui_preemption import PLANNED_FLAGS, PREEMPTION_FLAGS, is_selected_by_preemption
from schedd.cli.importing.result import ImportResult, Verdict

FLAG_NAMES: Final = ("FLAGS", "JOBFLAGS", "QFLAGS")
NO_PREEMPTOR: Final = "no job may preempt others by this file, so that nothing follows from it"
NO_PREEMPTION: Final = "running jobs are stopped for others only by the table preemption"
_NO_EXEMPTION: Final = (
    "no job is exempt from a limit: write the limit as one of [[limits]] with qos = NAME for each QOS that "
    "has it"
)
_ON_QUEUE: Final = "make {0} a default of a queue: qmgr -c 'set queue QUEUE resources_default.{0}'"
_FLAGS: Final[Mapping[str, tuple[Verdict, str]]] = {
    **dict.fromkeys(PLANNED_FLAGS, (Verdict.NO_MATTER, "every job has a planned start")),
    "DEDICATED": (
        Verdict.BLOCKER,
        f"nodes would be shared: {_ON_QUEUE.format('naccesspolicy = singlejob')}",
    ),
    "NOBF": (Verdict.DIFFERS, "gaps are filled with these jobs, too, which delays no other job"),
    "NORESERVATION": (Verdict.DIFFERS, "every job has a planned start, these too: give them a low priority"),
    "NTR": (
        Verdict.DIFFERS,
        "no job is next by a flag: give the QOS the highest priority in qos.levels",
    ),
    "RESTARTABLE": (Verdict.NO_MATTER, "it is qsub -r of the job"),
    "NORMSTART": (Verdict.NO_MATTER, "jobs are started by the server only"),
    "USERESERVED": (
        Verdict.BLOCKER,
        "jobs would not use the reservation: name their users, groups, accounts or queues in the reservation",
    ),
    "ADVRES": (
        Verdict.BLOCKER,
        "not kept for all jobs: let jobs request it with -W x=FLAGS:ADVRES",
    ),
    "ENABLEUSERRSV": (
        Verdict.DIFFERS,
        "users may have bookings by the table bookings, for all users: bookings.most",
    ),
    "DEADLINE": (Verdict.DIFFERS, "any job may have a deadline: see the table deadlines"),
    "SUSPENDABLE": (Verdict.DIFFERS, "preemption.methods says for all jobs whether they are suspended"),
    "PROVISION": (Verdict.DIFFERS, "nodes are not provisioned"),
    "SHAREDRESOURCE": (Verdict.BLOCKER, "the jobs of a node take no cores from each other"),
    "VIRTUAL": (Verdict.BLOCKER, "every job holds its nodes"),
    **dict.fromkeys(
        (
            *PREEMPTION_FLAGS,
            "PREEMPTSPV",
            "SPANEVICT",
            "OWNERPREEMPT",
            "OWNERPREEMPTIGNOREMINTIME",
            "RESTARTPREEMPT",
            "PREEMPTCONFIG",
        ),
        (Verdict.BLOCKER, NO_PREEMPTION),
    ),
    **dict.fromkeys(
        (
            *(
                "IGNALL",
                "IGNJOBPERUSER",
                "IGNJOBPERGROUP",
                "IGNJOBPERACCOUNT",
                "IGNJOBQUEUEDPERUSER",
                "IGNPOLICIES",
            ),
            *(
                "IGNJOBQUEUEDPERGROUP",
                "IGNJOBQUEUEDPERACCOUNT",
                "IGNPROC",
                "IGNPROCPERUSER",
                "IGNMAXJOB",
                "IGNMAXPE",
            ),
            *(
                "IGNMAXNODE",
                "IGNMAXPROC",
                "IGNMAXPS",
                "IGNMAXTIME",
                "IGNMAXWC",
                "IGNSRMAXTIME",
                "IGNTIME",
                "IGNNODE",
            ),
            *("IGNUSER", "IGNSYSTEM", "IGNNODECOUNT", "IGNPE", "IGNPS", "IGNIDLEJOBS"),
        ),
        (Verdict.BLOCKER, _NO_EXEMPTION),
    ),
}
_KNOWN: Final = _FLAGS.keys()


_WITH_NAMES: Final = frozenset({"USERESERVED", "ADVRES"})
"""Flags that names of reservations may follow."""


def translate_flags(
    entry: MauiEntry, setting: str, value: str, done: ImportResult, *, preempts: bool
) -> None:
    """Add a finding for each flag of the jobs of a user, group, account, queue or QOS."""
    flags: list[str] = []
    for word in value.upper().replace(":", " ").replace(",", " ").split():
        if not (flags and flags[-1] in _WITH_NAMES and word not in _KNOWN):
            flags.append(word)
    selected = is_selected_by_preemption(entry, done)
    for flag in dict.fromkeys(flags):
        verdict, message = _FLAGS.get(flag, (Verdict.BLOCKER, f"there is no such flag of jobs: {flag}"))
        if "PREEMPT" in flag and not preempts:
            verdict, message = Verdict.NO_MATTER, NO_PREEMPTOR
        elif flag in PREEMPTION_FLAGS and selected:
            verdict, message = Verdict.TRANSLATED, "preemptors and targets of the table preemption"
        done.note(verdict, entry.line, f"{setting} {flag}" if len(flags) > 1 else setting, message)
