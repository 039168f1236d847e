"""Usage before the daemon's first start, from the server's accounting logs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schedd.dialect.qos import logged_qos
from schedd.engine import EngineSettings
from schedd.features.fair_share.settings import FairShareSettings
from schedd.features.fair_share.state import FairShareState
from schedd.features.fair_share.usage import RATE_UNIT, ChargedRun, Usage
from schedd.service.cluster.accounting_logs import ended_runs

_KEYS: Final = ("user", "group", "account", "project", "queue")


def earlier_part(settings: EngineSettings, cluster: str, now: int) -> FairShareState | None:
    """Return the component's state with the usage within the windows; None if no logs are configured.

    Charge factors of queues and requested QOS count. Speeds, and factors of default QOS and nodes, do not.
    Unreadable records are logged and skipped.
    """
    chosen = settings.site.part(FairShareSettings)
    tree = chosen.tree
    if tree is None or not chosen.accounting:
        return None
    usage = Usage.empty(tree)
    oldest = now - tree.depth * tree.interval
    for run in ended_runs(Path(chosen.accounting), oldest, cluster, "earlier use"):
        owner = _Owner(*(run.values.get(key, "") for key in _KEYS))
        rate = round(RATE_UNIT * run.procs * chosen.charge_factor(owner.queue, logged_qos(run.values)))
        waited = run.start - run.eligible
        usage.record(ChargedRun(tree.names(owner), rate, run.start, min(run.end, now), waited))
    usage.forget(tree, now)
    return FairShareState(usage)


@dataclass(frozen=True, slots=True)
class _Owner:
    owner: str
    group: str
    account: str
    project: str
    queue: str
