"""Events and decisions for tests of the store."""

from collections.abc import Iterable

from schedd.wire import (
    Alert,
    JobDeleted,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeFacts,
    Run,
    RunAccepted,
    RunRefused,
    ShareFacts,
    Snapshot,
    WriteAttributes,
)


def facts(job: str, **other: object) -> JobFacts:
    chosen: dict[str, object] = {"owner": "ann", "queue": "q", "submitted": 900, **other}
    return JobFacts(id=job, resources={"nodes": "1:ppn=2", "walltime": "01:00:00"}, **chosen)  # type: ignore[arg-type]


def queued(number: int, time: int = 1000) -> JobQueued:
    return JobQueued(id=f"epoch:{number}", time=time, job=facts(f"{number}.srv"))


def deleted(number: int, job: int, time: int = 1000) -> JobDeleted:
    return JobDeleted(id=f"epoch:{number}", time=time, job_id=f"{job}.srv")


def started(number: int, job: str, time: int) -> JobStarted:
    return JobStarted(id=f"epoch:{number}", time=time, job_id=job, shares=(ShareFacts("n1", 2),))


def accepted(number: int, decision: str, job: str, time: int) -> RunAccepted:
    return RunAccepted(id=f"epoch:{number}", time=time, decision_id=decision, job_id=job)


def refused(number: int, decision: str, job: str, time: int, code: int = 15046) -> RunRefused:
    return RunRefused(
        id=f"epoch:{number}", time=time, decision_id=decision, job_id=job, code=code, text="busy"
    )


def snapshot(number: int, jobs: int, time: int = 1000) -> Snapshot:
    return Snapshot(
        id=f"epoch:{number}",
        time=time,
        jobs=tuple(facts(f"{job}.srv") for job in range(jobs)),
        nodes=(NodeFacts(name="n1", cpus=4, mem=1 << 20, resources={"licence": 3}, properties=("fast",)),),
    )


def run(number: int, job: str, time: int = 1000) -> Run:
    return Run(
        id=f"d{number:012d}",
        cause="epoch:1",
        time=time,
        job_id=job,
        shares=(ShareFacts("n1", 2, 1024),),
        version="v1",
        expires=time + 60,
    )


def write_attributes(number: int, job: str, start: int | None, time: int = 1000) -> WriteAttributes:
    return WriteAttributes(
        id=f"d{number:012d}",
        cause="epoch:1",
        time=time,
        job_id=job,
        planned_start=start,
        planned_end=start + 3600 if start is not None else None,
        planned_nodes=("n1",) if start is not None else (),
        text="planned",
    )


def alert(number: int, time: int = 1000) -> Alert:
    return Alert(id=f"d{number:012d}", cause="epoch:1", time=time, kind="error", text="ouch \u2014 \x00 end")


class StoredState:
    """A fake engine state for checkpoints: the given bytes, and no facts."""

    def __init__(self, parts: Iterable[bytes | memoryview] = (), size: int = 0) -> None:
        self._parts = parts
        self.size = size

    def parts(self) -> Iterable[bytes | memoryview]:
        return self._parts

    def facts(self) -> Iterable[bytes]:
        return ()
