"""Usage before the daemon's first start, from the server's accounting logs."""

from dataclasses import dataclass
from pathlib import Path

from schedd.engine import EngineSettings
from schedd.policy.fair_share import Held, Usage
from schedd.policy.site import site_policy
from schedd.service.cluster.accounting_logs import ended_runs

__all__ = ["past_usage"]

_KEYS = ("user", "group", "account", "project", "queue")


def past_usage(settings: EngineSettings, cluster: str, now: int) -> Usage | None:
    """Return the usage within the fair-share windows; None if no logs are configured.

    Unreadable records are logged and skipped.
    """
    tree = site_policy(settings.site).fair_share
    where = (settings.site.get("fair_share") or {}).get("accounting")
    if tree is None or not where:
        return None
    usage = Usage(tree.interval, tree.depth)
    oldest = now - tree.depth * tree.interval
    for run in ended_runs(Path(where), oldest, cluster, "earlier use"):
        whose = _Owner(*(run.values.get(key, "") for key in _KEYS))
        waited = run.start - run.eligible
        usage.book(Held(tree.path(whose), run.procs, run.start, min(run.end, now), waited))
    usage.forget(tree, now)
    return usage


@dataclass(frozen=True, slots=True)
class _Owner:
    owner: str
    group: str
    account: str
    project: str
    queue: str
