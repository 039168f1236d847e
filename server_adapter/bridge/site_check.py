"""Check of server and daemon while an adapter runs: reads both, changes neither."""

import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from server_adapter.bridge.daemon_client import DaemonBusyError, DaemonClient
from server_adapter.bridge.delivery import Backoff
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.server import Server
from server_adapter.bridge.state import ServerState

_log = logging.getLogger(__name__)
_READY_WITHIN_S: Final = 600.0  # a daemon that answers 503 may be compiling
_SAID_AGAIN_S: Final = 30.0

_T = TypeVar("_T")


async def check_site(server: Server, client: DaemonClient) -> list[str]:
    """Read the server and the daemon's view of the cluster; return a report in lines.

    Waits for a daemon that is starting. Raises `DaemonAwayError`, `DaemonRefusedError`, and errors of the
    server's side.
    """
    state = await server.read()
    cluster = await _retry_until_ready(client.cluster)
    return [*_describe_server(state), *_describe_daemon(client.url, cluster)]


def _describe_server(state: ServerState) -> Iterator[str]:
    counts = Counter(job.state in ACTIVE for job in state.jobs.values())
    down = sum(node.state == "down" for node in state.nodes.values())
    yield (
        f"pbs_server {state.server.version or '(version not said)'}: {len(state.nodes)} nodes ({down} down), "
        f"{len(state.queues)} queues, {counts[True]} jobs run, {counts[False]} wait"
    )
    yield f"its attribute scheduling is {state.server.scheduling}"


def _describe_daemon(url: str, cluster: Mapping[str, Any]) -> Iterator[str]:
    name, heard = cluster.get("name"), cluster.get("heard")
    yield f"schedd at {url}: cluster {name}, mode {cluster.get('mode')}"
    if heard is None:
        yield "no adapter has served the cluster since the daemon started"
    else:
        yield f"an adapter serves the cluster; it was heard of {cluster.get('now', heard) - heard} s ago"
    if cluster.get("halted"):
        yield f"no jobs are started: {cluster['halted']}"


async def _retry_until_ready(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Retry until the busy daemon answers; after `_READY_WITHIN_S` raise its error."""
    until = time.monotonic() + _READY_WITHIN_S
    waits, said = Backoff(first=1.0, longest=5.0), -math.inf
    while True:
        try:
            return await ask()
        except DaemonBusyError as error:
            now = time.monotonic()
            if now >= until:
                raise
            if now >= said + _SAID_AGAIN_S:
                _log.warning("%s; waiting for it", error)
                said = now
            await waits.sleep()
