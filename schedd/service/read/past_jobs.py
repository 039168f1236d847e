"""Jobs that have left the plan, read from the database."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import JobVisibility
from schedd.store.records import JobHistory, TimelineEntry

_MOST = 500


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job with the latest entries of its timeline; ``left_out``: number of earlier entries."""

    job: JobHistory
    moments: Sequence[TimelineEntry]
    left_out: int

    @property
    def published_start(self) -> int | None:
        return self._last_start("published")

    @property
    def expected_start(self) -> int | None:
        return self._last_start("forecast")

    @property
    def promised_start(self) -> int | None:
        return self._last_start("promise")

    def _last_start(self, kind: str) -> int | None:
        return next((one.start for one in reversed(self.moments) if one.kind == kind), None)


def past_job(clusters: Clusters, loop: PlanLoop, wanted: str, seen: JobVisibility) -> PastJob | None:
    """Return a past job; its id may lack the server's name. None if it is unknown or not visible.

    None without a database, too. Blocks. Raises StoreError.
    """
    if clusters.durable is None:
        return None
    store = clusters.durable.store
    cluster = store.find_cluster(loop.name)
    past = store.job_history(cluster, wanted) if cluster is not None else None
    if cluster is None or past is None or not seen.shows_owner(past.owner):
        return None
    own_entries = dict.fromkeys(store.job_timeline(cluster, past.id))  # events may be delivered twice
    moments = [_redact_entry(one, seen, loop) for one in own_entries]
    return PastJob(past, tuple(moments[-_MOST:]), max(0, len(moments) - _MOST))


def ended_jobs(clusters: Clusters, loop: PlanLoop, since: int, most: int) -> Sequence[JobHistory]:
    """Return the newest jobs that ran and ended at ``since`` or later; none without a database.

    Blocks. Raises StoreError.
    """
    if clusters.durable is None:
        return ()
    store = clusters.durable.store
    cluster = store.find_cluster(loop.name)
    return store.jobs_ended_since(cluster, since, most) if cluster is not None else ()


def ended_array_jobs(clusters: Clusters, loop: PlanLoop, array: str, most: int) -> Sequence[JobHistory]:
    """Return up to ``most`` ended jobs of an array; none without a database. Blocks. Raises StoreError."""
    if clusters.durable is None:
        return ()
    store = clusters.durable.store
    cluster = store.find_cluster(loop.name)
    return store.ended_subjobs(cluster, array, most) if cluster is not None else ()


def _redact_entry(moment: TimelineEntry, seen: JobVisibility, loop: PlanLoop) -> TimelineEntry:
    """Replace other users' jobs by their number; the event that broke or ended a promise names jobs, too."""
    words = moment.text
    if moment.kind in ("breach", "risk", "promise") and seen.viewer is not None:
        words = words.partition(", by ")[0]
    return replace(moment, text=seen.redact_text(words, loop.published))
