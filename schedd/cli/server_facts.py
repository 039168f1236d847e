"""What a pbs_server says of itself: what a new site's settings depend on, and all its own settings."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

# The protocols take a second of processor time to load: only where a server is read.
if TYPE_CHECKING:
    from schedd.wire import NodeFacts
    from server_adapter.bridge.server import ObjectSettings, Server
    from server_adapter.bridge.state import ServerState
    from server_adapter.settings import AdapterSettings, PbsServerSettings

Auth = Literal["auto", "privileged", "trqauthd", "munge", "none"]  # how a server is to trust us
Family = Literal["torque", "openpbs"]  # which kind of server it is

_T = TypeVar("_T")

_TIMEOUT_S = 20.0


class ServerUnreadableError(Exception):
    """The server could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """Facts; memory in KiB."""

    version: str
    scheduling: bool
    nodes: int
    jobs: int
    mem_per_core: int  # of the node that has least; 0 where no node says how much it has
    without_walltime: tuple[str, ...]
    """Execution queues that accept jobs without a walltime: neither they nor the server have a default."""
    sees_others: bool
    machine: "tuple[NodeFacts, ...]" = ()  # the nodes with cpus

    def remarks(self) -> list[str]:
        """What an admin should know before switching, in sentences."""
        said = [
            f"version {self.version or 'not said'}, {_count(self.nodes, 'node')}, {_count(self.jobs, 'job')}"
        ]
        if self.scheduling:
            said.append("scheduling is True: its present scheduler keeps running beside shadow and adviser")
        if self.without_walltime:
            queues = ", ".join(self.without_walltime[:8])
            said.append(f"no resources_default.walltime for jobs of {queues}: default_walltime is theirs")
        if not self.mem_per_core:
            said.append("no node says how much memory it has: it cannot be planned")
        if not self.sees_others:
            said.append("users do not see each other's jobs there (query_other_jobs)")
        return said


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def add_server_options(parser: argparse.ArgumentParser, auth: str) -> None:
    """Add the family of a server and the authentication to it, which ``auth`` describes."""
    about = "family of the server (default: torque)"
    parser.add_argument("--family", choices=get_args(Family), default="torque", help=about)
    parser.add_argument("--auth", choices=get_args(Auth), default="auto", help=f"{auth} (default: auto)")


def parse_server_address(named: str, family: Family, auth: Auth) -> "PbsServerSettings":
    """The server at HOST or HOST:PORT. Raises ValueError."""
    from server_adapter.settings import PbsServerSettings  # noqa: PLC0415

    host, _, port = named.partition(":")
    return PbsServerSettings(host=host or "127.0.0.1", port=int(port or 15001), family=family, auth=auth)


def read_server_summary(settings: "AdapterSettings") -> ServerSummary:
    """Ask the server, which is only read. Raises UnseenError."""
    return summarize_server(_run_query(settings, lambda server: server.read()))


def read_server_settings(settings: "AdapterSettings") -> "list[ObjectSettings]":
    """All that the server says of itself, its queues and its schedulers. Raises UnseenError."""
    return _run_query(settings, lambda server: server.settings())


def _run_query(settings: "AdapterSettings", ask: "Callable[[Server], Awaitable[_T]]") -> _T:
    from schedd.wire.toml_files import SettingsError  # noqa: PLC0415
    from server_adapter.batch.errors import BatchError  # noqa: PLC0415

    try:
        return asyncio.run(_query_server(settings, ask))
    except TimeoutError:
        raise ServerUnreadableError(f"it has not answered within {_TIMEOUT_S:g} s") from None
    except (BatchError, SettingsError, OSError) as error:
        raise ServerUnreadableError(str(error)) from None


async def _query_server(settings: "AdapterSettings", ask: "Callable[[Server], Awaitable[_T]]") -> _T:
    from server_adapter.bridge.rate_limits import AdaptiveRateLimiter  # noqa: PLC0415
    from server_adapter.families import connector  # noqa: PLC0415

    server = connector(settings)(AdaptiveRateLimiter(1.0))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await ask(server)
    finally:
        await server.close()


def summarize_server(state: "ServerState") -> ServerSummary:
    """Return what a new site's settings depend on."""
    server = state.server
    each = [node.mem // (node.cpus or 1) for node in state.nodes.values() if node.mem]
    return ServerSummary(
        version=server.version,
        scheduling=server.scheduling,
        nodes=len(state.nodes),
        jobs=len(state.jobs),
        mem_per_core=min(each, default=0),
        without_walltime=tuple(
            sorted(
                queue.name
                for queue in state.queues.values()
                if not queue.routes and "walltime" not in {**server.defaults, **queue.defaults}
            )
        ),
        sees_others=server.open,
        machine=tuple(node for node in state.nodes.values() if node.cpus > 0),
    )
