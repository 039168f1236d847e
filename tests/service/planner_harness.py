"""Builders of events, and running planners on a stopped clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import structlog

from schedd.engine import EngineSettings
from schedd.engine.show.job_view import JobView, render_job
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import new_engine
from schedd.service.read.plan_lists import Page, job_listing
from schedd.store import BatchJournal, MemoryJournal
from schedd.wire import JobFacts, JobQueued, NodeChanged, NodeFacts

# Log messages in tests are plain: the default renderer draws pictures of tracebacks, which takes seconds.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])

T = 1_700_000_000
GIB = 1 << 20
_numbers = count(1)


class StillClock:
    """A clock that a test sets; a wait for a future moment never ends by itself."""

    def __init__(self, now: float = T) -> None:
        self.moment = now

    def now(self) -> float:
        return self.moment

    def wait_for(self, moment: float) -> float:
        return 0.0 if moment <= self.moment else 3600.0


def event_id() -> str:
    return f"test:{next(_numbers)}"


def job(job_id: str, *, user: str = "ann", queue: str = "batch", **resources: str) -> JobQueued:
    asked = {"nodes": "1:ppn=4", "walltime": "3600", **resources}
    facts = JobFacts(id=job_id, owner=f"{user}@login", queue=queue, submitted=T, resources=asked, version="1")
    return JobQueued(id=event_id(), time=T, job=facts)


def node(name: str, cpus: int = 4, **facts: object) -> NodeChanged:
    return NodeChanged(
        id=event_id(),
        time=T,
        node=NodeFacts(name=name, cpus=cpus, mem=8 * GIB, **facts),  # type: ignore[arg-type]
    )


@contextmanager
def planner(
    journal: BatchJournal | None = None,
    *,
    most_pending: int = 200_000,
    incidents: IncidentFiles | None = None,
    **settings: float | bool | str | dict[str, Any],
) -> Iterator[PlanLoop]:
    """A running planner, on a stopped clock."""
    chosen = EngineSettings(validate=True, **settings)  # type: ignore[arg-type]
    loop = PlanLoop(
        "main",
        new_engine(chosen, T),
        journal or MemoryJournal(),
        StillClock(),
        incidents=incidents,
        most_pending=most_pending,
    )
    loop.start()
    try:
        yield loop
    finally:
        loop.stop()


def views(published: PlanSnapshot, **options: Any) -> Page[JobView]:
    """A page of jobs in full."""
    page = job_listing(published, **options)
    return Page(tuple(render_job(published, record) for record in page.records), page.next)
