"""Dependencies between jobs of a replay: the server holds a job until its predecessor has ended."""

from collections.abc import Sequence
from dataclasses import replace

from schedd.replay.workload import TraceError, TraceJob
from schedd.wire import JobFacts, JobReleased


class JobDependencies:
    """The server's part of dependencies. Raises TraceError for a missing or later predecessor."""

    def __init__(self, jobs: Sequence[TraceJob]) -> None:
        self._head: dict[int, int] = {}
        self._behind: dict[int, list[int]] = {}
        self._waits: set[int] = set()
        self._done: set[int] = set()
        if not any(job.after is not None for job in jobs):
            return
        number = {job.id: i for i, job in enumerate(jobs)}
        for i, job in enumerate(jobs):
            if job.after is None:
                continue
            head = number.get(job.after)
            if head is None or head >= i:
                raise TraceError(
                    f"job {job.id} waits for job {job.after}, which is not among the jobs before it"
                )
            self._head[i] = head
            self._behind.setdefault(head, []).append(i)

    def queued(self, job: int, facts: JobFacts) -> JobFacts:
        """Return the facts of an arriving job, on hold while its predecessor has not ended."""
        head = self._head.get(job)
        if head is None or head in self._done:
            return facts
        self._waits.add(job)
        return replace(facts, depend=f"afterany:{head}", state="H", holds="s")

    def ended(self, job: int, now: int) -> list[JobReleased]:
        """Return the releases after the end of a job."""
        if job not in self._behind:
            return []
        self._done.add(job)
        free = [one for one in self._behind[job] if one in self._waits]
        self._waits.difference_update(free)
        return [JobReleased(id=f"r{one}", time=now, job_id=str(one)) for one in free]
