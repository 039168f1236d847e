"""Settings of QOS: ``[clusters.NAME.site.qos]``."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Name, Names, Section, SettingConflictError

_Name = Annotated[str, Field(pattern=r"^[^\s,:;=\x00-\x1f]{1,64}$")]


class QosLevel(Section):
    """A QOS: its access and the properties of its jobs. It is open to a job that matches one of its lists, or
    to all jobs if no list is set. Its limits are `[[clusters.NAME.site.limits]]` with `qos`.
    """

    priority: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] = 0.0
    """Value of the priority term `qos`, and of `qos_priority` in a formula."""
    charge: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1.0
    """Factor of the costs of its jobs; 0: they cost nothing."""
    users: Names = ()
    """Users that may use it. One match in these lists is sufficient; without lists it is open to all."""
    groups: Names = ()
    """Groups that may use it."""
    accounts: Names = ()
    """Accounts (`qsub -A`) that may use it."""
    queues: Names = ()
    """Queues: it is open to their jobs."""

    def admits(self, user: str, group: str, account: str, queue: str) -> bool:
        """Whether a job with this owner (without host), group, account and queue may use it."""
        if not (self.users or self.groups or self.accounts or self.queues):
            return True
        return user in self.users or group in self.groups or account in self.accounts or queue in self.queues


class QosSettings(Section):
    """Levels of service by `qsub -l qos=NAME`, `-W x=QOS:NAME` or default. See docs/administrators/qos.md."""

    levels: dict[_Name, QosLevel] = Field(default_factory=dict)
    """The QOS by name: `[clusters.main.site.qos.levels.high]`."""
    queue_defaults: dict[Name, _Name] = Field(default_factory=dict)
    """QOS of jobs that request none, by queue: `{ debug = "high" }`. A job gets the first QOS that is open to
    it from the tables of queues, users, accounts and groups (in this order) and from `default`.
    """
    user_defaults: dict[Name, _Name] = Field(default_factory=dict)
    """QOS of jobs that request none, by user."""
    account_defaults: dict[Name, _Name] = Field(default_factory=dict)
    """QOS of jobs that request none, by account."""
    group_defaults: dict[Name, _Name] = Field(default_factory=dict)
    """QOS of jobs that request none, by group."""
    default: Annotated[str, Field(pattern=r"^[^\s,:;=\x00-\x1f]{0,64}$")] = ""
    """QOS of all other jobs; empty: they have none."""
    unknown: Literal["refuse", "ignore"] = "refuse"
    """A job that requests a QOS which does not exist is never planned (`refuse`), or is planned as if it
    requested none (`ignore`)."""

    @cached_property
    def has_defaults(self) -> bool:
        """Whether a job may have a QOS that it does not request."""
        tables = (self.queue_defaults, self.user_defaults, self.account_defaults, self.group_defaults)
        return bool(self.default) or any(tables)

    @model_validator(mode="after")
    def _name_levels(self) -> Self:
        tables = {
            "queue_defaults": self.queue_defaults,
            "user_defaults": self.user_defaults,
            "account_defaults": self.account_defaults,
            "group_defaults": self.group_defaults,
        }
        named = [
            (f"{table}.{owner}", name) for table, found in tables.items() for owner, name in found.items()
        ]
        for where, name in (*named, ("default", self.default)):
            if name and name not in self.levels:
                raise SettingConflictError(where.split(".", 1), f"there is no QOS {name!r} in levels")
        return self


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for a setting that names a QOS which does not exist."""
    levels = (plain.get("qos") or {}).get("levels") or {}
    for place, name in _named_levels(plain, with_charges=bool(levels)):
        if name not in levels:
            raise SettingConflictError(place, f"there is no QOS {name!r} in qos.levels")


def _named_levels(
    plain: Mapping[str, Any], *, with_charges: bool
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The names of QOS in other tables, with their places. Charges also apply to the QOS in logs."""
    for number, limit in enumerate(plain.get("limits") or ()):
        if name := limit.get("qos", ""):
            yield ("limits", number, "qos"), name
    for key, selected in (plain.get("preemption") or {}).items():
        if isinstance(selected, Mapping):
            for number, name in enumerate(selected.get("qos") or ()):
                yield ("preemption", key, "qos", number), name
    if with_charges:
        for name in (plain.get("fair_share") or {}).get("charge_qos") or ():
            if name != "*":
                yield ("fair_share", "charge_qos", name), name


SETTINGS: Final = FeatureSettings(
    table="qos",
    model=QosSettings,
    about="Quality of service: `[clusters.main.site.qos]`.",
    heading="Quality of service",
    check=_check_site,
    tables={"levels.QOS": QosLevel},
)
