"""The page "Build a portal in ten minutes": its examples run against a daemon."""

import asyncio
import json
import re
import runpy
import shlex
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from schedd.api.app import create_app
from schedd.engine import EngineSettings
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.conftest import ROOT
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

PAGE = (ROOT / "docs/users/portal.md").read_text()
EXAMPLES = ROOT / "docs/examples"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    warm_up()
    clusters = Clusters({"main": EngineSettings(end_allowance=0)}, StillClock())
    clusters.start(warm=False)
    app: FastAPI = create_app(clusters, tokens())
    jobs = [job(f"{number}.srv", user="our-user", nodes="1:ppn=4") for number in (1, 2)]
    clusters["main"].submit([node("n1", 4), *jobs]).result(WAIT_S)
    with serving(app, clusters) as found:
        yield found
    clusters.stop()


def printed(block: str) -> Any:
    """The JSON that a block of the page shows."""
    return json.loads(re.search(r"^\{.*", block, re.MULTILINE | re.DOTALL)[0])  # type: ignore[index]


def test_requests_of_the_page_have_the_shown_fields(url: str) -> None:
    blocks = [block for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if "curl" in block]
    assert len(blocks) == 2
    for block in blocks:
        words = shlex.split(block.splitlines()[0].replace("$TOKEN", token("user")))
        header = words[words.index("-H") + 1]
        name, _, value = header.partition(": ")
        address = words[-1].replace("http://127.0.0.1:8080", url)
        answer = httpx2.get(address, headers={name: value})
        assert answer.status_code == 200, answer.text
        if "\n{" in block:
            shown = printed(block)
            assert answer.json().keys() == shown.keys()
            assert answer.json()["clusters"][0].keys() == shown["clusters"][0].keys()
        else:
            named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)[:8]))
            assert set(named) <= answer.json()["jobs"][0].keys(), named


def test_the_portal_of_the_page_shows_own_jobs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDD_URL", url)
    monkeypatch.setenv("SCHEDD_TOKEN", token("user"))
    portal = runpy.run_path(str(EXAMPLES / "portal.py"))["Portal"]
    monkeypatch.setattr(portal, "log_message", lambda *_: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), portal)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        page = httpx2.get(f"http://127.0.0.1:{server.server_address[1]}/").text
        assert "Jobs of our-user" in page
        assert page.index("1.srv") < page.index("2.srv")
        monkeypatch.setenv("SCHEDD_TOKEN", "wrong")
        assert httpx2.get(f"http://127.0.0.1:{server.server_address[1]}/").status_code == 502
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_batch_spawner_reports_the_start_of_its_job(url: str) -> None:
    class Spawner:
        """A stand-in for batchspawner's class."""

        job_id = ""
        looks = 0

        def state_isrunning(self) -> bool:
            self.looks += 1
            if self.looks == 2:
                self.job_id = "2.srv"
            return self.looks > 4

    make = runpy.run_path(str(EXAMPLES / "batchspawner_start.py"))["planned_start"]
    spawner = make(Spawner, url, token("reader"), "main", pause_s=0.0)()

    async def messages() -> list[str]:
        return [one["message"] async for one in spawner.progress()]

    first, second, last = asyncio.run(messages())
    assert first == "Submitting"
    assert "lanned" in second
    assert last == "The notebook's job runs"
