"""What a pbs_server says of itself that a new site's settings depend on."""

import asyncio
from dataclasses import dataclass

from server_adapter.batch.errors import ServerRefusedError, ServerUnreachableError
from server_adapter.bridge.rates import Pace
from server_adapter.bridge.state import State
from server_adapter.families import connector
from server_adapter.settings import Settings, SettingsError

__all__ = ["Seen", "UnseenError", "look"]

_LONGEST = 20.0


class UnseenError(Exception):
    """The server could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts; memory in KiB."""

    version: str
    scheduling: bool
    nodes: int
    jobs: int
    mem_per_core: int
    """Of the node that has least; 0 where no node says how much it has."""
    without_walltime: tuple[str, ...]
    """Queues whose jobs may come without a walltime: neither they nor the server have a default."""
    sees_others: bool

    def remarks(self) -> list[str]:
        """What an admin should know before switching, in sentences."""
        said = [f"version {self.version or 'not said'}, {self.nodes} nodes, {self.jobs} jobs"]
        if self.scheduling:
            said.append("scheduling is True: its present scheduler goes on, which shadow mode is for")
        if self.without_walltime:
            queues = ", ".join(self.without_walltime[:8])
            said.append(f"no resources_default.walltime for jobs of {queues}: default_walltime is theirs")
        if not self.mem_per_core:
            said.append("no node says how much memory it has: it cannot be planned")
        if not self.sees_others:
            said.append("users do not see each other's jobs there (query_other_jobs)")
        return said


def look(settings: Settings) -> Seen:
    """Ask the server, which is only read. Raises UnseenError."""
    try:
        return _seen(asyncio.run(_read(settings)))
    except TimeoutError:
        raise UnseenError(f"it has not answered within {_LONGEST:g} s") from None
    except (ServerRefusedError, ServerUnreachableError, SettingsError, OSError) as error:
        raise UnseenError(str(error)) from None


async def _read(settings: Settings) -> State:
    server = connector(settings)(Pace(1.0))
    try:
        async with asyncio.timeout(_LONGEST):
            return await server.read()
    finally:
        await server.close()


def _seen(state: State) -> Seen:
    server = state.server
    each = [node.mem // (node.cpus or 1) for node in state.nodes.values() if node.mem]
    return Seen(
        version=server.version,
        scheduling=server.scheduling,
        nodes=len(state.nodes),
        jobs=len(state.jobs),
        mem_per_core=min(each, default=0),
        without_walltime=tuple(
            sorted(
                queue.name
                for queue in state.queues.values()
                if "walltime" not in {**server.defaults, **queue.defaults}
            )
        ),
        sees_others=server.open,
    )
