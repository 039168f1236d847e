"""Any bytes in any text of the server, through adapter and daemon to pages: nothing stops or is lost."""

import asyncio
import html
import json
import random
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from server_adapter.dis import decode_text, encode_text
from server_adapter.emulator import JobState, NodeSpec
from server_adapter.torque.notation import exec_host
from tests.server_adapter.bridge.processes import ADMIN, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

PIECES = [
    b"\xff",
    b"\x80",
    b"\xc3\xa9",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\\",
    rb"\xff",
    rb"\x00",
    b"job",
    b"<b>",
    b"&",
]
PIECES += [b"'\"", b"\t", b"\x1b[31m", b"\xe2\x80\xae", b"\xf0\x9f\x90\x8e", b"%s{}", b"\x7f", b"\n"]
NAMES = (b"node1", b"n\xff", rb"n\xff", b"n\xc3\xa9")
NODES = [NodeSpec(decode_text(name), 8, (f"p{number}",)) for number, name in enumerate(NAMES)]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    made = ProcessHarness(tmp_path, "4.2", nodes=NODES)
    async with made.running(keep_completed="3600"):
        yield made


def page(house: ProcessHarness, *paths: str) -> list[str]:
    """What the dashboard shows the admin there."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    base = house.urls[0] + "/dashboard"
    login = urllib.parse.urlencode({"token": ADMIN, "next": ""}).encode()
    origin = {"Origin": house.urls[0], "Content-Type": "application/x-www-form-urlencoded"}
    opener.open(urllib.request.Request(base + "/login", login, origin), timeout=WAIT_S).read()
    return [opener.open(base + path, timeout=WAIT_S).read().decode() for path in paths]


async def test_any_bytes_in_the_servers_texts_hinder_nobody_and_are_shown_escaped(
    house: ProcessHarness,
) -> None:
    server, chance = house.server, random.Random(3)

    def odd() -> bytes:
        return b"".join(chance.choice(PIECES) for _ in range(chance.randint(1, 5)))

    server.cluster.attributes |= {"comment": decode_text(odd()), "resources_default.x": decode_text(odd())}
    raw = {}
    for number in range(30):
        name = [b"job\xff", rb"job\xff"][number] if number < 2 else odd()
        places = ("Account_Name", "project", "comment", "x", "egroup", "depend")
        extra = {place: decode_text(odd()) for place in places[: chance.randint(0, 5)]}
        asked = {"nodes": "1:ppn=2", "walltime": "60"}
        if number % 3 == 2:
            asked[chance.choice(["software", "other", "feature"])] = decode_text(odd())
        job = server.submit(name=decode_text(name), resources=asked, runtime=1.5, extra=extra)
        raw[job] = (name, extra.get("comment"))
    on_each = [
        server.submit(resources={"nodes": f"1:ppn=8:{node.properties[0]}", "walltime": "60"}, runtime=0.5)
        for node in NODES
    ]
    plain = [server.submit(resources={"nodes": "1", "walltime": "60"}, runtime=0.2) for _ in range(10)]
    never = server.submit(name=decode_text(b"big\xff"), resources={"nodes": "1", "mem": "900gb"})
    house.adapter.start()

    while not all(server.job(job).state is JobState.COMPLETE for job in (*on_each, *plain)):
        assert not house.adapter.ended, house.adapter.log.read_text()
        await asyncio.sleep(0.1)
    for job, node in zip(on_each, NODES, strict=True):
        assert dict(exec_host(server.job(job).exec_host)) == {node.name: 8}
    house.adapter.kill()
    house.adapter.start()  # a restart reads it all again
    while not server.job(never).attributes.get("comment", "").startswith("schedd: never"):
        await asyncio.sleep(0.1)
    for name, comment in raw.values():
        assert (
            comment is None or comment.startswith("schedd: ") or decode_text(encode_text(comment)) == comment
        )
        assert decode_text(name).encode()

    (found,) = (job for job in (await house.request("/jobs"))["jobs"] if job["id"] == never)
    assert found["name"] == r"big\xff"
    queue, job_page, nodes = await asyncio.to_thread(
        page, house, "/main/queue", f"/main/jobs/{never}", "/main/nodes"
    )
    assert html.escape(r"big\xff") in job_page
    assert r"n\xff" in nodes
    assert r"n\\xff" in nodes
    assert "né" in nodes
    assert never.partition(".")[0] in queue
    for program in (house.adapter, house.daemon):
        text = program.log.read_text()
        assert "Traceback" not in text
        for line in text.splitlines():
            assert line.isprintable(), line
    for line in house.daemon.log.read_text().splitlines():
        assert json.loads(line)["level"] not in ("error", "critical"), line
