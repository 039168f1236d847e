"""Common part of the servers of both families: delegates to reader, starter, writer, transfers and router."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from schedd.wire import JobFacts, Run, SubmissionFacts
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.preemptions import PreemptionServer
from server_adapter.bridge.queue_drainer import DrainableServer, OfferJob, RoutedJob, RoutedJobFate
from server_adapter.bridge.run_checks import RunCheck
from server_adapter.bridge.server import ObjectSettings, ReadScope, RunOutcome
from server_adapter.bridge.state import ServerState, WrittenAttributes
from server_adapter.bridge.transfers import TransferServer
from server_adapter.bridge.write_queue import AttributeWrite


class _Reader(Protocol):
    async def read(self, scope: ReadScope) -> ServerState: ...

    async def settings(self) -> list[ObjectSettings]: ...


class _Starter(Protocol):
    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome: ...

    async def verify_run(self, run: Run) -> RunCheck: ...


class _JobWriter(Protocol):
    async def write(self, write: AttributeWrite) -> bool: ...

    async def comment(self, job: str, text: str) -> None: ...

    async def clean(self, job: str, writing: WrittenAttributes) -> bool: ...


class ComposedServer:
    """Common part of the servers: half of `bridge.server.Server`, and all of `TransferServer`,
    `PreemptionServer` and `DrainableServer`.
    """

    def __init__(
        self,
        *,
        link: ServerLink[Any],
        reader: _Reader,
        starter: _Starter,
        job_writer: _JobWriter,
        transfer_client: TransferServer,
        router: DrainableServer,
        preemption_client: PreemptionServer,
    ) -> None:
        self.link = link
        self.transfer_client = transfer_client
        self.router = router
        self.preemption_client = preemption_client
        self._reading, self._starting, self._writing = reader, starter, job_writer

    @property
    def up_since(self) -> float | None:
        """Time of the first connection after an outage."""
        return self.link.up_since

    @property
    def uncalled(self) -> str:
        """Empty for a family that is connected to its scheduler."""
        return ""

    async def wait_until_up(self) -> None:
        await self.link.wait_until_up()

    async def settings(self) -> list[ObjectSettings]:
        """See `Server`."""
        return await self._reading.settings()

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Return the server's state. Parts outside of `scope` may be from an earlier reading."""
        return await self._reading.read(scope)

    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome:
        """Check the job and its nodes, and request the run."""
        return await self._starting.run(run, on_request)

    async def verify_run(self, run: Run) -> RunCheck:
        """Return whether the job runs, or ran, as decided."""
        return await self._starting.verify_run(run)

    async def resume_jobs(self) -> None:
        """Do nothing: the server resumes jobs itself."""

    async def write(self, write: AttributeWrite) -> bool:
        """Writes a plan on a job."""
        return await self._writing.write(write)

    async def comment(self, job: str, text: str) -> None:
        """Replaces our comment."""
        await self._writing.comment(job, text)

    async def clean(self, job: str, writing: WrittenAttributes) -> bool:
        """Remove the adapter's attributes from a job."""
        return await self._writing.clean(job, writing)

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submit a transferred job, held."""
        return await self.transfer_client.submit(submission, mark)

    async def find_marked(self, mark: str) -> str:
        """Return the id of the job with this mark."""
        return await self.transfer_client.find_marked(mark)

    async def finish(self, job: str, submission: SubmissionFacts) -> None:
        """Complete an interrupted submission."""
        await self.transfer_client.finish(job, submission)

    async def release(self, job: str) -> None:
        """Lifts its hold."""
        await self.transfer_client.release(job)

    async def withdraw(self, job: str, *, may_have_run: bool, again: bool) -> None:
        """Delete a job unless it runs."""
        await self.transfer_client.withdraw(job, may_have_run=may_have_run, again=again)

    async def delete(self, job: str) -> None:
        """Delete a job, even if it runs."""
        await self.transfer_client.delete(job)

    async def find_job(self, job: str) -> JobFacts | None:
        """Return a job as the server shows it now."""
        return await self.preemption_client.find_job(job)

    async def signal_job(self, job: str, signal: str) -> bool:
        """Send a signal to a running job, unless it would end the job."""
        return await self.preemption_client.signal_job(job, signal)

    async def requeue_job(self, job: str) -> None:
        """End the run of a job and put it back into its queue."""
        await self.preemption_client.requeue_job(job)

    async def is_being_requeued(self, job: str) -> bool:
        """Return whether the server is ending the run of this job to requeue it."""
        return await self.preemption_client.is_being_requeued(job)

    async def suspend_job(self, job: str) -> None:
        await self.preemption_client.suspend_job(job)

    async def resume_job(self, job: str) -> None:
        """Let a suspended job go on."""
        await self.preemption_client.resume_job(job)

    async def hold_job(self, job: str) -> None:
        """Hold a running job, which checkpoints it."""
        await self.preemption_client.hold_job(job)

    async def lift_hold(self, job: str) -> None:
        await self.preemption_client.lift_hold(job)

    async def list_routed(self, queues: Sequence[str]) -> list[RoutedJob]:
        return await self.router.list_routed(queues)

    async def hold_routed(self, job: str, comment: str) -> RoutedJob | None:
        return await self.router.hold_routed(job, comment)

    async def release_routed(self, job: str, comment: str) -> None:
        """Lets it go on."""
        await self.router.release_routed(job, comment)

    async def hand_over_routed(self, job: RoutedJob, offer: OfferJob) -> None:
        """Transfer it to a federation."""
        await self.router.hand_over_routed(job, offer)

    async def fate(self, job: str) -> RoutedJobFate:
        return await self.router.fate(job)

    async def remove(self, job: str, comment: str) -> None:
        await self.router.remove(job, comment)
