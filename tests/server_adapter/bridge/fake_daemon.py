"""A daemon in a few lines: the contract of events and decisions, and a first-come planner.

`python -m tests.server_adapter.bridge.fake_daemon PORT` serves it, for trials against a real server.
"""

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schedd.wire import (
    Alert,
    Decision,
    Event,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeFacts,
    Run,
    RunAccepted,
    RunRefused,
    ShareFacts,
    WriteAttributes,
)
from schedd.wire.adapter_troubles import decode_troubles
from server_adapter.bridge.event_effects import apply
from server_adapter.bridge.messages import decode_event
from server_adapter.bridge.state import ServerState

_log = logging.getLogger(__name__)
_DUMP: TypeAdapter[Decision] = TypeAdapter(Decision)
ACTIVE = ("R", "E", "S")


class FakeDaemon:
    """Keeps the state that events make, and plans first come, first served where `plan` is true."""

    def __init__(self, *, plan: bool = True, term: int = 1, clock: Callable[[], float] = time.time) -> None:
        self.plan = plan
        self.term = term
        self.clock = clock
        self.state = ServerState()
        self.events: list[Event] = []
        self.seen: set[str] = set()
        self.repeats = 0
        self.decisions: list[Decision] = []
        self.outstanding: dict[str, Run] = {}  # by job
        self.accepted: list[Run] = []
        self.refused: list[RunRefused] = []
        self.retry_at: dict[str, float] = {}
        self.down = False
        self.other_adapter = False  # whether another adapter serves the cluster, and is silent at present
        self.uncalled = ""
        self.troubles: dict[str, str] = {}
        self.server_clock_lead = 0
        self.fetches = 0
        self.generation = 0
        self._told: dict[str, int] = {}
        self._acknowledged: set[str] = set()
        self._numbers = count(1)
        self._prefix = f"d{int(clock() * 1000):x}"
        self._fresh = asyncio.Event()

    # -- the contract ---------------------------------------------------------------------------------

    @property
    def app(self) -> Starlette:
        """As an ASGI application."""
        base = "/v1/clusters/{cluster}"
        return Starlette(
            routes=[
                Route(base + "/events", self._post, methods=["POST"]),
                Route(base + "/decisions", self._get, methods=["GET"]),
            ]
        )

    async def _post(self, request: Request) -> JSONResponse:
        if problem := self._refusal():
            return problem
        try:
            body = json.loads(await request.body())
            events = [decode_event(json.dumps(item)) for item in body["events"]]
        except Exception as error:
            return JSONResponse({"detail": str(error)[:300]}, status_code=422)
        headers = {"Schedd-Clock": f"{self.clock():.3f}"}
        for event in events:
            self.handle(event)
        self.think()
        body = {"accepted": len(events), "generation": self.generation}
        return JSONResponse(body, headers=headers)

    async def _get(self, request: Request) -> JSONResponse:
        if problem := self._refusal():
            return problem
        self.uncalled = request.headers.get("Schedd-Uncalled", "")
        self.server_clock_lead = int(request.headers.get("Schedd-Server-Clock-Lead", "0"))
        self.troubles = decode_troubles(request.headers.get("Schedd-Troubles", ""))
        self.fetches += 1
        until = time.monotonic() + float(request.query_params.get("wait", "0"))
        while True:
            found = self._after(request.query_params.get("after", ""))
            left = until - time.monotonic()
            if found or left <= 0 or self.down:
                break
            self._fresh.clear()
            try:
                # not wait_for, which in 3.11 may lose a cancellation
                async with asyncio.timeout(min(left, 0.5)):
                    await self._fresh.wait()
            except TimeoutError:
                self.think()
        last = self.decisions[-1].id if self.decisions else ""
        return JSONResponse(
            {"decisions": [json.loads(_DUMP.dump_json(item)) for item in found], "last": last}
        )

    def _refusal(self) -> JSONResponse | None:
        if self.down:
            return JSONResponse({"detail": "down"}, status_code=503)
        if self.other_adapter:
            body = {"type": "urn:schedd:problem:another-adapter", "detail": "another adapter has the cluster"}
            return JSONResponse(body, status_code=409, headers={"Retry-After": "60"})
        return None

    def _after(self, after: str) -> list[Decision]:
        names = [decision.id for decision in self.decisions]
        first = names.index(after) + 1 if after in names else 0
        return [item for item in self.decisions[first:] if item.id not in self._acknowledged]

    # -- the state --------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Takes an event once."""
        if event.id in self.seen:
            self.repeats += 1
            return
        self.seen.add(event.id)
        self.events.append(event)
        self.generation += 1
        match event:
            case RunAccepted():
                # The start may have been reported before, if the answer to the run was lost.
                self.accepted += [
                    decision
                    for decision in self.decisions
                    if isinstance(decision, Run) and decision.id == event.decision_id
                ]
                self._acknowledged.add(event.decision_id)
            case RunRefused():
                self.refused.append(event)
                self._acknowledged.add(event.decision_id)
                self.outstanding.pop(event.job_id, None)
                self.retry_at[event.job_id] = self.clock() + 1
                _log.info("refused %s: %s %s", event.job_id, event.code, event.text)
            case JobStarted():
                self.outstanding.pop(event.job_id, None)
                self.state = apply(self.state, [event])
            case JobEnded() if event.job_id not in self.state.jobs:
                pass  # ended before the report arrived
            case JobQueued():
                self.outstanding.pop(event.job.id, None)
                self.state = apply(self.state, [event])
            case _:
                self.state = apply(self.state, [event])
        for job in [job for job in self.outstanding if job not in self.state.jobs]:
            del self.outstanding[job]
        self._fresh.set()

    # -- the planner ------------------------------------------------------------------------------------

    def decide(self, job: str, on: Iterable[ShareFacts], **changes: Any) -> Run:
        """Emit a run decision, or a faulty one."""
        now = int(self.clock())
        facts = self.state.jobs.get(job)
        run = Run(
            id=f"{self._prefix}-{next(self._numbers)}",
            cause="",
            time=now,
            job_id=job,
            shares=tuple(on),
            version=facts.version if facts else "",
            expires=now + 60,
            term=self.term,
        )
        run = replace(run, **changes)
        self.outstanding[job] = run
        self.decisions.append(run)
        self._fresh.set()
        return run

    def write_attributes(
        self,
        job: str,
        start: int | None,
        nodes: tuple[str, ...] = (),
        text: str = "",
        expected: int | None = None,
    ) -> WriteAttributes:
        """Decides what to write on a job."""
        tell = WriteAttributes(
            id=f"{self._prefix}-{next(self._numbers)}",
            cause="",
            time=int(self.clock()),
            job_id=job,
            planned_start=start,
            planned_end=None if start is None else start + 60,
            planned_nodes=nodes,
            text=text,
            expected_start=expected,
            expected_by=expected,
        )
        self.decisions.append(tell)
        self._fresh.set()
        return tell

    def alert(self, kind: str, text: str) -> None:
        """Emit an alert."""
        name = f"{self._prefix}-{next(self._numbers)}"
        self.decisions.append(Alert(id=name, cause="", time=int(self.clock()), kind=kind, text=text))
        self._fresh.set()

    def think(self) -> None:
        """Start fitting jobs in the order of arrival; publish a guessed start for the others."""
        if not self.plan or not self.state.server.scheduling:
            return
        free = {node.name: node.cpus for node in self.state.nodes.values() if node.state == "up"}
        for job in self.state.jobs.values():
            for share in job.shares:
                if share.node in free:
                    free[share.node] -= share.cpus
        for job_id, run in self.outstanding.items():
            if job_id in self.state.jobs and self.state.jobs[job_id].state not in ACTIVE:
                for share in run.shares:
                    if share.node in free:
                        free[share.node] -= share.cpus
        now = self.clock()
        for job in self.state.jobs.values():
            if job.state != "Q" or job.holds or job.id in self.outstanding:
                continue
            if now < self.retry_at.get(job.id, 0):
                continue
            shares = place(job, free, self.state.nodes.values())
            if shares is not None:
                for share in shares:
                    free[share.node] -= share.cpus
                self.decide(job.id, shares)
            elif job.id not in self._told:
                self._told[job.id] = int(now) + 600
                self.write_attributes(job.id, self._told[job.id], ("node1",))


def place(job: JobFacts, free: dict[str, int], nodes: Iterable[NodeFacts]) -> tuple[ShareFacts, ...] | None:
    """Where the job fits now: `nodes=` with counts, names, ppn and properties, or `procs=`."""
    left = dict(free)
    if "procs" in job.resources:
        wanted = int(job.resources["procs"])
        shares = []
        for name, cores in left.items():
            if wanted and cores > 0:
                shares.append(ShareFacts(name, min(cores, wanted)))
                wanted -= shares[-1].cpus
        return None if wanted else tuple(shares)
    known = {node.name: node for node in nodes}
    taken: dict[str, int] = {}
    for part in job.resources.get("nodes", "1").split("+"):
        head, *words = part.split(":")
        found = re.search(r":ppn=(\d+)", part)
        ppn = int(found[1]) if found else 1
        pending_reservations = {word for word in words if not word.startswith("ppn=")}
        if not head.isdecimal():
            pending_reservations.add(head)
        for _ in range(int(head) if head.isdecimal() else 1):
            fits = [
                name
                for name, cores in left.items()
                if cores >= ppn
                and name not in taken
                and pending_reservations <= {name, *known[name].properties}
            ]
            if not fits:
                return None
            taken[fits[0]] = ppn
    return tuple(ShareFacts(name, ppn) for name, ppn in taken.items())


def main() -> None:
    """Serves one on loopback."""
    import uvicorn  # noqa: PLC0415

    logging.basicConfig(level="INFO", format="%(asctime)s daemon %(message)s")
    daemon = FakeDaemon()
    uvicorn.run(daemon.app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
