"""Fair-share tree: target and received shares of job owners.

Definitions. Every place of the tree has shares, relative to its siblings. With ``parent(x)``:

- part:              ``part(x)   = shares(x) / sum of shares(y) over the siblings y of x, x included``
- target share:      ``target(x) = part(x) * target(parent(x))``, 1 at the root
- received share:    ``usage(x)  = charged usage of all owners at or below x / charged usage of all owners``
- effective usage:   ``effective(x) = usage(x) + (effective(parent(x)) - usage(x)) * part(x)``;
                     directly below the root ``effective(x) = usage(x)``
- factor:            ``factor(x) = 2 ** -(effective(x) / target(x))``; 0 for a target of 0

Source: the fair-share formulas of OpenPBS (Administrator's Guide, "Using Fairshare": fairshare_perc,
fairshare_tree_usage, fairshare_factor), which are those of Slurm's classic multifactor plugin. Usage and its
decay: see ``usage.py``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from sys import float_info
from typing import Annotated, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from schedd.policy.protocol import JobOwner, OwnerShare
from schedd.wire.section import Name, Section
from schedd.wire.times import Whole

Level = Literal["account", "project", "group", "user", "queue"]
Names = tuple[str, ...]  # a job owner: one name for each level of the tree
Place = tuple[str, ...]  # names from the top of the tree
Shares = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
MAX_DEPTH: Final = 1000  # maximum number of windows that count
_NONE: Final = "-"  # name of a missing account, project, group or queue
_Floats = npt.NDArray[np.float64]

_NAME_OF: Final[Mapping[Level, Callable[[JobOwner], str]]] = {
    "account": lambda job: job.account,
    "project": lambda job: job.project,
    "group": lambda job: job.group,
    "user": lambda job: job.owner.partition("@")[0],
    "queue": lambda job: job.queue,
}


_RAW_FIELDS: Final = ("account", "project", "group", "owner", "queue")
_RAW_NAMES: Final = attrgetter(*_RAW_FIELDS)


class ShareTree(Section):
    """Target shares, and the decay of usage."""

    levels: tuple[Level, ...] = ("group", "user")
    """Attributes of a job that name its owner, from the top: of `account`, `project`, `group`, `user`,
    `queue`."""
    shares: dict[str, Shares] = Field(default_factory=dict)
    """Shares relative to siblings, of names of the first level, of their groups, and of names below them:
    `{ physics = 3, "physics/ann" = 2 }`."""
    parents: dict[Name, Name] = Field(default_factory=dict)
    """Groups of names of the first level, nested to any depth: `{ theory = "physics", strings = "theory" }`.
    """
    unlisted: Shares = 1.0
    """Share of each unlisted one."""
    unlisted_group: Annotated[str, Field(pattern=r"^[^\s/\x00-\x1f]{0,255}$")] = ""
    """Group of all names of the first level that are neither in `shares` nor in `parents`; empty: each is at
    the top."""
    interval: Whole = Field(default=86_400, ge=60, le=366 * 86_400)
    """Length of a window."""
    decay: float = Field(default=0.9, ge=0, le=1)
    """Decay factor of a window's usage per later window."""
    depth: int = Field(default=60, ge=1, le=MAX_DEPTH)
    """Number of windows that count."""

    @model_validator(mode="after")
    def _be_a_tree(self) -> Self:
        if not self.levels or len(set(self.levels)) < len(self.levels):
            raise self._fault("levels", "", "a tree needs at least one level, each only once")
        for child, parent in self.parents.items():
            if parent not in self.parents and parent not in self.shares:
                reason = f"the parent {parent!r} is unknown: give it an entry in shares"
                raise self._fault("parents", child, reason)
        for key in self.shares:
            names = key.split("/")
            if not all(names):
                raise self._fault("shares", key, "a name is empty")
            if len(names) > len(self.levels):
                reason = f"the tree has the levels {', '.join(self.levels)}; parents nest groups in groups"
                raise self._fault("shares", key, reason)
        _ = self._groups  # finds cycles
        return self

    def _fault(self, setting: str, key: str, reason: str) -> ValidationError:
        wrong = PydanticCustomError("tree", "{reason}", {"reason": reason})
        place = (setting, key) if key else (setting,)
        details = InitErrorDetails(type=wrong, loc=place, input=getattr(self, setting))
        return ValidationError.from_exception_data("fair_share", [details])

    @cached_property
    def _groups(self) -> dict[str, Place]:
        """By name with a parent: its place."""
        places: dict[str, Place] = {}
        for child in self.parents:
            above, at = [child], child
            while at in self.parents and at not in places:
                at = self.parents[at]
                if at in above:
                    cycle = " -> ".join([*above[above.index(at) :], at])
                    raise self._fault("parents", child, f"these groups are in a cycle: {cycle}")
                above.append(at)
            place = places.get(at, (at,))
            for name in reversed(above[:-1]):
                place = places[name] = (*place, name)
        return places

    @cached_property
    def _shares_by_place(self) -> dict[Place, float]:
        return {self.place(tuple(key.split("/"))): share for key, share in self.shares.items()}

    def names(self, job: JobOwner) -> Names:
        return tuple([_NAME_OF[level](job) or _NONE for level in self.levels])

    def owners(self, jobs: Iterable[JobOwner]) -> set[Names]:
        raw = {_RAW_NAMES(job) for job in jobs}  # far fewer than jobs
        fields = [_RAW_FIELDS.index("owner" if level == "user" else level) for level in self.levels]
        return {
            tuple(
                (names[at].partition("@")[0] if level == "user" else names[at]) or _NONE
                for level, at in zip(self.levels, fields, strict=True)
            )
            for names in raw
        }

    def place(self, names: Names) -> Place:
        """Return the place of an owner; or of a group, which has fewer names."""
        first = names[0]
        place = self._groups.get(first)
        if place is None:
            place = (first,)
            group = self.unlisted_group
            if group and first != group and first not in self.shares:
                place = (*self._groups.get(group, (group,)), first)
        if len(names) == 1:
            return place
        second = names[1]
        if self.parents.get(second) == first:  # a group below the same parent has this name, too
            second = f"{second} ({self.levels[1]})"
        return (*place, second, *names[2:])

    def share(self, place: Place) -> float:
        """Return the shares of a place relative to its siblings."""
        return self._shares_by_place.get(place, self.unlisted)


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One place of the tree. ``target``, ``usage`` and ``effective_usage`` are parts of the whole.

    ``used`` is charged cpu-seconds with decay. ``factor`` is 1 without usage, 0.5 for usage equal to the
    target, and approaches 0. ``waited`` is the normalised wait: seconds waited per cpu-second used (thesis,
    NUWT), 0 without usage.
    """

    place: Place
    share: float
    target: float
    used: float
    usage: float
    effective_usage: float
    factor: float
    waited: float


class _Layout:
    """Places of a tree in arrays, parents before children. It depends on the owners, not on their usage."""

    __slots__ = ("at", "below", "owners", "parent", "part", "places", "rows", "share", "share_sums", "target")

    def __init__(self, tree: ShareTree, owners: tuple[Names, ...]) -> None:
        self.owners = owners
        leaves = [tree.place(names) for names in owners]
        listed = (tree.place(tuple(key.split("/"))) for key in tree.shares)
        places = {place[:depth] for place in (*leaves, *listed) for depth in range(len(place) + 1)}
        self.places = sorted(places | {()})
        self.rows = {place: row for row, place in enumerate(self.places)}
        self.at = np.array([self.rows[place] for place in leaves], np.int64)  # by owner: the row of its place
        self.parent = np.array([self.rows[place[:-1]] for place in self.places], np.int64)
        self.share = np.array([tree.share(place) for place in self.places], np.float64)
        self.share[0] = 0.0  # the root is no sibling of the first places
        self.share_sums = _sums(self.parent, self.share, len(self.places))
        """By row: the sum of the shares of its children."""
        sums = self.share_sums[self.parent]
        self.part = np.divide(self.share, sums, out=np.zeros_like(sums), where=sums > 0)
        depth = np.array([len(place) for place in self.places], np.int64)
        self.below = [np.flatnonzero(depth == one) for one in range(1, int(depth.max()) + 1)]
        """By depth below the root: the rows."""
        self.target = np.ones(len(self.places))
        for rows in self.below:
            self.target[rows] = self.target[self.parent[rows]] * self.part[rows]


class RatedTree:
    """The tree with the usage of a moment. Immutable; any thread may use it.

    ``used`` and ``waited`` are the decayed cpu-seconds and the decayed seconds of waiting, by owner. The rows
    of ``before``, of the same tree, are used again if the owners are the same.
    """

    __slots__ = (
        *("_effective", "_factor", "_known", "_usage", "_used", "_waited"),
        *("at", "layout", "tree", "used"),
    )
    layout: _Layout

    def __init__(
        self,
        tree: ShareTree,
        at: int,
        owners: Iterable[Names],
        used: Mapping[Names, tuple[float, float]],
        before: "RatedTree | None" = None,
    ) -> None:
        self.tree, self.at, self.used = tree, at, used
        self._known: dict[Names, OwnerShare] = {}
        known = tuple(sorted({*owners, *used}))
        same = before is not None and before.tree is tree and before.layout.owners == known
        layout: _Layout = before.layout if before is not None and same else _Layout(tree, known)
        self.layout = layout
        n = len(layout.places)
        mine = np.array([used.get(names, (0.0, 0.0)) for names in known], np.float64).reshape(len(known), 2)
        self._used = _sums(layout.at, mine[:, 0], n)
        self._waited = _sums(layout.at, mine[:, 1], n)
        for rows in reversed(layout.below):
            for values in (self._used, self._waited):
                values += _sums(layout.parent[rows], values[rows], n)
        everything = self._used[0]
        self._usage = self._used / everything if everything else np.zeros(n)
        self._effective = np.array(self._usage)
        for rows in layout.below[1:]:
            above = self._effective[layout.parent[rows]]
            self._effective[rows] += (above - self._usage[rows]) * layout.part[rows]
        self._factor = _factors(self._effective, layout.target)

    def key(self, job: JobOwner) -> Names:
        """Return the key of a job's owner, for ``share``."""
        return self.tree.names(job)

    def share(self, key: Names) -> OwnerShare:
        """Return target, effective usage and factor of an owner. A new owner has used nothing."""
        found = self._known.get(key)
        if found is None:
            row = self.layout.rows.get(self.tree.place(key))
            found = self._newcomer_share(key) if row is None else self._row_share(row)
            self._known[key] = found
        return found

    def _row_share(self, row: int) -> OwnerShare:
        return OwnerShare(
            float(self.layout.target[row]),
            float(self._effective[row]),
            float(self._factor[row]),
            float(self._used[row]),
        )

    def _newcomer_share(self, key: Names) -> OwnerShare:
        """The share of an owner that is not in the tree: as one more child of the nearest place above."""
        place, layout = self.tree.place(key), self.layout
        depth = next(depth for depth in range(len(place) - 1, -1, -1) if place[:depth] in layout.rows)
        above = layout.rows[place[:depth]]
        share = self.tree.share(place[: depth + 1])
        shares = float(layout.share_sums[above]) + share
        part = share / shares if shares else 0.0
        target = float(layout.target[above]) * part
        effective = float(self._effective[above]) * part if depth else 0.0
        for one in range(depth + 2, len(place) + 1):  # each is the only child of the one before
            if not self.tree.share(place[:one]):
                target = effective = 0.0
        factor = float(_factors(np.array([effective]), np.array([target]))[0])
        return OwnerShare(target, effective, factor)

    @property
    def owners(self) -> tuple[Names, ...]:
        """The owners in the tree, sorted."""
        return self.layout.owners

    def users(self) -> dict[Place, str]:
        """Return the users by the places that are theirs; empty if no level is the user."""
        levels = self.tree.levels
        if "user" not in levels:
            return {}
        at = levels.index("user")
        groups = set(self.tree.parents.values()) | {self.tree.unlisted_group}
        listed = (tuple(key.split("/")) for key in self.tree.shares)
        known = [names for names in (*self.owners, *listed) if len(names) > at]
        return {
            self.tree.place(names[: at + 1]): names[at] for names in known if at or names[0] not in groups
        }

    def users_by_place(self) -> Callable[[Place], str]:
        """Return a function from a place to the user at or above it; empty: none."""
        users = self.users()

        def user(place: Place) -> str:
            above = (place[:n] for n in range(len(place), 0, -1))
            return next((users[one] for one in above if one in users), "")

        return user

    def rows(self) -> list[ShareRow]:
        """Return all places, parents before children."""
        layout = self.layout
        waited = np.divide(self._waited, self._used, out=np.zeros_like(self._used), where=self._used > 0)
        columns = (
            layout.share,
            layout.target,
            self._used,
            self._usage,
            self._effective,
            self._factor,
            waited,
        )
        rows = zip(layout.places, *(column.tolist() for column in columns), strict=True)
        return [ShareRow(*row) for row in rows][1:]


def _sums(rows: npt.NDArray[np.int64], values: _Floats, n: int) -> _Floats:
    """The sum of the values of each of ``n`` rows; floats even without values."""
    return np.bincount(rows, values, n).astype(np.float64)


def _factors(effective: _Floats, target: _Floats) -> _Floats:
    """``2 ** -(effective / target)``: above 0 for any positive target, and 0 for a target of 0."""
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.divide(effective, target, out=np.zeros_like(effective), where=target > 0)
        return np.where(target > 0, np.maximum(np.exp2(-ratio), float_info.min), 0.0)
