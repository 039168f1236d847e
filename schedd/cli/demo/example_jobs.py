"""The demo's setting beyond its workload: prices and watts, reservations, notices, and jobs of user1."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from server_adapter.emulator import JobOrder, JobOutcome, SimulatedServer

USER: Final = "user1"  # the user of the demo's second token
SUBSCRIPTION: Final = {"moved": 900, "ahead": 3_600}
"""Notices of the user: moves by more than 15 minutes, and an hour before each start."""
_HOUR_S: Final = 3_600
_NIGHT: Final = 1_767_297_600  # 20:00 of an earlier day


def site_settings(nodes: Sequence[str], now: int) -> dict[str, Any]:
    """Return the site's settings: watts, prices that are lower at night, and reservations of a tenth of the
    nodes: for new memory tomorrow, and for a weekly course of the user. Without nodes there are none.
    """
    return {
        "zone": "UTC",
        "power": {"*": {"idle": 110.0, "core": 9.5, "off": 8.0}},
        "prices": [{"core_hour": 0.03}, {"core_hour": 0.018, **_window(_NIGHT, 10, "DAILY")}],
        "currency": "EUR",
        "reservations": _reservations(nodes, now) if nodes else {},
    }


def _reservations(nodes: Sequence[str], now: int) -> dict[str, Any]:
    few = list(nodes[-max(1, len(nodes) // 10) :])
    first = (now // _HOUR_S + 20) * _HOUR_S
    course = _window(first + 24 * _HOUR_S, 3, "WEEKLY")
    return {
        "memory": {"nodes": few, "reason": "new memory", **_window(first, 4)},
        "course": {"nodes": few, "users": [USER], "reason": "MPI course", **course},
    }


def _window(start: int, hours: int, frequency: str = "") -> dict[str, str]:
    """Return a window of time as settings have it; with a frequency it recurs."""
    first, last = (datetime.fromtimestamp(at, UTC) for at in (start, start + hours * _HOUR_S))
    rule = {"rule": f"FREQ={frequency}"} if frequency else {}
    return {"first": f"{first:%FT%T}", "last": f"{last:%FT%T}", **rule}


def submit_example_jobs(server: SimulatedServer) -> None:
    """Submit jobs of the user: a held job, a job that depends on another, and an array."""
    slots = min(node.spec.slots for node in server.cluster.nodes.values())
    width = min(2, len(server.cluster.nodes))
    simulation = _submit(server, "simulate", f"{width}:ppn={slots}", walltime_s=7_200, runtime_s=5_400)
    _submit(
        server,
        "evaluate",
        f"1:ppn={min(4, slots)}",
        walltime_s=3_600,
        runtime_s=2_400,
        depend=f"afterok:{simulation}",
    )
    _submit(server, "check-first", f"1:ppn={min(8, slots)}", walltime_s=14_400, runtime_s=9_000, holds="u")
    _submit(server, "sweep", f"1:ppn={min(4, slots)}", walltime_s=5_400, runtime_s=3_000, array="1-8")


def _submit(
    server: SimulatedServer,
    name: str,
    nodes: str,
    *,
    walltime_s: int,
    runtime_s: int,
    depend: str = "",
    holds: str = "",
    array: str = "",
) -> str:
    walltime = f"{walltime_s // 3_600:02}:{walltime_s // 60 % 60:02}:00"
    return server.enter(
        JobOrder(
            user=USER,
            name=name,
            resources={"nodes": nodes, "walltime": walltime},
            outcome=JobOutcome(runtime_s),
            depend=depend,
            holds=holds,
            array=array,
        )
    )
