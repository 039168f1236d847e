"""Several clusters, each with its own daemon, adapter and emulated server, under one federation; all are real
processes that may be killed, and between them is a network that may be cut.
"""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from schedd.client import ClientError, Endpoint, Refused
from schedd.client.answers import BagView, CoAllocationView, FederatedBookingView, FederatedJobView
from schedd.client.json_object import json_members
from schedd.federation.bookings.decisions import LIVE
from schedd.federation.client import FederationClient
from server_adapter.emulator import NodeSpec
from tests.ports import free_port
from tests.server_adapter.bridge.processes import ProcessHarness, Program, _says_yes
from tests.waits import WAIT_S

FEDERATION, ALICE, CAROL = "the-federations-token-there", "the-token-of-alice", "the-token-of-carol"
_MARK = re.compile(r"SCHEDD_TRANSFER=fed\.(\d+)\.(\d+)")


class CuttableProxy:
    """TCP proxy that can be cut; ``after`` cuts it after this number of answer bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut = False
        self.after: int | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def drop(self) -> None:
        """All connections break at once; new ones break until it is mended."""
        self.cut = True
        for writer in list(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        self.cut, self.after = False, None

    async def close(self) -> None:
        self.drop()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted are closed in the loop's next turn

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back}
        self._open |= both
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer, counted=True))
        self._open -= both
        for one in both:
            one.transport.abort()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if counted and self.after is not None:
                    if len(data) > self.after:
                        self.drop()
                        return
                    self.after -= len(data)
                sink.write(data)
                await sink.drain()
        sink.close()


def _booked(client: FederationClient, name: str, asked: dict[str, Any]) -> FederatedBookingView:
    try:
        return client.book(name, asked)
    except Refused as error:
        if error.kind != "no-room":
            raise
        return client.booking(name)


class LiveFederation:
    """The clusters by name, the wires to their daemons, and the federation; those named in ``openpbs`` have
    such a server, others a TORQUE.
    """

    def __init__(self, directory: Path, names: str, routing: str = "", *, openpbs: str = "") -> None:
        self.directory = directory
        self.houses: dict[str, ProcessHarness] = {}
        self.wires: dict[str, CuttableProxy] = {}
        self._routing, self._openpbs = routing, openpbs
        self.port = free_port()
        for name in names:
            place = directory / name
            place.mkdir()
            nodes = [NodeSpec(f"{name}{number}", 4, (), 16 << 20) for number in range(1, 3)]
            house = ProcessHarness(place, "openpbs" if name in openpbs else "6.1", nodes=nodes)
            house._adapter_settings = "transfers = true\n" + house._adapter_settings
            with (place / "tokens").open("a") as file:
                file.write(f"federation ours {FEDERATION}\n")
            self.houses[name] = house
            self.wires[name] = CuttableProxy(int(house.urls[0].rpartition(":")[2]))
        config = directory / "federation.toml"
        self.federation = Program("federate", ["--config", str(config)], directory / "federation.log")
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for name, house in self.houses.items():
                await self._stack.enter_async_context(house.server)
                kept = {"keep_completed": "3600", "job_history_enable": "True"}
                house.server.cluster.attributes |= {"scheduling": "True", **kept}
                house.configure()
                house.daemon.start()
                self._stack.callback(house.daemon.kill)
                house.adapter.start()
                self._stack.callback(house.adapter.kill)
                await self.wires[name].start()
                self._stack.push_async_callback(self.wires[name].close)
            self._configure()
            self.federation.start()
            self._stack.callback(self.federation.kill)
            for house in self.houses.values():
                await house.ready()
            await self.ready()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _configure(self) -> None:
        (self.directory / "users").write_text(f"user alice@org {ALICE}\nadmin carol {CAROL}\n")
        (self.directory / "users").chmod(0o600)
        (self.directory / "there").write_text(FEDERATION)
        text = f"""
            [server]
            port = {self.port}
            token_file = "{self.directory}/users"
            [store]
            url = "sqlite:///{self.directory}/federation.sqlite"
            [routing]
            poll = 0.6
            patience = 3
            {self._routing}
            """
        for name, wire in self.wires.items():
            text += f"""
            [clusters.{name}]
            url = "http://127.0.0.1:{wire.port}"
            token_file = "{self.directory}/there"
            timeout = 3.0
            realms = ["org"]
            disclosure = "plan"
            family = "{"openpbs" if name in self._openpbs else "torque"}"
            """
        (self.directory / "federation.toml").write_text(text)

    async def ready(self) -> None:
        while not await asyncio.to_thread(_says_yes, f"http://127.0.0.1:{self.port}/readyz"):
            assert not self.federation.ended, self.federation.log.read_text()
            await asyncio.sleep(0.1)

    async def restart(self) -> None:
        """As by a power cut."""
        self.federation.kill()
        self.federation.start()
        await self.ready()

    def client(self, token: str = ALICE) -> FederationClient:
        return FederationClient(Endpoint(f"http://127.0.0.1:{self.port}", token))

    async def submit(self, key: str, **body: Any) -> FederatedJobView:
        """Repeat until the job is accepted, like a careful sender."""
        asked = {"script": "sleep 0.3", "request": "nodes=1:ppn=2,walltime=60", "key": key, **body}
        while True:
            try:
                return await asyncio.to_thread(self._submit, asked)
            except ClientError:
                await asyncio.sleep(0.2)

    def _submit(self, body: dict[str, Any]) -> FederatedJobView:
        with self.client() as client:
            return client.submit(body)

    async def submit_coallocation(
        self, key: str, *components: dict[str, Any], **body: Any
    ) -> CoAllocationView:
        """Repeat until the bag is accepted."""
        asked = {
            "components": [
                {"script": "sleep 3", "request": "nodes=1:ppn=4,walltime=60", **component}
                for component in components
            ],
            "key": key,
            **body,
        }

        def request() -> CoAllocationView:
            with self.client() as client:
                return client.submit_coallocation(asked)

        while True:
            try:
                return await asyncio.to_thread(request)
            except ClientError:
                await asyncio.sleep(0.2)

    async def edit(self, name: str, component: dict[str, Any] | None, number: int | None) -> None:
        """Add, substitute or delete a component of a co-allocation that has a start."""

        def request() -> None:
            with self.client() as client:
                client.edit_component(name, component, number)

        async with asyncio.timeout(WAIT_S):
            while (await self.groups())[0].start is None:
                await asyncio.sleep(0.2)
        await asyncio.to_thread(request)

    async def submit_bag(self, key: str, tasks: int, seconds: int, **body: Any) -> dict[str, Any]:
        """Repeat until the co-allocation is accepted."""
        asked = {
            "script": "sleep 0.3",
            "request": "nodes=1:ppn=2,walltime=20",
            "tasks": tasks,
            "key": key,
            **body,
        }

        def request() -> dict[str, Any]:
            with self.client() as client:
                made = client.submit_bag({**asked, "deadline": int(time.time()) + seconds, "late": True})
                return dict(json_members(made))

        while True:
            try:
                return await asyncio.to_thread(request)
            except ClientError:
                await asyncio.sleep(0.2)

    async def open_to_bookings(self) -> None:
        """Let users book at all clusters, as soon as the federation has an answer of each of them."""
        for house in self.houses.values():
            await house.request("/policy", "PUT", {"bookings": {"most": 50}})
        while not await asyncio.to_thread(self._every_cluster_is_usable):
            await asyncio.sleep(0.2)

    def _every_cluster_is_usable(self) -> bool:
        with self.client(CAROL) as client:
            return all(one.cpus and not one.away for one in client.clusters())

    async def book(self, name: str, **body: Any) -> FederatedBookingView:
        """Repeat until the outcome of the booking is known."""
        asked = {"request": "nodes=2:ppn=4", "duration": 60, **body}
        return await self._careful(lambda client: _booked(client, name, asked))

    async def accept(self, name: str, option: int) -> FederatedBookingView:
        """Takes an offer."""

        def request() -> FederatedBookingView:
            with self.client() as client:
                return client.accept_option(name, option)

        return await asyncio.to_thread(request)

    async def cancel_booking(self, name: str) -> FederatedBookingView:
        """Repeat until the cancellation is accepted."""
        return await self._careful(lambda client: client.cancel_booking(name))

    async def _careful(self, ask: Callable[[FederationClient], FederatedBookingView]) -> FederatedBookingView:
        def once() -> FederatedBookingView:
            with self.client() as client:
                return ask(client)

        while True:
            try:
                return await asyncio.to_thread(once)
            except ClientError:
                await asyncio.sleep(0.2)

    async def bookings(self) -> dict[str, FederatedBookingView]:
        """By name."""

        def request() -> Sequence[FederatedBookingView]:
            with self.client(CAROL) as client:
                return client.bookings()

        try:
            return {one.name: one for one in await asyncio.to_thread(request)}
        except ClientError:
            return {}

    async def bookings_as(self, states: Mapping[str, str], seconds: float = WAIT_S) -> None:
        """Waits until these bookings stand so."""
        found: dict[str, str] = {}
        try:
            async with asyncio.timeout(seconds):
                while found != states:
                    await asyncio.sleep(0.2)
                    rows = await self.bookings()
                    found = {name: rows[name].state for name in states if name in rows}
        except TimeoutError:
            raise AssertionError(f"they stand so: {found}") from None

    async def is_held(self, *, confirmed: bool = False) -> dict[str, list[tuple[str, str, int]]]:
        """Return the clusters with cores for each booking of the federation, with owner and start; optionally
        only ``confirmed`` bookings.
        """
        found: dict[str, list[tuple[str, str, int]]] = {}
        for name, house in self.houses.items():
            for one in (await house.request("/bookings"))["bookings"]:
                if one["phase"] in LIVE and (one["confirmed"] or not confirmed):
                    number = one["name"].split(".")[1]
                    found.setdefault(number, []).append((name, one["owner"], one["start"]))
        return found

    async def bag_judged(self, name: str, state: str) -> BagView:
        """Return the bag, once its deadline has this state and, if it is refused, an earliest deadline."""

        def request() -> BagView:
            with self.client(CAROL) as client:
                return client.bag(name)

        row = None
        try:
            async with asyncio.timeout(WAIT_S):
                while row is None or not (row.deadline_state == state != "wished" or row.earliest_deadline):
                    await asyncio.sleep(0.3)
                    with contextlib.suppress(ClientError):
                        row = await asyncio.to_thread(request)
        except TimeoutError:
            raise AssertionError(f"not {state}: {row}") from None
        return row

    async def bags_over(self, count: int, seconds: float = WAIT_S) -> Sequence[BagView]:
        """Return all bags, once this number exists and all are over."""

        def request() -> Sequence[BagView]:
            with self.client(CAROL) as client:
                return client.bags()

        rows: Sequence[BagView] = []
        try:
            async with asyncio.timeout(seconds):
                while len(rows) < count or not all(row.over for row in rows):
                    await asyncio.sleep(0.3)
                    with contextlib.suppress(ClientError):
                        rows = await asyncio.to_thread(request)
        except TimeoutError:
            raise AssertionError(f"not over: {[row for row in rows if not row.over]}") from None
        return rows

    def tasks(self) -> dict[str, Counter[int]]:
        """By job of the federation that is an array: how often each of its tasks was started."""
        found: dict[str, Counter[int]] = {}
        for house in self.houses.values():
            cluster = house.server.cluster
            for name, job in cluster.jobs.items():
                mark = _MARK.search(job.order.variables)
                if mark is not None and job.index is not None and cluster.runs.get(name, 0):
                    found.setdefault(mark.group(1), Counter())[job.index] += cluster.runs[name]
        return found

    async def groups(self) -> Sequence[CoAllocationView]:
        def request() -> Sequence[CoAllocationView]:
            with self.client(CAROL) as client:
                return client.coallocations()

        try:
            return await asyncio.to_thread(request)
        except ClientError:
            return []

    async def groups_over(self, count: int, seconds: float = WAIT_S) -> Sequence[CoAllocationView]:
        """Return all co-allocations, once this number exists and all are over."""
        rows: Sequence[CoAllocationView] = []
        try:
            async with asyncio.timeout(seconds):
                while len(rows) < count or not all(row.over for row in rows):
                    await asyncio.sleep(0.3)
                    rows = await self.groups()
        except TimeoutError:
            raise AssertionError(f"not over: {[row for row in rows if not row.over]}") from None
        return rows

    def starts(self) -> dict[str, list[float]]:
        """By job or group of the federation, when each of its jobs was started, by its server's clock."""
        found: dict[str, list[float]] = {}
        for house in self.houses.values():
            for job in house.server.cluster.jobs.values():
                mark = _MARK.search(job.order.variables)
                if mark is not None and job.started is not None:
                    found.setdefault(mark.group(1), []).append(job.started)
        return found

    async def jobs(self) -> Sequence[FederatedJobView]:
        def request() -> Sequence[FederatedJobView]:
            with self.client(CAROL) as client:
                return client.jobs()

        try:
            return await asyncio.to_thread(request)
        except ClientError:
            return []

    async def until_over(self, count: int, seconds: float = WAIT_S) -> Sequence[FederatedJobView]:
        """Return all jobs, once this number exists and all are over."""
        rows: Sequence[FederatedJobView] = []
        try:
            async with asyncio.timeout(seconds):
                while len(rows) < count or not all(row.over for row in rows):
                    await asyncio.sleep(0.3)
                    rows = await self.jobs()
        except TimeoutError:
            left = [row for row in rows if not row.over]
            raise AssertionError(f"{len(rows)} of {count} known, not over: {left}") from None
        return rows

    def runs(self) -> Counter[str]:
        """How often each of the federation's jobs was started, over all servers."""
        found: Counter[str] = Counter()
        for house in self.houses.values():
            cluster = house.server.cluster
            for name, job in cluster.jobs.items():
                mark = _MARK.search(job.order.variables)
                assert mark is not None, job.order
                found[mark.group(1)] += cluster.runs.get(name, 0)
        return found
