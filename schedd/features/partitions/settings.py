"""Settings of partitions: ``[clusters.NAME.site.partitions]``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from schedd.dialect.partition import PARTITION_REQUESTS
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Names, NodeNames, Section, SettingConflictError

PartitionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,62}$")]
_ANY: Final = frozenset({"all", "any", "default", "base"})


class PartitionSettings(Section):
    """A partition: a set of nodes. Partitions may overlap. Without users, groups, accounts and queues it is
    open to all jobs; otherwise one match is sufficient. Limits on its jobs are
    `[[clusters.main.site.limits]]` with `partition`. See docs/administrators/partitions.md.
    """

    nodes: NodeNames = ()
    """Names of its nodes, in addition to those by `properties`."""
    properties: Names = ()
    """Nodes with any of these properties, or with both (`a&b`), belong to it. A resource of OpenPBS is
    written as `switch=s1`.
    """
    every_node: bool = False
    """All nodes belong to it."""
    users: Names = ()
    """Users: it is open to their jobs."""
    groups: Names = ()
    """Groups: it is open to their jobs."""
    accounts: Names = ()
    """Accounts: it is open to their jobs."""
    queues: Names = ()
    """Queues: it is open to their jobs."""
    charge: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 1.0
    """Factor of the cost of its jobs."""

    @model_validator(mode="after")
    def _has_nodes(self) -> Self:
        if not (self.nodes or self.properties or self.every_node):
            raise ValueError("it has no nodes: set nodes, properties or every_node")
        return self


class PartitionDefaults(Section):
    """Partitions that jobs of one user, group, account or queue may use, and get by default; PLIST and PDEF
    of Maui. If several tables with `allowed` concern a job, it may use the partitions of all of them.
    """

    who: Literal["user", "group", "account", "queue"]
    """Kind of `name`."""
    name: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f]{0,255}$")] = ""
    """User, group, account or queue of the jobs; empty: all without a table of their own."""
    allowed: tuple[PartitionName, ...] = ()
    """Partitions that they may use; empty: all."""
    default: tuple[PartitionName, ...] = ()
    """Partitions of jobs that name none. If several tables concern a job, the user's applies, then that of
    the account, the group, the queue.
    """

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if not (self.allowed or self.default):
            raise ValueError("it has no effect: set allowed or default")
        return self


class PartitionRules(Section):
    """Named sets of nodes. Each job runs in one partition: in one of those that it names (`-l partition=a:b`,
    `-W x=PARTITION:a`, OpenPBS: `-l node_partition=a:b`), else of its defaults, else of all that are open to
    it. Nodes of no partition count as one without a name, open to jobs that name none and have no default.
    """

    sets: dict[PartitionName, PartitionSettings] = Field(default_factory=dict)
    """The partitions, by name: `[clusters.main.site.partitions.sets.gpu]`."""
    defaults: tuple[PartitionDefaults, ...] = ()
    """By user, group, account or queue: `[[clusters.main.site.partitions.defaults]]`."""
    default: tuple[PartitionName, ...] = ()
    """Partitions of all other jobs that name none; empty: those that are open to the job."""
    queue_names: bool = True
    """Whether jobs of a queue with the name of a partition get it by default; a table `defaults` has
    precedence."""

    def _require_known(self, place: tuple[str | int, ...], names: Sequence[str]) -> None:
        for name in names:
            if name not in self.sets:
                raise SettingConflictError(place, f"there is no partition {name} in sets")

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name in self.sets:
            if name.lower() in _ANY:
                words = "this name stands for any partition: choose another name"
                raise SettingConflictError(("sets", name), words)
        seen = set()
        for number, one in enumerate(self.defaults):
            for key, names in (("default", one.default), ("allowed", one.allowed)):
                self._require_known(("defaults", number, key), names)
            if (one.who, one.name) in seen:
                words = (
                    f"there are two tables defaults for {one.who} {one.name or 'of each name'}: merge them"
                )
                raise SettingConflictError(("defaults", number), words)
            seen.add((one.who, one.name))
        self._require_known(("default",), self.default)
        return self


def _obeyed(table: Mapping[str, Any]) -> frozenset[str]:
    return PARTITION_REQUESTS if table.get("sets") else frozenset()


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for a limit of a partition that does not exist."""
    sets = (plain.get("partitions") or {}).get("sets") or {}
    for number, limit in enumerate(plain.get("limits") or ()):
        name = limit.get("partition", "")
        if name and name not in sets:
            place = ("limits", number, "partition")
            raise SettingConflictError(place, f"there is no partition {name!r} in partitions.sets")
        if name and limit.get("qos"):
            words = "set either qos or partition, or make two limits of it"
            raise SettingConflictError(("limits", number, "qos"), words)


SETTINGS: Final = FeatureSettings(
    table="partitions",
    model=PartitionRules,
    about="Partitions, named sets of nodes: `[clusters.main.site.partitions]`.",
    heading="Partitions",
    tables={"sets.PARTITION": PartitionSettings, "defaults": PartitionDefaults},
    obeys=_obeyed,
    check=_check_site,
)
