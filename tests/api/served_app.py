"""Serves a test's application on a socket."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from schedd.api.listening_sockets import listen_tcp
from schedd.service.cluster.plan_loop import PlanLoop
from tests.waits import WAIT_S


@contextmanager
def serving(app: FastAPI, clusters: Iterable[PlanLoop], path: Path | None = None) -> Iterator[str]:
    """Serve the application on loopback or on the UNIX socket ``path``; yield its URL."""
    listening = [listen_tcp("127.0.0.1", 0)] if path is None else None
    uds = str(path) if path is not None else None
    server = uvicorn.Server(uvicorn.Config(app, uds=uds, log_config=None, timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, args=(listening,))
    thread.start()
    try:
        if listening is not None:
            yield f"http://127.0.0.1:{listening[0].getsockname()[1]}"
        else:
            while not server.started:
                threading.Event().wait(0.01)
            yield f"unix:{path}"
    finally:
        for loop in clusters:
            loop.feed.signal.notify()
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()
