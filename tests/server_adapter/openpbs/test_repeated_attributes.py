"""Attributes that a server sends several times, from the emulated server to the limits of the planner."""

from pathlib import Path

import pytest

from schedd.policy.limits import Limit, parse_server_limits
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.requests import ManageRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedOpenPBS, NodeSpec
from server_adapter.families import connector
from server_adapter.openpbs import OpenPBSAnyPort, open_connection
from server_adapter.settings import load_settings

pytestmark = pytest.mark.anyio


async def test_every_entry_of_a_limit_counts(tmp_path: Path) -> None:
    async with EmulatedOpenPBS([NodeSpec("n1", 4)], time_scale=0) as server:
        host, port = server.address
        settings = {
            "server.family": "openpbs",
            "server.host": host,
            "server.port": port,
            "server.auth": "none",
            "mode": "adviser",
            "state_dir": tmp_path,
        }
        changes = (
            Attribute("max_run", "[u:PBS_GENERIC=3], [u:ann=1]"),
            Attribute("max_run_res", "[u:PBS_GENERIC=8], [g:staff=20]", "ncpus"),
            Attribute("acl_users", "ann,bob"),
            Attribute("managers", "root@*,ann@head"),
        )
        async with await open_connection(Address(host, port), OpenPBSAnyPort(), user="root") as root:
            for kind, name in ((ObjectType.SERVER, ""), (ObjectType.QUEUE, "workq")):
                await root.request(
                    ManageRequest(
                        code=RequestCode.MANAGER,
                        command=ManagerCommand.SET,
                        object_type=kind,
                        name=name,
                        attributes=changes,
                    )
                )
        adapter = connector(load_settings(None, settings))(AdaptiveRateLimiter(200))
        try:
            state = await adapter.read()
        finally:
            await adapter.close()
    for printed, queue in ((state.server.limits, ""), (state.queues["workq"].limits, "workq")):
        limits, odd = parse_server_limits(printed, queue)
        assert not odd
        assert set(limits) == {
            Limit(amount=3, who="user", queue=queue),
            Limit(amount=1, who="user", name="ann", queue=queue),
            Limit(amount=8, what="cpus", who="user", queue=queue),
            Limit(amount=20, what="cpus", who="group", name="staff", queue=queue),
        }
