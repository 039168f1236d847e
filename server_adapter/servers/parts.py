"""What the servers of both families pass on to their parts, each of which has a matter of its own."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from schedd.wire import Run, SubmissionFacts
from server_adapter.bridge.checks import Check
from server_adapter.bridge.draining import Ask, Drained, Drainer, Fate
from server_adapter.bridge.link import Link
from server_adapter.bridge.server import Outcome, ReadScope, Told
from server_adapter.bridge.state import State, Writing
from server_adapter.bridge.tells import Write
from server_adapter.bridge.transfers import TransferServer

__all__ = ["ServerOfParts"]


class _Reader(Protocol):
    async def read(self, scope: ReadScope) -> State: ...

    async def settings(self) -> list[Told]: ...


class _Starter(Protocol):
    async def run(self, run: Run, asked: Callable[[], None]) -> Outcome: ...

    async def became(self, run: Run) -> Check: ...


class _Pen(Protocol):
    async def write(self, write: Write) -> bool: ...

    async def comment(self, job: str, text: str) -> None: ...

    async def clean(self, job: str, writing: Writing) -> bool: ...


class ServerOfParts:
    """The half of `bridge.server.Server`, and all of `TransferServer` and `Drainer`, that
    is the same for all.
    """

    def __init__(
        self,
        *,
        link: Link[Any],
        reader: _Reader,
        starter: _Starter,
        pen: _Pen,
        transfer_client: TransferServer,
        router: Drainer,
    ) -> None:
        self.link = link
        self.transfer_client = transfer_client
        self.router = router
        self._reading, self._starting, self._writing = reader, starter, pen

    @property
    def up_since(self) -> float | None:
        """When it was first reached after it had been away."""
        return self.link.up_since

    @property
    def uncalled(self) -> str:
        """Empty, where the server's calls come over a connection of ours."""
        return ""

    async def wait_until_up(self) -> None:
        """Returns once the server answers."""
        await self.link.wait_until_up()

    async def settings(self) -> list[Told]:
        """See `Server`."""
        return await self._reading.settings()

    async def read(self, scope: ReadScope = ReadScope.ALL) -> State:
        """Its whole state. What is outside of `scope` may be as an earlier reading had it."""
        return await self._reading.read(scope)

    async def run(self, run: Run, asked: Callable[[], None]) -> Outcome:
        """Looks once more, and asks for the run."""
        return await self._starting.run(run, asked)

    async def became(self, run: Run) -> Check:
        """Whether the job runs, or ran, as decided."""
        return await self._starting.became(run)

    async def tend(self) -> None:
        """Nothing, where the server resumes jobs by itself."""

    async def write(self, write: Write) -> bool:
        """Writes a plan on a job."""
        return await self._writing.write(write)

    async def comment(self, job: str, text: str) -> None:
        """Replaces our comment."""
        await self._writing.comment(job, text)

    async def clean(self, job: str, writing: Writing) -> bool:
        """Takes our writings off a job."""
        return await self._writing.clean(job, writing)

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submits a job that is handed over, on hold."""
        return await self.transfer_client.submit(submission, mark)

    async def marked(self, mark: str) -> str:
        """The id of the job with this mark."""
        return await self.transfer_client.marked(mark)

    async def finish(self, job: str, tasks: int) -> None:
        """What a submission that was broken off had still to do."""
        await self.transfer_client.finish(job, tasks)

    async def release(self, job: str) -> None:
        """Lifts its hold."""
        await self.transfer_client.release(job)

    async def withdraw(self, job: str, *, may_have_run: bool) -> None:
        """Deletes it unless it runs."""
        await self.transfer_client.withdraw(job, may_have_run=may_have_run)

    async def delete(self, job: str) -> None:
        """Deletes it, though it may run."""
        await self.transfer_client.delete(job)

    async def routed(self, queues: Sequence[str]) -> list[Drained]:
        """The jobs in these routing queues."""
        return await self.router.routed(queues)

    async def keep_back(self, job: str, comment: str) -> Drained | None:
        """Holds a job of a routing queue."""
        return await self.router.keep_back(job, comment)

    async def give_back(self, job: str, comment: str) -> None:
        """Lets it go on."""
        await self.router.give_back(job, comment)

    async def pass_on(self, job: Drained, ask: Ask) -> None:
        """Gives it to a federation."""
        await self.router.pass_on(job, ask)

    async def fate(self, job: str) -> Fate:
        """What became of it."""
        return await self.router.fate(job)

    async def remove(self, job: str, comment: str) -> None:
        """Deletes it."""
        await self.router.remove(job, comment)
