"""Clusters in a process of their own, as in production, behind the daemon's own HTTP interface."""

import asyncio
import logging
import multiprocessing
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import structlog
import uvicorn
from typing_extensions import override

from research.benchmarks.daemon import DaemonFailed
from research.benchmarks.workload import BenchJob
from research.federations.bench_clusters import answering, fill, planners
from research.federations.inside import Traffic, kind_of
from schedd.client import Client, Endpoint
from schedd.client.http import HttpConnection
from schedd.client.http_stream import HttpResponse, HttpStream, connect_tcp, parse_url
from schedd.model import Node
from schedd.service.warmup import warm_up

_TIMEOUT_S: Final = 60.0


class Apart:
    """A process with full clusters; their clients' requests go over the loopback interface and are counted.

    Raises DaemonFailed where it does not come up.
    """

    def __init__(
        self,
        names: Sequence[str],
        machines: Sequence[Node],
        spread: Sequence[BenchJob],
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        about = (self._theirs, list(names), list(machines), list(spread))
        self._process = context.Process(target=_serve, args=about, name="clusters", daemon=True)
        self._port = 0

    def __enter__(self) -> Self:
        self._process.start()
        self._theirs.close()  # so that the end of the other process is noticed
        try:
            self._port = self._pipe.recv()
        except EOFError:
            raise DaemonFailed("the process with the clusters ended before they were full") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send("stop")
        self._process.join(10)
        self._process.kill()

    @property
    def cpu_s(self) -> float:
        """Processor time of both processes until now."""
        self._pipe.send("cpu")
        return time.process_time() + float(self._pipe.recv())

    def client(self, token: str, cluster: str) -> Client:
        endpoint = Endpoint(f"http://127.0.0.1:{self._port}", token, cluster)
        return Client(endpoint, connection=_Counted(endpoint, self._traffic))


def _serve(pipe: Pipe, names: Sequence[str], machines: Sequence[Node], spread: Sequence[BenchJob]) -> None:
    """The other process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    warm_up()
    with planners(names) as loops:
        fill(loops, machines, spread, lambda _: None)
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(answering(loops), log_config=None, lifespan="off", timeout_keep_alive=600)
        )

        async def both() -> None:
            serving = asyncio.ensure_future(server.serve([listening]))
            pipe.send(listening.getsockname()[1])
            while await asyncio.to_thread(pipe.recv) == "cpu":
                pipe.send(time.process_time())
            server.should_exit = server.force_exit = True
            await serving

        asyncio.run(both())


class _Counted(HttpConnection):
    def __init__(self, endpoint: Endpoint, traffic: Traffic) -> None:
        self._traffic = traffic
        super().__init__(endpoint, _TIMEOUT_S)

    @override
    def _new(self) -> HttpStream:
        found = parse_url(self._endpoint.url)
        assert found is not None
        connect = partial(connect_tcp, found.host, found.port, _TIMEOUT_S)
        return _Http(found.authority, connect, self._traffic)


class _Http(HttpStream):
    def __init__(self, authority: str, connect: Callable[[], socket.socket], traffic: Traffic) -> None:
        super().__init__(authority, connect)
        self._traffic = traffic
        self._size = 0

    @override
    def encode_request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        data = super().encode_request(method, target, body, headers)
        self._size = len(data)
        return data

    @override
    def request(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpResponse:
        answer = super().request(method, target, body, headers)
        head = sum(len(name) + len(value) + 4 for name, value in answer.headers.items())
        size = len("HTTP/1.1 200 OK\r\n\r\n") + head + int(answer.headers.get("content-length", 0))
        self._traffic.note(kind_of(method, urlsplit(target).path), self._size, size)
        return answer
