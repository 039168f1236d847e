"""Texts about extensions of walltimes for the job's readers."""

from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.walltime_extensions.settings import WalltimeExtensionSettings
from schedd.features.walltime_extensions.state import PublishedExtensions


def describe_extension(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """Return the extension of a run's walltime, the requested one, and why no more was added."""
    one = published.part(PublishedExtensions).runs.get(record.id)
    if one is None or record.phase is not Phase.RUNNING or one.started != record.run.started:
        return []
    found = []
    if one.times:
        most = published.settings.site.part(WalltimeExtensionSettings).times
        found.append(
            f"its walltime was extended by {_length(one.added)} at {format_moment(one.last)} "
            f"({one.times} of {max(one.times, most)} extensions)"
        )
    if one.decision:
        found.append(f"the server is asked to extend its walltime by {_length(one.walltime - one.before)}")
    elif one.refusal:
        more = " once more" if one.times else ""
        found.append(f"its walltime was not extended{more}: {one.refusal}")
    return found


def _length(seconds: int) -> str:
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} min"
