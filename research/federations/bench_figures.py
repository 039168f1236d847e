"""What ``python -m research bench federation`` measured, and its table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.table import Table


@dataclass(frozen=True, slots=True)
class FederationFigures:
    """Times in ms, from the submission of a job until its cluster is durable in the log.

    ``known``: jobs with an offer of every cluster when they came; ``asked``: the other jobs, for which
    clusters were asked in parallel. ``routed_s``: until the cluster's server has released the job. Traffic is
    per routed job, with all rounds of polling, in bytes and requests.
    """

    clusters: int
    nodes: int
    waiting: int
    shapes: int
    routed: int
    rate: float
    poll_s: float
    decision_ms: Mapping[str, float]
    decision_cpu_ms: Mapping[str, float]
    """Processor time of the thread that hands a job over, all offers being known: on a machine that does
    other things, too, this is what a decision costs."""
    known_ms: Mapping[str, float]
    asked_ms: Mapping[str, float]
    known: int
    asked: int
    routed_s: Mapping[str, float]
    cpu_ms: float
    """Of the whole process, clusters included, by routed job."""
    requests: Mapping[str, float]
    sent: Mapping[str, float]
    received: Mapping[str, float]
    idle_requests_s: float
    """Requests a second while nothing is routed."""
    idle_bytes_s: float
    log_s: float
    """Until a federation that starts has read its log."""
    rss_mib: float


def to_json(found: FederationFigures) -> str:
    return json.dumps(asdict(found), indent=2) + "\n"


def table_of(found: FederationFigures) -> Table:
    table = Table(
        title=f"{found.clusters} clusters of {found.nodes:,} nodes, {found.waiting:,} jobs wait; "
        f"{found.routed:,} are routed, {found.rate:g} a second"
    )
    table.add_column("")
    for head in ("p50", "p90", "p99", "longest"):
        table.add_column(head, justify="right")
    rows = (
        ("a routing decision, ms", found.decision_ms),
        (f"  all offers known ({found.known}), ms", found.known_ms),
        ("    processor time of it, ms", found.decision_cpu_ms),
        (f"  clusters were asked ({found.asked}), ms", found.asked_ms),
        ("until the server let it go, s", found.routed_s),
    )
    for name, shares in rows:
        table.add_row(name, *(f"{value:,.1f}" for value in shares.values()))
    requests, sent, received = (sum(one.values()) for one in (found.requests, found.sent, found.received))
    table.add_section()
    for name, value in (
        ("requests for each routed job", f"{requests:,.1f}"),
        ("bytes sent, received for each routed job", f"{sent:,.0f}, {received:,.0f}"),
        (
            "requests, bytes a second while nothing is routed",
            f"{found.idle_requests_s:,.1f}, {found.idle_bytes_s:,.0f}",
        ),
        ("processor time for each routed job, all clusters included, ms", f"{found.cpu_ms:,.1f}"),
        ("reading the log, s", f"{found.log_s:,.1f}"),
        ("memory, MiB", f"{found.rss_mib:,.0f}"),
    ):
        table.add_row(name, value)
    return table
