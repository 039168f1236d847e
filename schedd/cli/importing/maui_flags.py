"""Flags of jobs in Maui and Moab: FLAGS, JOBFLAGS and QFLAGS. Meanings: Maui Administrator's Guide, 7.3."""

from collections.abc import Mapping
from typing import Final

from schedd.cli.importing.maui_entries import MauiEntry
from schedd.cli.importing.maui_preemption import PLANNED_FLAGS, PREEMPTION_FLAGS, is_selected_by_preemption
from schedd.cli.importing.result import ImportResult, Verdict

FLAG_NAMES: Final = ("FLAGS", "JOBFLAGS", "QFLAGS")
NO_PREEMPTOR: Final = "it has no effect, since this file lets no job preempt others"
NO_PREEMPTION: Final = (
    "running jobs are preempted only if the table preemption selects them: write it "
    "(docs/administrators/preemption.md)"
)
_NO_EXEMPTION: Final = (
    "a flag cannot exempt jobs from limits: write each limit in [[limits]] once for each QOS that has it, "
    "with qos = NAME"
)
_ON_QUEUE: Final = "make {0} a default of the queue: qmgr -c 'set queue QUEUE resources_default.{0}'"
_FLAGS: Final[Mapping[str, tuple[Verdict, str]]] = {
    **dict.fromkeys(PLANNED_FLAGS, (Verdict.NOT_NEEDED, "every job has a planned start")),
    "DEDICATED": (
        Verdict.BLOCKER,
        f"nodes would be shared: {_ON_QUEUE.format('naccesspolicy = singlejob')}",
    ),
    "NOBF": (Verdict.DIFFERS, "these jobs fill gaps, too; that delays no other job"),
    "NORESERVATION": (
        Verdict.DIFFERS,
        "these jobs have a planned start, like all others: give them a low priority",
    ),
    "NTR": (
        Verdict.DIFFERS,
        "no flag puts a job first: give the QOS the highest priority in qos.levels",
    ),
    "RESTARTABLE": (Verdict.NOT_NEEDED, "schedd uses the option -r of qsub instead"),
    "NORMSTART": (Verdict.NOT_NEEDED, "only the server starts jobs"),
    "USERESERVED": (
        Verdict.BLOCKER,
        "the jobs would not use the reservation: name their users, groups, accounts or queues in it",
    ),
    "ADVRES": (
        Verdict.BLOCKER,
        "it cannot be set for all jobs: each job requests it with -W x=FLAGS:ADVRES",
    ),
    "ENABLEUSERRSV": (
        Verdict.DIFFERS,
        "the table bookings lets all users book, up to bookings.most",
    ),
    "DEADLINE": (Verdict.DIFFERS, "every job may have a deadline: see the table deadlines"),
    "SUSPENDABLE": (Verdict.DIFFERS, "preemption.methods decides for all jobs whether they may be suspended"),
    "PROVISION": (Verdict.DIFFERS, "schedd does not provision nodes"),
    "SHAREDRESOURCE": (Verdict.BLOCKER, "jobs on a node never share cores"),
    "VIRTUAL": (Verdict.BLOCKER, "every job occupies its nodes"),
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
"""Flags that may be followed by names of reservations."""


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
        verdict, message = _FLAGS.get(flag, (Verdict.BLOCKER, f"schedd has no equivalent of the flag {flag}"))
        if "PREEMPT" in flag and not preempts:
            verdict, message = Verdict.NOT_NEEDED, NO_PREEMPTOR
        elif flag in PREEMPTION_FLAGS and selected:
            verdict, message = Verdict.TRANSLATED, "preemptors and targets of the table preemption"
        done.note(verdict, entry.line, f"{setting} {flag}" if len(flags) > 1 else setting, message)
