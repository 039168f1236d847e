"""Interface between the bridge and a pbs_server of any family."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol

from schedd.wire import Run, ShareFacts
from server_adapter.bridge.preemptions import PreemptionServer
from server_adapter.bridge.queue_drainer import DrainableServer
from server_adapter.bridge.run_checks import RunCheck
from server_adapter.bridge.run_extensions import ExtensionServer
from server_adapter.bridge.state import PendingReservation, ServerState, WrittenAttributes
from server_adapter.bridge.transfers import TransferServer
from server_adapter.bridge.write_queue import AttributeWrite
from server_adapter.bridge.write_rights import WriteRights


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run decision. `code` is the server's, 0 for a refusal by the adapter.

    `busy`: the same run may succeed in a moment. `outage`: no job could be started at that moment.
    `fragmented`: the nodes have enough in sum, but no vnode has, before another job ends there.
    """

    accepted: bool
    code: int = 0
    text: str = ""
    busy: bool = False
    outage: bool = False
    fragmented: bool = False


@dataclass(frozen=True, slots=True)
class OccurrencePlacement:
    """Placement of one occurrence of a reservation: start, and additional nodes."""

    start: int
    shares: tuple[ShareFacts, ...]


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """Settings of the server, a queue, a scheduler or a resource, by `name` or `name.resource`."""

    kind: Literal["server", "queue", "scheduler", "resource"]
    name: str
    values: Mapping[str, str]


class ReadScope(IntEnum):
    """Scope of possible changes since the last reading; a larger scope includes the smaller."""

    ENDS = 1  # ends and starts of jobs
    JOBS = 2  # ends, starts, and arrivals of jobs
    ALL = 3  # everything: nodes, queues, reservations, settings, deleted and altered jobs


class RunControl(PreemptionServer, ExtensionServer, Protocol):
    """A pbs_server that can preempt and extend runs."""


class Server(Protocol):
    """One pbs_server. Errors are raised as `server_adapter.batch.errors`."""

    @property
    def transfer_client(self) -> TransferServer: ...

    @property
    def run_control(self) -> RunControl: ...

    @property
    def router(self) -> DrainableServer: ...

    @property
    def up_since(self) -> float | None:
        """Time of the first connection after an outage; None without an outage."""
        ...

    @property
    def listens_on(self) -> int | None:
        """Port for the server's commands, or None."""
        ...

    @property
    def uncalled(self) -> str:
        """Message that the server does not call its scheduler; usually empty."""
        ...

    async def wait_until_up(self) -> None:
        """Wait until the server answers. Raises `RightsError` and `ProtocolError` at once."""
        ...

    async def become_scheduler(self, request_reading: Callable[[ReadScope], None]) -> None:
        """Become the server's scheduler. Each command calls `request_reading` with the scope of possible
        changes.

        Raises `TakenError` if another scheduler is registered, `RightsError` without the right to be one.
        """
        ...

    async def serve_as_scheduler(self) -> None:
        """Work forever: answer commands, and register again after a loss."""
        ...

    def barred(self) -> str:
        """Return the reason against any start, such as a lost registration; usually empty."""
        ...

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Return the server's state. Parts outside of `scope` may be from an earlier reading."""
        ...

    async def settings(self) -> list[ObjectSettings]:
        """Return all attributes of the server, its queues and its schedulers, in the server's notation."""
        ...

    async def run(self, run: Run, on_request: Callable[[], None]) -> RunOutcome:
        """Check the job and its nodes, and request the run; `on_request` is called right before the request.

        Raises `ServerUnreachableError` or `ProtocolError` if the outcome is unknown.
        """
        ...

    async def verify_run(self, run: Run) -> RunCheck:
        """Return whether the job runs, or ran, as decided."""
        ...

    async def settle_reservation(
        self, name: str, pending: PendingReservation, places: Sequence[OccurrencePlacement]
    ) -> None:
        """Confirm a reservation with one placement for each occurrence, or refuse it if `places` is empty.

        Raises ValueError if the shares do not add up to its request.
        """
        ...

    async def restore_walltimes(self, state: ServerState) -> None:
        """Give waiting jobs with a walltime that was set for a run before a restart their own one back."""
        ...

    async def resume_jobs(self) -> None:
        """Resume suspended jobs that the server leaves to its scheduler, by the last reading."""
        ...

    async def write(self, write: AttributeWrite) -> bool:
        """Write a plan on a job; return False if it should be written again with fewer attributes."""
        ...

    async def comment(self, job: str, text: str) -> None:
        """Replace the adapter's comment on a job that has started."""
        ...

    async def clean(self, job: str, writing: WrittenAttributes) -> bool:
        """Remove the adapter's attributes from a job; return whether there were any."""
        ...

    @property
    def comments(self) -> bool: ...

    @property
    def write_rights(self) -> WriteRights:
        """Rights to write on jobs, by the server's refusals."""
        ...

    def troubles(self) -> Iterable[tuple[str, str]]:
        """Return lasting troubles, by kind (`ADAPTER_TROUBLES`); texts may be empty."""
        ...

    def update_state(self, state: ServerState) -> None:
        """Use the newest reading."""
        ...

    async def close(self) -> None: ...
