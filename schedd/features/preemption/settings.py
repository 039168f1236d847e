"""Settings of preemption: ``[clusters.NAME.site.preemption]``."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.job_selection import JobSelection
from schedd.policy.site_tables import WindowText
from schedd.wire.facts import PreemptionMethod
from schedd.wire.section import Section, SettingConflictError
from schedd.wire.times import Seconds, Step

_ResourceName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,254}$")]


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"{', '.join(names)}: write each name only once")
    return names


_HARMLESS_SIGNALS: Final = frozenset({"CHLD", "CONT", "URG", "WINCH", "17", "18", "23", "28"})
"""Signals that by default leave a process running; numbers of Linux."""


class PreemptionSettings(Section):
    """Preemption: `preemptors` may start in place of running `targets` and `scavengers`, which return to
    their queue or are suspended. See docs/administrators/preemption.md.
    """

    preemptors: JobSelection = JobSelection()
    """Jobs for which others are preempted: `{queues = ["urgent"]}`. Without it no job is preempted."""
    targets: JobSelection = JobSelection()
    """Running jobs that may be preempted: `{queues = ["batch"]}`. A preemptor is never a target."""
    scavengers: JobSelection = JobSelection()
    """Jobs that fill gaps: they are planned last, get no promise, and are preempted before any target."""
    methods: Annotated[tuple[PreemptionMethod, ...], Field(min_length=1), AfterValidator(_distinct)] = (
        "requeue",
    )
    """How jobs are preempted, in order of preference: `suspend`, `checkpoint` (only jobs that declare it by
    `qsub -c`), `requeue` (not those with `qsub -r n`). A later method is used if the job does not permit an
    earlier one, or if earlier ones do not free enough resources.
    """
    released: Annotated[tuple[_ResourceName, ...], AfterValidator(_distinct)] = ("ncpus",)
    """Resources of nodes that a suspended job releases, such as `ncpus`, `ngpus`, `mem`; all others stay
    taken. The attribute `restrict_res_to_release_on_suspend` of an OpenPBS server takes precedence.
    """
    wait: Seconds = 0
    """A preemptor that can start within this time without a preemption waits."""
    gain: Step = 60
    """A job is preempted only if the preemptor starts at least this much earlier."""
    min_run: Seconds = 0
    """A job is preempted only after it has run for this long."""
    rest: Seconds = 21_600
    """A job that was preempted is not preempted again within this time."""
    signal: Annotated[str, Field(pattern=r"^(|[A-Z0-9+]{1,20})$")] = ""
    """Signal sent before a job is preempted; empty: none. Use one that is ignored by default, such as `URG`:
    others end a job, even if its script catches them, and it is then not requeued."""
    grace: Seconds = 0
    """Time between the signal and the preemption."""
    release_time: Step = 30
    """Expected time from the request to preempt a job until the server shows its cores free."""
    charged: Literal["owner", "preemptor", "nobody"] = "owner"
    """Whose fair share is charged for the lost work of a preempted run: its `owner`, the owner of the
    `preemptor`, or `nobody`. Accounts are charged as for every run.
    """
    windows: tuple[WindowText, ...] = ()
    """Windows for the begin of preemptions, each as
    `2026-01-05T08:00/2026-01-05T18:00 FREQ=DAILY Europe/Berlin`; none: always."""

    @property
    def lead(self) -> int:
        """Seconds from the decision until the cores are free."""
        return self.release_time + (self.grace if self.signal else 0)


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for a grace time without effect."""
    table = plain.get("preemption") or {}
    if table.get("grace") and not table.get("signal"):
        raise SettingConflictError(
            ("preemption", "grace"), "it is the time after the signal: also set signal"
        )


def _obeyed(table: Mapping[str, Any]) -> frozenset[str]:
    """Return the resource that restricts the victims of a preemptor."""
    return frozenset({"preempt_targets"}) if table.get("preemptors") else frozenset()


def _advise(plain: Mapping[str, Any]) -> Iterator[str]:
    """Warn of a signal that usually ends a job."""
    signal = str((plain.get("preemption") or {}).get("signal", "")).removeprefix("SIG")
    if signal and signal not in _HARMLESS_SIGNALS:
        yield (
            f"preemption.signal: {signal} ends a job even if its script catches it, since the shell above "
            "the script gets it, too, and an ended job is not requeued; URG is ignored by default"
        )


SETTINGS: Final = FeatureSettings(
    table="preemption",
    model=PreemptionSettings,
    check=_check_site,
    obeys=_obeyed,
    advice=_advise,
    about="Planned preemption: `[clusters.main.site.preemption]`.",
    heading="Preemption",
)
