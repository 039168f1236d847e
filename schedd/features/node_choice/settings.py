"""Settings of node choice: ``[clusters.NAME.site.node_choice]``."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from schedd.policy.expressions import MAX_LENGTH, parse_formula
from schedd.policy.feature_settings import FeatureSettings
from schedd.wire.section import Name, Section, SettingConflictError

Arrangement = Literal["pack", "spread", "contiguous", "least_memory"]


_Level = Annotated[str, Field(pattern=r"^[a-z][a-z0-9._-]{0,62}$")]


_Members = Annotated[tuple[Name, ...], Field(min_length=1)]


def _checked(text: str) -> str:
    if text.strip():
        parse_formula(text)  # raises a ValueError with column and remedy
    return text


class NodePreferences(Section):
    """Selection among the nodes that are free at the start of a job. It delays no job. See
    docs/administrators/partitions.md.
    """

    prefer: dict[Name, Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Points of nodes by name or property, `{ epyc = 10, old = -5 }`; the points of a node are the sum, and
    nodes with more points are used first. Of nodes with equal points, those are used that waste the least of
    scarce resources.
    """
    expression: Annotated[str, Field(max_length=MAX_LENGTH), AfterValidator(_checked)] = ""
    """Points of a node by a formula, added to `prefer`: `"(gpus == 0) * 100 - cpus"`."""
    arrange: Arrangement = "pack"
    """Among nodes with equal points: `pack`, those left with the fewest cpus; `spread`, those with the most
    free cpus; `contiguous`, neighbours in the server's list; `least_memory`, those with the least free
    memory."""

    @cached_property
    def gives_points(self) -> bool:
        """Whether nodes may have points."""
        return bool(self.prefer or self.expression.strip())


class NodeChoiceSettings(NodePreferences):
    """Selection among the nodes that are free at the start of a job. It delays no job. See
    docs/administrators/partitions.md.
    """

    levels: dict[_Level, Annotated[dict[Name, _Members], Field(min_length=1)]] = Field(default_factory=dict)
    """Levels of the network, such as switches. Each level has sets of nodes, by names or properties: `{
    switch = { s1 = ["rack1", "n7"] }, island = { east = ["e"] } }`. Jobs request a set of a level by
    `topology=switch`. Text resources of OpenPBS nodes are levels without this setting.
    """
    partitions: dict[Name, NodePreferences] = Field(default_factory=dict)
    """Preferences for the jobs of a partition, which replace those above:
    `[clusters.main.site.node_choice.partitions.gpu]`.
    """

    @cached_property
    def arranges_nothing(self) -> bool:
        """Whether the plan's own choice among nodes with equal points is used everywhere."""
        return self.arrange == "pack" and all(one.arrange == "pack" for one in self.partitions.values())


def _check_site(plain: Mapping[str, Any]) -> None:
    """Raise SettingConflictError for the node choice of a partition that does not exist."""
    sets = (plain.get("partitions") or {}).get("sets") or {}
    for name in (plain.get("node_choice") or {}).get("partitions") or ():
        if name not in sets:
            place = ("node_choice", "partitions", name)
            raise SettingConflictError(place, f"there is no partition {name!r} in partitions.sets")


SETTINGS: Final = FeatureSettings(
    table="node_choice",
    model=NodeChoiceSettings,
    about="Choice among free nodes: `[clusters.main.site.node_choice]`.",
    heading="Node choice",
    check=_check_site,
    tables={"partitions.PARTITION": NodePreferences},
)
