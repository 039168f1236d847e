"""The scheduler's place at an OpenPBS server: registration, commands, cycles (protocol document, 4)."""

from dataclasses import dataclass

from server_adapter.batch.errors import ProtocolError, RightsError, ServerRefusedError, TakenError
from server_adapter.dis import Decoder, DisError, encode_integer
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.requests import DeferredReplyRequest, RegisterSchedulerRequest

_END_OF_CYCLE = encode_integer(0)


@dataclass(frozen=True, slots=True)
class CycleCommand:
    """A command of the server to its scheduler; `job` only with RUN_JOB (`qrun`)."""

    code: int
    job: str = ""

    @property
    def name(self) -> str:
        """`NEW`, `TERM`, ..., or `unknown`."""
        try:
            return OpenPBSCommand(self.code).name
        except ValueError:
            return "unknown"


def decode_command(body: bytes) -> CycleCommand:
    """A command from a packet's body. Raises `DisError`."""
    decoder = Decoder(body)
    code = decoder.integer()
    return CycleCommand(code, decoder.string() if code == OpenPBSCommand.RUN_JOB else "")


class Registration:
    """We are the scheduler `name` of the server, as long as both connections live.

    `primary` takes our requests, at any time. The other one brings commands: each must be answered by `end`,
    and while one is open the server keeps at most one more, so whatever it says, look at everything.
    """

    def __init__(self, primary: OpenPBSConnection, secondary: OpenPBSConnection, name: str) -> None:
        self.primary = primary
        self.name = name
        self._secondary = secondary

    @property
    def usable(self) -> bool:
        """Whether neither connection is known to be lost."""
        return self.primary.usable and self._secondary.usable

    async def command(self) -> CycleCommand:
        """The next command, whenever that is. Raises `ServerUnreachableError`, `ProtocolError`."""
        body = await self._secondary.receive()
        try:
            return decode_command(body)
        except DisError as error:
            raise ProtocolError(f"no command to a scheduler: {error}") from error

    async def end(self) -> None:
        """Ends the cycle that a command began. Raises `ServerUnreachableError`."""
        await self._secondary.send(_END_OF_CYCLE)

    async def answer_qrun(self, job: str, code: int = 0, text: str = "") -> None:
        """Report the outcome of a RUN_JOB before the end of its cycle; code 0 is success.

        Raises as `OpenPBSConnection.request`.
        """
        await self.primary.request(
            DeferredReplyRequest(command=OpenPBSCommand.RUN_JOB, job=job, result=code, text=text or None)
        )

    def end_if_broken(self) -> None:
        """Abort both connections if one is lost: a registration needs both."""
        if not self.usable:
            for connection in (self.primary, self._secondary):
                connection.abort("the scheduler's other connection was lost")

    async def close(self) -> None:
        """Leaves the place; jobs then wait until another scheduler takes it."""
        await self._secondary.close()
        await self.primary.close()


async def register(
    primary: OpenPBSConnection, secondary: OpenPBSConnection, name: str = "default"
) -> Registration:
    """Takes the scheduler's place with two open connections; the first takes requests, the other commands.

    Raises `TakenError` when another scheduler holds the place, `RightsError` when we may not or the server
    knows no scheduler of this name, and what `OpenPBSConnection.request` raises.
    """
    try:
        await primary.request(RegisterSchedulerRequest(name=name))
        await secondary.request(RegisterSchedulerRequest(name=name))
    except ServerRefusedError as error:
        match error.code:
            case OpenPBSErrorCode.SCHEDCONNECTED:
                raise TakenError(
                    f"another scheduler is registered as {name!r}: stop it (pbs_sched?), or use adviser mode"
                ) from error
            case OpenPBSErrorCode.PERM:
                raise RightsError(
                    f"{primary.user} may not be the scheduler {name!r}: it takes root, or the server's "
                    "PBS_DAEMON_SERVICE_USER"
                ) from error
            case OpenPBSErrorCode.UNKSCHED:
                raise RightsError(
                    f"the server knows no scheduler {name!r}: create it with qmgr -c 'create sched {name}'"
                ) from error
        raise
    return Registration(primary, secondary, name)
