"""Main loop of the adapter: wait for a change, read, compare, report; decisions back."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import httpx2

from schedd.wire import (
    Alert,
    Decision,
    Event,
    ExtendRun,
    JobDeleted,
    JobEnded,
    JobQueued,
    JobStarted,
    Preempt,
    Resume,
    Run,
    Switch,
    TransferDecision,
    WriteAttributes,
)
from schedd.wire.settings_file import SettingsFiles
from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.supervision import TaskSet, work_together
from server_adapter.bridge.accepted_runs import AcceptedRuns
from server_adapter.bridge.attribute_writer import AttributeWriter
from server_adapter.bridge.daemon_client import (
    AnotherAdapterError,
    DaemonAwayError,
    DaemonClient,
    DaemonRefusedError,
)
from server_adapter.bridge.delivery import Backoff, DaemonExchange
from server_adapter.bridge.diff import diff, endings, snapshot, with_steady_starts
from server_adapter.bridge.dispatch import Dispatcher, RunRules
from server_adapter.bridge.journal import Journal, JournalError
from server_adapter.bridge.power_switcher import PowerSwitcher
from server_adapter.bridge.preemptions import PreemptionExecutor
from server_adapter.bridge.queue_drainer import QueueDrainer
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.reading_requests import ReadingRequests
from server_adapter.bridge.reported_ends import ReportedEnds
from server_adapter.bridge.reservations import ReservationConfirmer
from server_adapter.bridge.run_executor import RunExecutor
from server_adapter.bridge.run_extensions import RunExtender
from server_adapter.bridge.server import ReadScope, Server
from server_adapter.bridge.server_clock import ServerClock
from server_adapter.bridge.shadow import ShadowComparison
from server_adapter.bridge.snapshot_schedule import SnapshotSchedule
from server_adapter.bridge.state import EMPTY_STATE, ServerState
from server_adapter.bridge.transfers import TransferExecutor
from server_adapter.bridge.troubles import TroubleMemory, join_troubles
from server_adapter.settings import AdapterSettings

_log = logging.getLogger(__name__)

_AS_DECIDED = 1000.0  # per second; the daemon sets the actual rate
_SOON = 0.5  # seconds until most pending events have been delivered
_SLICE = 50  # events encoded in one slice
_PARTIAL_REST = 0.5  # of the time of a partial reading; after a full one, its whole time
_CONTACT_S = 2.0  # between requests to the daemon while the server does not answer at the start
_UNEXPLAINED_EVERY_S = 1.0  # between full readings because a partial one did not explain a call
_TROUBLE = (ServerUnreachableError, ProtocolError, RightsError, ServerRefusedError)


class Adapter:
    """Adapter between one pbs_server and one cluster of a daemon. `connect` makes the server with its rate
    limiter.

    `run` works until it is cancelled. Raises `TakenError` if another scheduler is registered, `RightsError`
    if the server does not trust the adapter at the start, `AnotherAdapterError` if another adapter serves the
    cluster.
    """

    def __init__(
        self,
        settings: AdapterSettings,
        connect: Callable[[AdaptiveRateLimiter], Server],
        *,
        token: str = "",
        drain_token: str = "",
        clock: Callable[[], float] = time.time,
        transport: httpx2.AsyncBaseTransport | None = None,
        ready: Callable[[], None] = lambda: None,
        path: Path | None = None,
    ) -> None:
        """`path`: the settings file."""
        self.settings = settings
        self._files = SettingsFiles(path, settings)
        self._clock = clock
        self._ready = ready
        self.journal = Journal(settings.state_dir, clock)
        self._requests = ReadingRequests(settings.poll.interval)
        pace = AdaptiveRateLimiter(_AS_DECIDED)
        self.server = connect(pace)
        daemon = settings.daemon
        self._client = DaemonClient(
            daemon.url,
            settings.cluster,
            token=token,
            adapter=self.journal.adapter,
            transport=transport,
            clock=clock,
        )
        self.delivery = DaemonExchange(
            self._client, self.journal.epoch, self._request_snapshot, self.request_reading
        )
        run = settings.run
        rules = RunRules(
            busy_retries=run.busy_retries,
            busy_wait=run.busy_wait,
            per_second=_AS_DECIDED,
            per_node=_AS_DECIDED,
        )
        dispatcher = Dispatcher(
            self.server, self.journal, self._barred, rules, clock=self._client.cluster_time
        )
        self.writer = AttributeWriter(self.server, pace, threshold=0, starting=lambda: dispatcher.busy)
        self.shadow = ShadowComparison()
        self.state: ServerState | None = None
        self.cycles = 0
        self._reservations = ReservationConfirmer(self.server, self._client, clock)
        self._failures = TroubleMemory()
        self._server_clock = ServerClock()
        self._unread = ""  # why the server's state could not be read at the last try
        self._reservation_tasks = TaskSet("settling a reservation", self._failures.note)
        self._settling = False
        self._settled_at = -1  # number of the last full reading that began before the last settlement ended
        self._snapshots = SnapshotSchedule(settings.poll.snapshot, clock)
        self._reported_ends = ReportedEnds()
        self._accepted = AcceptedRuns()
        self._accepted.recall(self.journal.requested, clock())
        self._runs = RunExecutor(
            dispatcher,
            self.delivery,
            self._accepted,
            self.request_reading,
            self._requests.request_soon,
            clock,
        )
        self._transfers = TransferExecutor(
            self.server.transfer_client,
            self.delivery,
            self._transfers_barred,
            self.request_reading,
            clock,
            cluster_time=self._client.cluster_time,
            waits=self.server.barred,
        )
        kept = settings.state_dir / "drained"
        self._preemptions = PreemptionExecutor(
            self.server.run_control,
            self.delivery,
            self._barred,
            self.request_reading,
            lambda: self.journal.term,
            self.journal,
            clock,
            cluster_time=self._client.cluster_time,
        )
        self._extensions = RunExtender(
            self.server.run_control,
            self.delivery,
            self._barred,
            self.request_reading,
            lambda: self.journal.term,
            self.journal,
            clock,
            cluster_time=self._client.cluster_time,
        )
        self._drain = QueueDrainer(
            self.server.router, settings.drain, drain_token, self._barred, kept, transport=transport
        )
        self._begun = self._finished = 0  # whole readings
        self._up_since: float | None = None
        self._server_restarted = False  # since the last full reading
        self._uncalled = ""
        self._cycling = False
        self._was_read = asyncio.Event()
        self._client.troubles = self._troubles
        self._switches = PowerSwitcher(
            settings.power,
            self.delivery,
            self._barred,
            self._read_fresh_state,
            lambda: self.journal.term,
            clock,
            cluster_time=self._client.cluster_time,
        )

    @property
    def listens_on(self) -> int | None:
        """The open port for the server's commands, or None."""
        return self.server.listens_on

    # -- control ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            try:
                if self.settings.mode == "scheduler":
                    await self.server.become_scheduler(self._requests.request_for_call)
                await self._first_contact()
            except BatchError as error:
                await self._report_failed_start(error)
                raise
            self._ready()
            works: dict[str, Callable[[], Awaitable[None]]] = {
                "reading the server": self._cycles,
                "sending events": self.delivery.deliver,
                "fetching decisions": partial(
                    self.delivery.follow_decisions, self.handle_decision, self.settings.daemon.wait
                ),
                "exchanging jobs with a federation": self._transfers.work,
                "switching nodes": self._switches.work,
                "draining routing queues": self._drain_queues,
            }
            if self.settings.mode != "shadow":
                works["writing job attributes"] = self._write
            if self.settings.mode == "scheduler":
                works["keeping the scheduler's place"] = self.server.serve_as_scheduler
            await work_together(works, (BatchError, JournalError, AnotherAdapterError), self._on_failure)
        finally:
            await self.close()

    async def clean(self) -> int:
        """Remove the adapter's attributes from all jobs; return the number of jobs."""
        try:
            return await self.writer.clean(await self.server.read())
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel waiting runs, and close all connections."""
        try:
            await self._runs.close()
            await self._preemptions.close()
            await self._extensions.close()
            await self._reservation_tasks.close()
            await self.server.close()
            await self._client.close()
            await self._drain.close()
        finally:
            self.journal.close()

    def request_reading(self, scope: ReadScope = ReadScope.ALL) -> None:
        """Request a reading: something in this scope has changed on the server."""
        self._requests.request(scope)

    def handle_decision(self, decision: Decision) -> None:
        match decision:
            case Run():
                if self.settings.mode != "scheduler":
                    self.shadow.record_run(decision)
                self._runs.begin(decision)
            case WriteAttributes():
                if self.settings.mode != "scheduler":
                    self.shadow.record_plan(decision)
                if self.settings.mode != "shadow":
                    self.writer.enqueue(decision)
            case TransferDecision():
                self._transfers.enqueue(decision)
            case Preempt() | Resume():
                self._preemptions.begin(decision)
            case ExtendRun():
                self._extensions.begin(decision)
            case Switch():
                self._switches.enqueue(decision)
            case Alert() if self.journal.record_alert(decision):
                _log.warning("the daemon alerts: %s: %s", decision.kind, decision.text)
                if decision.kind == "snapshot":
                    self._snapshots.repeat_often()
            case Alert():
                _log.debug("an alert that was seen before: %s: %s", decision.kind, decision.text)

    # -- reading ----------------------------------------------------------------------------------------

    async def _first_contact(self) -> None:
        """Wait for the server. Missing rights end the adapter at its start.

        Meanwhile it makes requests to the daemon: without them, the daemon would report a silent adapter.
        """
        contact = TaskSet("contact with the daemon before the start")
        contact.spawn(self._keep_contact())
        try:
            await self.server.wait_until_up()
        finally:
            await contact.close()

    async def _report_failed_start(self, error: BatchError) -> None:
        """Tell the daemon why this adapter ends: it would only see that none comes."""
        self._client.troubles = lambda: {"registration": f"the adapter ended at its start: {error}"}
        with contextlib.suppress(DaemonAwayError, DaemonRefusedError, AnotherAdapterError):
            await self._client.decisions("", 0.0)

    async def _keep_contact(self) -> None:
        """Request decisions and leave them: they are fetched again once the server answers."""
        while True:
            await asyncio.sleep(_CONTACT_S)
            with contextlib.suppress(DaemonAwayError, DaemonRefusedError, AnotherAdapterError):
                await self._client.decisions("", 0.0)

    async def _cycles(self) -> None:
        self._cycling = True
        waits = Backoff(first=1.0, longest=30.0)
        hangs = Backoff(first=1.0, longest=60.0)
        while True:
            began = time.monotonic()
            try:
                await self._cycle()
                self._unread = ""
                waits.reset()
                hangs.reset()
            except ServerUnreachableError as error:
                _log.warning("%s", error)
                self._unread = ""  # the daemon says that the server is not reached
                self._request_snapshot()
                if isinstance(error.__cause__, TimeoutError):
                    await hangs.sleep()  # each such request may cost the server a thread
                await self._until_up()
                continue
            except (ProtocolError, RightsError, ServerRefusedError) as error:
                _log.error("the server could not be read: %s", error)
                self._unread = str(error)
                self._request_snapshot()
                await waits.sleep()
                continue
            rest = time.monotonic() - began
            if self._requests.read_whole_at < began:
                rest *= _PARTIAL_REST
            await asyncio.sleep(max(self.settings.poll.gap, rest))  # leave the server time for other clients
            await self._requests.wait()

    async def _until_up(self) -> None:
        waits = Backoff(first=5.0, longest=60.0)
        while True:
            try:
                await self.server.wait_until_up()
            except (RightsError, ProtocolError) as error:
                _log.error("%s", error)
                self._unread = str(error)
                await waits.sleep()
            else:
                return

    async def _cycle(self) -> None:
        """Read the server once, report the changes, and do all that follows from them."""
        # 1. Read.
        began = time.monotonic()
        scope, was_called = self._requests.take(full=self._snapshots.should_send)
        whole = scope is ReadScope.ALL
        self._begun += whole
        number = self._begun
        read_at = int(self._clock())  # later changes may be missing in the state
        try:
            state = await self.server.read(scope)
        except BaseException:
            self._requests.note_failure()
            raise
        if whole:
            self._requests.note_full_reading(time.monotonic() - began)
        now = int(self._clock())
        # 2. Compare with the last reading, and report to the daemon.
        await asyncio.sleep(0)
        before = self.state
        state = self._server_clock.correct(before, state, self.journal.requested, self._clock())
        self._client.server_clock_lead = self._server_clock.lead
        if before is not None:
            state = with_steady_starts(before, state)
        restarted = before is not None and self._server_returned()
        events = await self._report_changes(before, state, now, restarted=restarted)
        self.state = state
        if whole:
            self._finished = number
            self._was_read.set()
        elif was_called and not events and began - self._requests.read_whole_at >= _UNEXPLAINED_EVERY_S:
            self.request_reading()  # the call had another reason, such as a change of a node
        self.server.update_state(state)
        self._note_missing_calls()
        self.cycles += 1
        # 3. Outcomes of accepted runs, and agreement with an incumbent.
        started = [event for event in events if isinstance(event, JobStarted)]
        self._accepted.forget(events)
        if whole:
            await self._report_returned_runs(state, began, now)
        if self.settings.mode != "scheduler":
            self._compare(started, events, before or EMPTY_STATE)
        if not self._barred():
            await self.server.restore_walltimes(state)
        if not self._daemon_unreachable() and not self._barred():
            self._reserve(state)
            if state.server.scheduling:
                await self.server.resume_jobs()
        # 4. Periodic snapshots.
        if whole and (before is None or self._snapshots.should_send) and not self._daemon_unreachable():
            await self._send_snapshot(state, read_at, now)
        # 5. Attributes of jobs.
        await asyncio.sleep(0)
        self._server_restarted |= restarted
        after_restart = whole and self._server_restarted
        await self.writer.update(state, started, whole=whole, after_restart=after_restart)
        self._server_restarted &= not whole
        self._log_cycle(before or EMPTY_STATE, state, events)

    async def _report_changes(
        self, before: ServerState | None, state: ServerState, now: int, *, restarted: bool
    ) -> list[Event]:
        """Report the changes since the last reading to the daemon; return them.

        A restarted server may have lost jobs. The daemon can doubt a snapshot but not a single event, so then
        only a snapshot is sent.
        """
        events: list[Event] = []
        if before is not None:
            found = diff(before, state, ids=self.delivery.ids, now=now, mode=self.settings.mode)
            for count, event in enumerate(found, start=1):
                events.append(event)
                if not restarted:
                    await self.delivery.enqueue(event)
                if count % _SLICE == 0:
                    await asyncio.sleep(0)
        if restarted:
            self._request_snapshot()
            self._reservations.forget()
        else:
            self._reported_ends.note(events, state.ended)
        return events

    async def _report_returned_runs(self, state: ServerState, began: float, now: int) -> None:
        """Report jobs that are queued although the server accepted their run."""
        for name in self._accepted.returned(state, began):
            _log.warning("%s is queued although its run was requested", name)
            returned = JobQueued(id=next(self.delivery.ids), time=now, job=state.jobs[name])
            await self.delivery.enqueue(returned)

    def _note_missing_calls(self) -> None:
        uncalled = self.server.uncalled
        if uncalled and not self._uncalled:
            _log.warning("%s", uncalled)
        elif self._uncalled and not uncalled:
            _log.info("pbs_server calls its scheduler")
        self._uncalled = uncalled
        self.delivery.server_was_read(uncalled)

    def _server_returned(self) -> bool:
        """Return whether any request since the last call noticed a possible restart of the server."""
        before, self._up_since = self._up_since, self.server.up_since
        return before != self._up_since

    async def _send_snapshot(self, state: ServerState, read_at: int, now: int) -> None:
        # Jobs that ended during an outage must not look like a loss.
        unreported = self._reported_ends.pop_unreported(state.ended)
        for count, end in enumerate(endings(unreported, ids=self.delivery.ids, now=now), start=1):
            await self.delivery.enqueue(end)
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        up_since = self.server.up_since
        age = None if up_since is None else int(self._clock() - up_since)
        if age is not None and age < 0:  # the clock was set back
            age = None
        name, mode = next(self.delivery.ids), self.settings.mode
        await self.delivery.enqueue(snapshot(state, id=name, now=read_at, server_age=age, mode=mode))
        self._snapshots.sent()

    def _reserve(self, state: ServerState) -> None:
        """Begin to settle one reservation, once the daemon has all events. The daemon's answer may take long:
        readings, and the events of jobs that end meanwhile, do not wait for it.
        """
        if self._settling or self._begun <= self._settled_at or not self._reservations.has_open(state):
            return
        if len(self.delivery.outbox):
            asyncio.get_running_loop().call_later(_SOON, self.request_reading)
            return
        self._settling = True
        self._reservation_tasks.spawn(self._settle_reservation(state))

    async def _settle_reservation(self, state: ServerState) -> None:
        try:
            if await self._reservations.settle(state):
                self.request_reading()
        except (DaemonAwayError, *_TROUBLE) as error:
            _log.debug("reservations wait: %s", error)
        finally:
            self._settling = False
            self._settled_at = self._begun  # the next one is settled after a reading that shows this one

    def _daemon_unreachable(self) -> bool:
        return self.state is not None and self.cycles > 1 and self.delivery.away

    def _on_failure(self, work: str, error: BaseException) -> None:
        self._failures.note(work, error)
        self._request_snapshot()

    def _troubles(self) -> dict[str, str]:
        """Return lasting troubles, which are sent to the daemon, by kind."""
        self.journal.retry()  # its trouble would else last until something is to be recorded
        own = [
            self.journal.trouble,
            self._reservations.trouble,
            self._drain.trouble,
            self.delivery.trouble,
            *self._failures.current,
            self._files.problem,
        ]
        found = [("unreadable", self._unread), *(("adapter_work", text) for text in own)]
        return join_troubles([*found, *self.server.troubles()])

    def _request_snapshot(self) -> None:
        self._reported_ends.forget()
        self._snapshots.request()
        self.request_reading()

    def _compare(self, started: list[JobStarted], events: list[Event], before: ServerState) -> None:
        if started:
            _log.info("cycle: %s", self.shadow.compare(started, self._incumbent_starts(started, before)))
        for event in events:
            if isinstance(event, JobEnded | JobDeleted):
                self.shadow.forget(event.job_id)

    def _incumbent_starts(self, started: list[JobStarted], before: ServerState) -> dict[str, int]:
        """Return the starts that the incumbent wrote on these jobs."""
        ours = self.settings.tell if self.settings.mode != "shadow" else None
        found: dict[str, int] = {}
        for event in started:
            there = before.writings.get(event.job_id)
            if there is None:
                continue
            planned = there.planned_start if ours is None or not ours.planned else None
            start = there.start_time if ours is None or not ours.start_time else None
            if planned is not None or start is not None:
                found[event.job_id] = planned if planned is not None else start or 0
        return found

    def _log_cycle(self, before: ServerState, state: ServerState, events: list[Event]) -> None:
        if state.server.scheduling != before.server.scheduling or self.cycles == 1:
            words = (
                "scheduling enabled"
                if state.server.scheduling
                else "scheduling disabled (scheduling=False): nothing starts"
            )
            _log.info("the server %s", words)
        if events:
            _log.debug("cycle %d: %s", self.cycles, _counts(events))

    async def _read_fresh_state(self) -> ServerState:
        """Return a state read after this call; outside of the main loop, the last one."""
        wanted = self._begun + 1
        while self._cycling and self._finished < wanted:
            self._was_read.clear()
            self.request_reading()
            await self._was_read.wait()
        return self.state or EMPTY_STATE

    # -- writing and permissions --------------------------------------------------------------------

    def _barred(self) -> str:
        mode = self.settings.mode
        if mode != "scheduler":
            return f"the adapter is in {mode} mode"
        return self.delivery.place_obstacle or self.server.barred()

    def _transfers_barred(self) -> str:
        if self.settings.mode != "scheduler":
            return self._barred()
        return "" if self.settings.transfers else "the adapter's setting transfers is off"

    async def _drain_queues(self) -> None:
        await self.delivery.wait_for_place()
        await self._drain.work()

    async def _write(self) -> None:
        waits = Backoff(first=1.0, longest=30.0)
        while True:
            try:
                await self.writer.work(lambda: self.state)
            except _TROUBLE as error:
                _log.debug("nothing is written for now: %s", error)
                if isinstance(error, ServerUnreachableError):
                    self.request_reading()  # the server may have been restarted
                else:
                    self._failures.note("writing job attributes", error)
                await waits.sleep()


def _counts(events: list[Event]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for event in events:
        found[event.type] = found.get(event.type, 0) + 1
    return found
