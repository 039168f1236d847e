"""What the bridge needs of a pbs_server, whatever its family: the one interface between the two."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol

from schedd.wire import Run, ShareFacts
from server_adapter.bridge.run_checks import RunCheck
from server_adapter.bridge.state import PendingReservation, ServerState, WrittenAttributes
from server_adapter.bridge.write_queue import AttributeWrite


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What became of a run decision. `code` is the server's, 0 for a refusal of our own.

    `busy` means that the same may succeed in a moment.
    """

    accepted: bool
    code: int = 0
    text: str = ""
    busy: bool = False


@dataclass(frozen=True, slots=True)
class OccurrencePlacement:
    """Where one time of a reservation is to be: from `start` on, on these nodes beside those it keeps."""

    start: int
    shares: tuple[ShareFacts, ...]


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """What the server says of itself, a queue, a scheduler or a resource: values by `name` or
    `name.resource`.
    """

    kind: Literal["server", "queue", "scheduler", "resource"]
    name: str
    values: Mapping[str, str]


class ReadScope(IntEnum):
    """How much of the server may have changed since the last reading; a larger scope includes the smaller."""

    ENDS = 1
    """Jobs that ran have ended, or jobs have started."""
    JOBS = 2
    """The same, and jobs have arrived."""
    ALL = 3
    """Anything: nodes, queues, reservations, settings, deleted and altered jobs."""


class Server(Protocol):
    """One pbs_server. What it cannot do at all it raises as one of `server_adapter.batch.errors`."""

    @property
    def up_since(self) -> float | None:
        """When it was first reached after it had been away; None where that was never seen."""
        ...

    @property
    def listens_on(self) -> int | None:
        """The port that takes its commands, where there is one."""
        ...

    @property
    def uncalled(self) -> str:
        """That the server does not call its scheduler though it should, in words; mostly empty."""
        ...

    async def wait_until_up(self) -> None:
        """Returns once it answers. Raises `RightsError` and `ProtocolError`, which waiting cannot cure."""
        ...

    async def become_scheduler(self, request_reading: Callable[[ReadScope], None]) -> None:
        """Becomes the server's scheduler; `look` is called at each command, with what may have changed.

        Raises `TakenError` when another scheduler has the place, `RightsError` when we may not have it.
        """
        ...

    async def serve_as_scheduler(self) -> None:
        """Works for ever: answers commands, and takes the place again when it was lost."""
        ...

    def barred(self) -> str:
        """Why nothing may be started at this moment, in words: the place is lost. Mostly empty."""
        ...

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Its whole state. What is outside of `scope` may be as an earlier reading had it."""
        ...

    async def settings(self) -> list[ObjectSettings]:
        """The server, its queues and its schedulers, each with all its attributes as the server says them."""
        ...

    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome:
        """Looks at the job and its nodes once more and asks for the run; `asked` is called right before that.

        Raises `ServerUnreachableError` or `ProtocolError` where it is not known what became of it.
        """
        ...

    async def verify_run(self, run: Run) -> RunCheck:
        """Whether the job runs, or ran, as decided."""
        ...

    async def settle_reservation(
        self, name: str, pending: PendingReservation, places: Sequence[OccurrencePlacement]
    ) -> None:
        """Gives a reservation nodes, one place for each of its slots; or refuses it where there are none.

        Raises ValueError where the shares do not make up what it asks for.
        """
        ...

    async def resume_jobs(self) -> None:
        """What it leaves to its scheduler beside runs and reservations, by the last reading: resumptions."""
        ...

    async def write(self, write: AttributeWrite) -> bool:
        """Writes a plan on a job; False when it is worth another try at once, with less to write."""
        ...

    async def comment(self, job: str, text: str) -> None:
        """Replaces our comment on a job that has started."""
        ...

    async def clean(self, job: str, writing: WrittenAttributes) -> bool:
        """Takes our writings off a job; whether there were any."""
        ...

    @property
    def comments(self) -> bool:
        """Whether comments are written."""
        ...

    def update_state(self, state: ServerState) -> None:
        """Takes the newest reading."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...
