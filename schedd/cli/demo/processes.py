"""The demo's other processes: the daemon and the adapter, which end when the demo does."""

import contextlib
import hashlib
import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedd.cli.demo.example_jobs import site_settings
from schedd.cli.demo.past_runs import write_past_runs
from schedd.cli.demo.steady import SteadyWorkload
from schedd.service.cluster.clock import ScaledClock

MAIL_DOMAIN = "demo.example"  # domain of the demo's mailbox
USUAL_PORT = 8080
_REALM = "demo"
_SLACK_S = 1_800
_END_S = 20
# Real seconds allowed for messages on a busy machine; each is many seconds of the cluster.
_SOON_S = 5
_ANSWER_S = 15  # a busy machine answers a run decision this late; below `_LATE_S` with the grace after it
_APART_S = 2
_LATE_S = 30


@dataclass(frozen=True, slots=True)
class DemoLogins:
    """Tokens of the daemon, one for each role that the demo needs; and the key of the admin's login link."""

    adapter: str
    admin: str
    user: str
    federation: str
    key: str


class DemoError(Exception):
    """A part of the demo did not come up, or went away."""


class DemoProcess:
    """A module run as a separate process: gets a line of input, answers with one, ends with its input."""

    def __init__(self, name: str, module: str, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one
        )
        assert self._process.stdin is not None
        # If it has ended already its standard error has the reason, and waiting for its greeting shows it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(arguments) + "\n")
            self._process.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a further line of input, if the process still runs."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def greeting(self) -> str:
        """Waits for the line that it says when it is up. Raises DemoError."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer:
            self.end()
            raise DemoError(f"{self.name} did not start")
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Let it end; returns its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended before it got any input
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        self._process.stdout.close()
        return code


def describe_exit(code: int) -> str:
    """Return how a process ended, from its exit code."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"killed by {name}"


def start_daemon(
    clock: ScaledClock,
    port: int | None,
    directory: Path,
    clusters: Mapping[str, SteadyWorkload | None],
    family: str,
) -> tuple[DemoProcess, DemoLogins]:
    """Start the daemon of these clusters, each with a server of this family. A cluster with an endless
    workload gets reservations and a log of past runs; None: the jobs of a log get neither.

    Returns the daemon, which greets with its port, and the tokens of its clients. It listens on this port of
    loopback; None: the default one, or any free port if that is taken. Its database is a file in
    ``directory``.
    """
    logins = DemoLogins(*(secrets.token_urlsafe(24) for _ in range(5)))
    cluster = {
        "slack": f"{_SLACK_S}+0.5w",
        "start_rate": 0,
        "start_rate_node": 0,
        "publish_rate": 500,
        "end_allowance": _cluster_seconds(clock, _SOON_S, 120),
        "decision_expiry": _cluster_seconds(clock, _ANSWER_S, 60),
        "answer_grace": _cluster_seconds(clock, _SOON_S, 30),
        "start_wait": _cluster_seconds(clock, _LATE_S, 3600),
        "clock_apart": _cluster_seconds(clock, _APART_S, 2),
    }
    settings = {
        "server": {"port": USUAL_PORT if port is None else port},
        "store": {
            "url": f"sqlite:///{directory}/demo.sqlite",
            "checkpoint": 5,
            "plan_metrics_every": 2,
        },
        "log": {"level": "warning", "format": "text"},
        "auth": {
            "anonymous": "reader",
            "tokens": [
                {"name": name, "role": role, "sha256": _digest(token)}
                for name, role, token in (
                    ("demo", "adapter", logins.adapter),
                    ("you", "admin", logins.admin),
                    ("user1", "user", logins.user),
                    ("federation", "federation", logins.federation),
                )
            ],
        },
        "clusters": {
            name: {**cluster, **_workload_settings(name, workload, directory, int(clock.start))}
            for name, workload in clusters.items()
        },
    }
    login = {"login_key": logins.key, "login_as": _digest(logins.admin)}
    arguments = {
        "settings": settings,
        "any_port": port is None,
        "family": family,
        **login,
        **_clock_arguments(clock),
    }
    return DemoProcess("the daemon", "schedd.cli.demo.daemon", arguments), logins


def _workload_settings(
    name: str, workload: SteadyWorkload | None, directory: Path, begin: int
) -> dict[str, Any]:
    """Return a cluster's settings that depend on its workload. Writes the log of past runs."""
    if workload is None:
        return {"site": site_settings((), begin)}
    log = directory / f"{name}.accounting"
    write_past_runs(workload, log, begin)
    return {"site": site_settings([node.name for node in workload.nodes], begin), "predict_from": str(log)}


def start_adapter(
    clock: ScaledClock,
    cluster: str,
    server: tuple[str, int],
    url: str,
    token: str,
    directory: Path,
    family: str,
    *,
    transfers: bool,
) -> DemoProcess:
    """Start the adapter between a cluster's emulated server and the daemon; with ``transfers`` it submits
    jobs for a federation. It greets with the port on which it takes commands, or with None if they come over
    its own connection.
    """
    settings = {
        "cluster": cluster,
        "mode": "scheduler",
        "state_dir": str(directory),
        "server.family": family,
        "server.host": server[0],
        "server.port": server[1],
        "server.auth": "none",
        "listen.port": 0,
        "listen.any_port": True,
        "daemon.url": url,
        "poll.interval": 1.0,
        "poll.gap": 0.02,
        "poll.snapshot": _cluster_seconds(clock, _LATE_S, 600),
        "run.busy_wait": 0.05,
        "transfers": transfers,
    }
    arguments = {"settings": settings, "token": token, **_clock_arguments(clock)}
    return DemoProcess("the adapter", "schedd.cli.demo.adapter", arguments)


def start_federation(
    clock: ScaledClock, url: str, logins: DemoLogins, clusters: Sequence[str], directory: Path
) -> DemoProcess:
    """Start a federation of these clusters of the daemon at ``url``. It greets with its port."""
    members = {
        name: {
            "url": url,
            "cluster": name,
            "token_file": str(directory / "federation.token"),
            "disclosure": "plan",
            "realms": [_REALM],
        }
        for name in clusters
    }
    settings = {
        "name": "demo",
        "server": {"token_file": str(directory / "users.tokens")},
        "store": {"url": f"sqlite:///{directory}/federation.sqlite"},
        "routing": {"poll": 1.0, "recheck": 5},
        # Seconds of the clusters; there must be time for messages.
        "coallocation": {
            "limit": min(3_600, _cluster_seconds(clock, _LATE_S, 60)),
            "lead": min(1_800, _cluster_seconds(clock, _SOON_S, 20)),
            "notice": min(7_200, _cluster_seconds(clock, 4 * _SOON_S, 60)),
            "expiry": min(3_600, _cluster_seconds(clock, _LATE_S, 30)),
        },
        "clusters": members,
    }
    files = {
        "federation.token": logins.federation,
        "users.tokens": f"user user1@{_REALM} {logins.user}\nadmin you@{_REALM} {logins.admin}\n",
    }
    arguments = {
        "settings": settings,
        "files": files,
        "directory": str(directory),
        **_clock_arguments(clock),
    }
    return DemoProcess("the federation", "schedd.cli.demo.federation", arguments)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _cluster_seconds(clock: ScaledClock, real: float, least: int) -> int:
    """Convert real seconds to seconds of the cluster, at least ``least``."""
    return max(least, int(real * clock.speed))


def _clock_arguments(clock: ScaledClock) -> dict[str, float]:
    return {"start": clock.start, "speed": clock.speed, "began": clock.began}
