"""Settings of fair share: ``[clusters.NAME.site.fair_share]``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from schedd.dialect.accounting_files import log_fault
from schedd.features.fair_share.tree import ShareTree
from schedd.policy.expressions import parse_formula
from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.protocol import FAIR_SHARE_TERMS
from schedd.wire.section import Name

_Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class FairShareSettings(ShareTree):
    """Recent usage compared with target shares, in a tree of any depth. Usage is cpu-seconds held times
    charge factors, in windows of time. Without this table no usage is recorded. See
    docs/administrators/fair-share.md.
    """

    enabled: bool = True
    """Whether usage is recorded and compared."""
    charge_queues: dict[Name, _Factor] = Field(default_factory=dict)
    """Charge factors of queues: `{ idle = 0.5, urgent = 2 }`; `"*"` is for all others. The default is 1."""
    charge_qos: dict[Name, _Factor] = Field(default_factory=dict)
    """The same of QOS: `{ high = 2 }`. It does not change what accounts pay."""
    charge_nodes: dict[Name, _Factor] = Field(default_factory=dict)
    """Charge factors of cpus by name or property of their node: `{ gpu = 4 }`; the largest counts, `"*"` is
    for all other nodes. The default is 1."""
    accounting: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or the directory of daily ones (`server_priv/accounting`), or
    the output of Slurm's `sacct` (`--parsable2` or `--json`): read at the first start, so that earlier
    usage counts.
    """

    @property
    def tree(self) -> ShareTree | None:
        """The tree; None where fair share is off."""
        return self if self.enabled else None

    def charge_factor(self, queue: str, qos: str) -> float:
        """Return the charge factor of jobs of this queue and QOS (empty: none)."""
        of_queue = self.charge_queues.get(queue, self.charge_queues.get("*", 1.0))
        return of_queue * self.charge_qos.get(qos, self.charge_qos.get("*", 1.0))

    def node_charge_factor(self, name: str, properties: frozenset[str]) -> float:
        """Return the charge factor of the cpus of this node."""
        factors = self.charge_nodes
        if not factors:
            return 1.0
        found = [factors[one] for one in (name, *properties) if one in factors]
        return max(found, default=factors.get("*", 1.0))


def _check(site: Mapping[str, Any]) -> None:
    own = site.get("fair_share")
    if (site.get("priority") or {}).get("fair_share") and own is None:
        raise ValueError("priority.fair_share has a weight, but there is no table fair_share")


def _advise(site: Mapping[str, Any]) -> Iterator[str]:
    own = site.get("fair_share")
    if own is None:
        return
    if own.get("enabled", True) and (why := _unused_reason(site)):
        yield f"fair_share: {why}"
    if (logs := own.get("accounting")) and (fault := log_fault(Path(logs))):
        yield f"fair_share.accounting: {logs}: {fault}; earlier use will not count"


def _unused_reason(site: Mapping[str, Any]) -> str:
    """Return why usage does not change the ranks of jobs; empty if it does, or may on some servers."""
    formula = site.get("formula") or {}
    text = (formula.get("expression") or "").strip()
    if text:  # it replaces the weights and the server's formula
        if FAIR_SHARE_TERMS.isdisjoint(parse_formula(text).names):
            return "usage has no effect, since formula.expression has no fair-share term"
        return ""
    if (site.get("priority") or {}).get("fair_share"):
        return ""
    if formula.get("from_server", True):
        server = "unless the server's job_sort_formula has a fair-share term"
        return f"priority.fair_share is 0: usage has no effect {server}"
    return "priority.fair_share is 0: usage has no effect"


SETTINGS: Final = FeatureSettings(
    table="fair_share",
    model=FairShareSettings,
    about="Target shares and decayed usage: `[clusters.main.site.fair_share]`.",
    heading="Priorities and fair share",
    absent={"enabled": False},
    check=_check,
    advice=_advise,
)
