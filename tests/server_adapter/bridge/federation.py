"""A federation as a drain asks it: it keeps jobs by key, and its requests and answers can be lost."""

import json
from typing import Any

import httpx2


class Federation(httpx2.AsyncBaseTransport):
    """Federation stub that stores jobs by key. A request can be lost before or after its execution.

    ``over`` is the final state of a withdrawn job, empty until then.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.ready = 200
        self.refuses = ""
        self.refusal_status = 422
        self.loses = ""
        self.over = "cancelled"
        self.tokens: set[str] = set()
        self.cancelled: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.tokens.add(request.headers.get("authorization", ""))
        if request.url.path == "/readyz":
            return httpx2.Response(self.ready, json={})
        if request.method == "DELETE":
            number = request.url.path.rpartition("/")[2]
            self.cancelled += [number] if number not in self.cancelled else []
            return httpx2.Response(200, json={"id": number, "over": self.over})
        body = json.loads(await request.aread())
        if self.loses == "requests":
            raise httpx2.ConnectError("cut")
        if self.refuses:
            return httpx2.Response(self.refusal_status, json={"detail": self.refuses})
        self.jobs.setdefault(body["key"], body)
        if self.loses == "answers":
            raise httpx2.ReadError("cut")
        number = str(list(self.jobs).index(body["key"]) + 1)
        back = number in self.cancelled
        row = {"id": number, "cancelled": back, "over": self.over if back else ""}
        return httpx2.Response(201, json=row)
