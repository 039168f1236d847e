"""Common part of the servers of both families: it reads, starts and writes by the parts of its family."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from schedd.wire import Run
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.queue_drainer import DrainableServer
from server_adapter.bridge.run_checks import RunCheck
from server_adapter.bridge.server import ObjectSettings, ReadScope, RunControl, RunOutcome
from server_adapter.bridge.state import ServerState, WrittenAttributes
from server_adapter.bridge.transfers import TransferServer
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.bridge.write_rights import WriteRights


class _StateReader(Protocol):
    async def read(self, scope: ReadScope) -> ServerState: ...

    async def settings(self) -> list[ObjectSettings]: ...

    def troubles(self) -> Iterator[tuple[str, str]]: ...


class _Starter(Protocol):
    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome: ...

    async def verify_run(self, run: Run) -> RunCheck: ...

    async def restore_walltimes(self, state: ServerState) -> None: ...

    @property
    def trouble(self) -> str: ...


class _JobWriter(Protocol):
    @property
    def rights(self) -> WriteRights: ...

    async def write(self, write: AttributeWrite) -> bool: ...

    async def comment(self, job: str, text: str) -> None: ...

    async def clean(self, job: str, writing: WrittenAttributes) -> bool: ...


class ComposedServer:
    """Common part of the servers: most of `bridge.server.Server`."""

    def __init__(
        self,
        *,
        link: ServerLink[Any],
        reader: _StateReader,
        starter: _Starter,
        job_writer: _JobWriter,
        transfer_client: TransferServer,
        router: DrainableServer,
        run_control: RunControl,
    ) -> None:
        self.link = link
        self.transfer_client = transfer_client
        self.router = router
        self.run_control = run_control
        self._reading, self._starting, self._writing = reader, starter, job_writer

    @property
    def up_since(self) -> float | None:
        """Time of the first connection after an outage."""
        return self.link.up_since

    @property
    def uncalled(self) -> str:
        """Empty for a family that is connected to its scheduler."""
        return ""

    @property
    def write_rights(self) -> WriteRights:
        """Rights to write on jobs."""
        return self._writing.rights

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield lasting troubles, by kind."""
        yield "writing", self._writing.rights.trouble
        yield "adapter_work", self._starting.trouble
        yield from self._reading.troubles()

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

    async def restore_walltimes(self, state: ServerState) -> None:
        """Give waiting jobs with a walltime that was set for a run before a restart their own one back."""
        await self._starting.restore_walltimes(state)

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
