"""How large and how quick the dashboard is: python tests/dashboard/measure.py [--jobs N] [--nodes M]

Serves a cluster of M nodes of 32 cpus with N jobs in this process, asks for its pages, and lets Chromium
draw the plan.
"""

import argparse
import gzip
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

import httpx2
import uvicorn
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.askers import Askers
from schedd.service.clusters import Clusters
from schedd.service.roles import Bearer
from schedd.service.settings import LimitSettings
from schedd.service.tokens import Tokens
from schedd.service.warmup import warm_up
from schedd.wire import JobFacts, JobQueued, NodeFacts, QueueFacts, Snapshot
from tests.dashboard.browser import HOW, chromium
from tests.service.build import StillClock, T

PAGES = (
    "plan",
    "queue",
    "queue?q=user7",
    "queue?sort=walltime",
    "nodes",
    "what-if?nodes=4&ppn=16&walltime=4:00:00",
    "quality",
    "jobs/{job}",
)
PAN = """async () => {
  const times = [...[...Bokeh.index.roots][0].model.references()].find((one) => one.name === "times");
  const step = (times.end - times.start) / 100;
  const frames = [];
  for (let i = 0; i < 20; i++) {
    const began = performance.now();
    times.setv({ start: times.start + step, end: times.end + step });
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    frames.push(performance.now() - began);
  }
  return frames.sort((a, b) => a - b)[10];
}"""


def filled(jobs: int, nodes: int) -> Clusters:
    """A cluster with so many nodes and jobs, of which those that can are being started."""
    clusters = Clusters({"main": EngineSettings(slack=3600)}, StillClock())
    clusters.start(warm=False)
    chance = random.Random(1)
    machines = tuple(NodeFacts(name=f"n{i:04}", cpus=32, mem=128 << 20) for i in range(nodes))
    queues = tuple(QueueFacts(name=name) for name in ("short", "long"))
    clusters["main"].submit([Snapshot(id="0", time=T, jobs=(), nodes=machines, queues=queues)]).result(60)
    for first in range(0, jobs, 500):
        clusters["main"].submit(
            [
                JobQueued(id=f"{i + 1}", time=T, job=_job(i, chance))
                for i in range(first, min(jobs, first + 500))
            ]
        ).result(600)
    return clusters


def _job(number: int, chance: random.Random) -> JobFacts:
    walltime = chance.choice([1800, 3600, 7200, 14400, 28800, 43200, 86400])
    spec = f"{chance.choice([1, 1, 1, 1, 2, 2, 4, 8])}:ppn={chance.choice([1, 2, 4, 8, 16, 32, 32])}"
    return JobFacts(
        id=f"{number}.server",
        owner=f"user{chance.randrange(60)}@login",
        queue=chance.choice(["short", "long"]),
        submitted=T - chance.randrange(86400),
        resources={"nodes": spec, "walltime": str(walltime)},
        version="1",
    )


def ask(client: httpx2.Client, path: str) -> bytes:
    """Asks five times and says the best."""
    best = 9e9
    body = b""
    for _ in range(5):
        began = time.perf_counter()
        body = client.get(path).raise_for_status().content
        best = min(best, time.perf_counter() - began)
    sizes = f"{len(body) / 1e3:7.0f} kB, {len(gzip.compress(body, 4)) / 1e3:5.0f} kB packed"
    print(f"{path:45} {best * 1e3:6.0f} ms {sizes}")
    return body


def draw(page: Page, url: str) -> None:
    """Lets the browser show the plan twice: with an empty cache, and again."""
    for how in ("first", "again"):
        began = time.perf_counter()
        page.goto(f"{url}/plan")
        page.wait_for_selector("#plan[data-ready]", timeout=60_000)
        drawn = (time.perf_counter() - began) * 1e3
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"{how}: first paint {paint:.0f} ms, plan drawn {drawn:.0f} ms")
    for hours, words in ((24, "a day"), (0, "all")):
        page.click(f"[data-hours='{hours}']")
        page.wait_for_timeout(1_000)
        print(f"moving {words} of the plan: {page.evaluate(PAN):.0f} ms a step, median of 20")


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=300)
    args = parser.parse_args()
    path = chromium()
    if path is None:
        print(HOW, file=sys.stderr)
        return 1
    warm_up()
    clusters = filled(args.jobs, args.nodes)
    tokens = Tokens([], Bearer("anonymous", "reader"))
    app = create_app(clusters, Askers(tokens, limits=LimitSettings(user_rate=0)))
    add_dashboard(app)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/dashboard/main"
    with httpx2.Client(base_url=url, headers={"Accept": "text/html"}, timeout=60) as client:
        ask(client, "/plan.json")
        for one in PAGES:
            ask(client, "/" + one.format(job=f"{args.jobs - 1}.server"))
    with sync_playwright() as playwright:
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        draw(browser.new_page(viewport={"width": 1280, "height": 900}), url)
        browser.close()
    server.should_exit = True
    clusters.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
