"""A house for every test that asks to `build` one."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from server_adapter.emulator import EmulatedOpenPBS, EmulatedServer, NodeSpec
from tests.server_adapter.bridge.fake_daemon import FakeDaemon
from tests.server_adapter.bridge.house import TIMING, AdapterHarness, Build


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            version: str = "4.2",
            *,
            plan: bool = True,
            scale: float = 1.0,
            credential_lifetime: float = 0.0,
            **options: Any,
        ) -> AdapterHarness:
            nodes = [
                NodeSpec(name=f"node{number}", slots=4, properties=("odd",) if number % 2 else ("even",))
                for number in range(1, 5)
            ]
            how: dict[str, Any] = {
                "timing": TIMING,
                "time_scale": scale,
                "credential_lifetime": credential_lifetime,
            }
            if version == "openpbs":
                # What the tests of both families use of a server is the same.
                server = cast("EmulatedServer", EmulatedOpenPBS(nodes, **how))
                options = {"server.family": "openpbs"} | options
            else:
                server = EmulatedServer(nodes, version=version, **how)
            await stack.enter_async_context(server)
            server.cluster.attributes["scheduling"] = "True"
            server.cluster.attributes["keep_completed"] = "300"
            house = AdapterHarness(tmp_path / "state", server, FakeDaemon(plan=plan), options)
            stack.push_async_callback(house.stop)
            return house

        yield make
