"""A user with as many requests as possible, over several connections; run as a separate process.

It takes ``HostileUser`` as JSON on its standard input and writes the outcomes of its requests to its standard
output. It does not obey ``Retry-After``.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

_PAUSE_S: Final = 0.02  # after a refusal
_CHUNKS: Final = 60
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class HostileUser:
    """``books``: bookings of 60 chunks that no cluster has room for; else pages of 1,000 jobs are read."""

    port: int
    token: str
    cluster: str
    connections: int
    seconds: float
    books: bool = False


@dataclass(frozen=True, slots=True)
class Refusals:
    """Requests by the status of their answers; 0: the connection broke."""

    by_status: dict[str, int]
    seconds: float


def start(user: HostileUser) -> "subprocess.Popen[str]":
    """Begin to ask."""
    process = subprocess.Popen(
        [sys.executable, "-m", "research.benchmarks.hostile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(user)))
    process.stdin.close()
    process.stdin = None
    return process


def wait_for(process: "subprocess.Popen[str]") -> Refusals:
    """Return the outcomes of all its requests. Raises ValueError when it failed."""
    said = process.communicate()[0]
    if process.returncode:
        raise ValueError(f"the asking process ended with {process.returncode}")
    return Refusals(**json.loads(said))


def _ask(user: HostileUser, number: int, until: float, found: "Counter[str]") -> None:
    headers = {"Authorization": f"Bearer {user.token}", "Accept-Encoding": "gzip"}
    connection = http.client.HTTPConnection("127.0.0.1", user.port, timeout=60)
    asked = 0
    while time.monotonic() < until:
        asked += 1
        method, path, body = "GET", f"{user.cluster}/jobs?limit=1000", None
        if user.books:
            method, path = "PUT", f"{user.cluster}/bookings/b{number}.{asked}"
            chunks = "+".join(f"1:ncpus={1 + i % 2}:mem={1 + i}gb" for i in range(_CHUNKS))
            asks = {"request": f"select={chunks},place=scatter", "duration": 20 * _DAY}
            body = json.dumps({**asks, "deadline": int(time.time()) + 21 * _DAY})
            headers["Content-Type"] = "application/json"
        status = 0
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            status = answer.status
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
        found[str(status)] += 1
        if status in (0, 429, 503):
            time.sleep(_PAUSE_S)
    with suppress(OSError):
        connection.close()


def _main() -> None:
    user = HostileUser(**json.load(sys.stdin))
    begun, found = time.monotonic(), Counter[str]()
    until = begun + user.seconds
    threads = [
        threading.Thread(target=_ask, args=(user, number, until, found)) for number in range(user.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump({"by_status": dict(found), "seconds": round(time.monotonic() - begun, 1)}, sys.stdout)


if __name__ == "__main__":
    _main()
