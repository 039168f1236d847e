"""Replace the outputs of commands in docs/users/tour.md and docs/users/commands.md with those of a demo.

The demo's own lines and answers over HTTP are printed, to be copied by hand.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from screenshots import demo

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("users/tour.md", "users/commands.md")
PLAYED_S = 75
PATIENCE_S = 300
PLAN_LINES = 15
BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = {"showstart", "showbf", "showq", "checkjob", "showplan"}


def run_command(command: list[str], url: str) -> str:
    """Return the output of a command of schedd on a screen of 80 columns."""
    environment = {**os.environ, "SCHEDD_URL": url, "COLUMNS": "80", "TZ": "UTC"}
    words = [sys.executable, "-m", "schedd.cli.main", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    return done.stdout + done.stderr


def is_good_moment(api: str) -> bool:
    """Return whether no job is late and the what-if has changes for an immediate start."""
    status = httpx2.get(api.rstrip("/")).json()
    planned = httpx2.get(f"{api}jobs?state=planned&limit=1000").json()["jobs"]
    if not planned or min(one["planned_start"] for one in planned) < status["as_of"]:
        return False
    asked = {"request": "nodes=2:ppn=8,walltime=4:00:00", "changes": True}
    return bool(httpx2.post(f"{api}what-if", json=asked).json().get("changes"))


def choose_examples(api: str) -> tuple[str, str, str]:
    """Return a waiting job with moves, an ended job, and a user with running and planned jobs."""
    jobs: list[dict[str, Any]] = httpx2.get(f"{api}jobs?limit=1000").json()["jobs"]
    now = httpx2.get(api.rstrip("/")).json()["as_of"]
    waiting = [one for one in jobs if one["state"] == "planned" and one["planned_start"] > now + 3600]
    moves = {
        one["id"]: len(httpx2.get(f"{api}jobs/{one['id']}/history").json()["changes"]) for one in waiting
    }
    usual = [
        one for one in waiting if 2 <= len(one["planned_nodes"]) <= 4 and moves[one["id"]] <= 6
    ] or waiting
    job = max(usual, key=lambda one: moves[one["id"]])["id"]
    over = next(
        number
        for number in map(str, range(1, 100))
        if httpx2.get(f"{api}jobs/{number}/history").json().get("past")
    )
    counts: dict[str, list[int]] = {}
    for one in jobs:
        both = counts.setdefault(one["owner"].partition("@")[0], [0, 0])
        both[one["state"] == "planned"] += one["state"] in ("planned", "running")
    user = max(counts, key=lambda name: (min(2, *counts[name]), -sum(counts[name])))
    return job.partition(".")[0], over, user


def update_outputs(text: str, url: str, job: str, over: str, user: str) -> str:
    """Return the page with current outputs of its commands."""

    def updated(block: re.Match[str]) -> str:
        first, _, rest = block[1].partition("\n")
        words = first.removeprefix("$ ").removeprefix(".venv/bin/schedd ").split()
        if not first.startswith("$ ") or words[0] not in NAMES or "$ " in rest:
            return block[0]
        if words[0] in ("checkjob", "showstart") and words[1].isdigit():
            words[1] = over if "is over" in rest else job
        if words[:2] == ["showq", "-u"]:
            words[2] = user
        before = "$ .venv/bin/schedd " if ".venv" in first else "$ "
        output = run_command(words, url).rstrip().split("\n")
        if words[0] == "showplan" and len(output) > PLAN_LINES:
            output[PLAN_LINES:] = ["…"]
        return "\n".join([f"```\n{before}{' '.join(words)}", *output, "```"])

    return BLOCK.sub(updated, text)


def main() -> int:
    """Update both pages; print the parts to be copied by hand."""
    with demo("--speed", "60", played=PLAYED_S) as (link, said):
        url = link.partition("/dashboard")[0]
        api = f"{url}/v1/clusters/demo/"
        until = time.monotonic() + PATIENCE_S
        while not is_good_moment(api) and time.monotonic() < until:
            time.sleep(0.5)
        job, over, user = choose_examples(api)
        for name in PAGES:
            page = ROOT / "docs" / name
            text = page.read_text()
            old = re.findall(r"^\$ (?:\.venv/bin/schedd )?showstart (\d+)$", text, re.MULTILINE)[0]
            text = update_outputs(text, url, job, over, user)
            for around in (
                "showstart {} -l",
                "`showstart {}`",
                "`checkjob {}`",
                'client.job("{}")',
                "jobs/{}/explain",
            ):
                text = text.replace(around.format(old), around.format(job))
            page.write_text(text)
        print(said())
        print(json.dumps(httpx2.get(f"{api}jobs/{job}/explain").json()))
        with httpx2.stream("GET", f"{api}stream", timeout=30) as answer:
            until = time.monotonic() + 20
            for line in answer.iter_lines():
                print(line)
                if time.monotonic() > until:
                    break
    return 0


if __name__ == "__main__":
    sys.exit(main())
