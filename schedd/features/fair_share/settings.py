"""Settings of fair share: ``[clusters.NAME.site.fair_share]``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from schedd.features.fair_share.tree import MAX_DEPTH, Level, ShareTree, ShareTreeError
from schedd.policy.expressions import parse_formula
from schedd.policy.feature_settings import FeatureSettings
from schedd.policy.protocol import FAIR_SHARE_TERMS
from schedd.wire.section import Section
from schedd.wire.times import Whole

_DEFAULT = ShareTree()
_Name = Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{1,255}$")]
_Shares = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class FairShareSettings(Section):
    """Recent usage compared with target shares, in a tree of any depth. Usage is cpu-seconds held times
    charge factors, in windows of time. Without this table no usage is recorded. See
    docs/administrators/fair-share.md.
    """

    enabled: bool = True
    """Whether usage is recorded and compared."""
    levels: tuple[Level, ...] = _DEFAULT.levels
    """Attributes of a job that name its owner, from the top: of `account`, `project`, `group`, `user`,
    `queue`."""
    shares: dict[str, _Shares] = Field(default_factory=dict)
    """Shares relative to siblings, of names of the first level, of their groups, and of names below them:
    `{ physics = 3, "physics/ann" = 2 }`."""
    parents: dict[_Name, _Name] = Field(default_factory=dict)
    """Groups of names of the first level, nested to any depth: `{ theory = "physics", strings = "theory" }`.
    """
    unlisted: _Shares = _DEFAULT.unlisted
    """Share of each unlisted one."""
    unlisted_group: Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{0,255}$")] = ""
    """Group of all names of the first level that are neither in `shares` nor in `parents`; empty: each is at
    the top."""
    interval: Whole = Field(default=_DEFAULT.interval, ge=60, le=366 * 86_400)
    """Length of a window."""
    decay: float = Field(default=_DEFAULT.decay, ge=0, le=1)
    """Decay factor of a window's usage per later window."""
    depth: int = Field(default=_DEFAULT.depth, ge=1, le=MAX_DEPTH)
    """Number of windows that count."""
    charge_queues: dict[_Name, _Factor] = Field(default_factory=dict)
    """Charge factors of queues: `{ idle = 0.5, urgent = 2 }`; `"*"` is for all others. The default is 1."""
    charge_qos: dict[_Name, _Factor] = Field(default_factory=dict)
    """The same of QOS: `{ high = 2 }`. It does not change what accounts pay."""
    charge_nodes: dict[_Name, _Factor] = Field(default_factory=dict)
    """Charge factors of cpus by name or property of their node: `{ gpu = 4 }`; the largest counts, `"*"` is
    for all other nodes. The default is 1."""
    accounting: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=4096)] = ""
    """The server's accounting logs, a file or the directory of daily ones (`server_priv/accounting`), or
    the output of Slurm's `sacct --parsable2`: read at the first start, so that earlier usage counts.
    """
    _tree: ShareTree | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _build_tree(self) -> Self:
        try:
            tree = ShareTree(
                levels=self.levels,
                shares=self.shares,
                parents=self.parents,
                unlisted=self.unlisted,
                unlisted_group=self.unlisted_group,
                interval=self.interval,
                decay=self.decay,
                depth=self.depth,
            )
        except ShareTreeError as error:
            place = (error.setting, error.key) if error.key else (error.setting,)
            wrong = PydanticCustomError("tree", "{reason}", {"reason": error.reason})
            details = InitErrorDetails(type=wrong, loc=place, input=getattr(self, error.setting))
            raise ValidationError.from_exception_data("fair_share", [details]) from None
        self._tree = tree if self.enabled else None
        return self

    @property
    def tree(self) -> ShareTree | None:
        """The tree; None where fair share is off."""
        # Read for each job several times: pydantic's own access to private values takes ten times as long.
        private = self.__pydantic_private__
        return private["_tree"] if private is not None else None

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
    logs = own.get("accounting")
    if logs and not Path(logs).exists():
        yield f"fair_share.accounting: no {logs} here; earlier use will not count"


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
