"""Partitions that a job may use: by its request, by defaults, and by access lists. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from schedd.dialect.errors import RequestError
from schedd.dialect.partition import NODE_PARTITION, PARTITION, read_partitions
from schedd.features.partitions.settings import PartitionDefaults, PartitionRules, PartitionSettings
from schedd.model import Never
from schedd.policy.access import Access
from schedd.wire import JobFacts, NodeFacts

NO_PARTITION: Final = ""  # the partition of the nodes that belong to no other
OUTSIDE_ALL: Final = "(none)"
"""Value that a hypothetical job names to be planned outside of all partitions; no partition can have this
name.
"""
_BY_WHO: Final = ("user", "account", "group", "queue")  # precedence of defaults
_MOST_KNOWN: Final = 20_000


def partition_feature(name: str) -> str:
    """The feature of the nodes of a partition in the plan. No user can request it: it has a blank."""
    return f"partition {name}" if name else "no partition"


@dataclass(frozen=True, slots=True)
class _Members:
    names: frozenset[str]
    properties: tuple[frozenset[str], ...]
    every: bool

    def has(self, name: str, properties: frozenset[str]) -> bool:
        if self.every or name in self.names:
            return True
        return any(wanted <= properties for wanted in self.properties)


class _Named(NamedTuple):
    """Partitions that a job names, and the fault in its request for partitions, if any."""

    names: tuple[str, ...]
    error: str = ""


def _read_named(facts: JobFacts) -> _Named:
    if facts.resources.get(PARTITION) == OUTSIDE_ALL:
        return _Named((OUTSIDE_ALL,))
    try:
        return _Named(read_partitions(facts.resources))
    except RequestError as error:
        return _Named((), error.comment)


class PartitionTable:
    """The partitions of a site, as its settings define them."""

    def __init__(self, rules: PartitionRules) -> None:
        self.rules = rules
        self.names = tuple(rules.sets)
        self._members = {name: _members(one) for name, one in rules.sets.items()}
        self._access = {name: _access(one) for name, one in rules.sets.items()}
        self._defaults = {(one.who, one.name): one for one in rules.defaults}
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._of_nodes: dict[tuple[object, ...], Sequence[str]] = {}
        self._last: tuple[JobFacts | None, _Named, tuple[str, ...]] = (None, _Named(()), ())

    def __bool__(self) -> bool:
        return bool(self.names)

    def node_partitions(self, facts: NodeFacts) -> Sequence[str]:
        """The partitions of a node; those without any are in the one without a name."""
        if not self.names:
            return []
        key = (facts.name, facts.properties)
        found = self._of_nodes.get(key)
        if found is None:
            if len(self._of_nodes) >= _MOST_KNOWN:
                self._of_nodes.clear()
            properties = frozenset(facts.properties)
            having = [name for name, members in self._members.items() if members.has(facts.name, properties)]
            found = self._of_nodes[key] = having or [NO_PARTITION]
        return found

    def features(self, facts: NodeFacts) -> list[str]:
        """The features of a node of the plan for its partitions."""
        return [partition_feature(name) for name in self.node_partitions(facts)]

    def named(self, facts: JobFacts) -> tuple[str, ...]:
        """The partitions that a job names; none: it names none, or its request cannot be read."""
        return _read_named(facts).names

    def candidates(self, facts: JobFacts) -> tuple[str, ...]:
        """The partitions where a job may run, in order of preference; empty: see ``refusal``."""
        if not self.names:
            return ()
        last = self._last  # other threads use the table, too
        if last[0] is facts:  # an arrival needs them several times
            return last[2]
        return self._find(facts)[1]

    def _find(self, facts: JobFacts) -> tuple[_Named, tuple[str, ...]]:
        """Return the partitions that a job names, and the partitions where it may run."""
        last = self._last
        if last[0] is facts:
            return last[1], last[2]
        read = _read_named(facts)
        named = read.names
        key = (facts.owner, facts.group, facts.account, facts.queue, named)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._find_candidates(facts, named)
        self._last = (facts, read, found)
        return read, found

    def _find_candidates(self, facts: JobFacts, named: tuple[str, ...]) -> tuple[str, ...]:
        if named == (OUTSIDE_ALL,):
            return (NO_PARTITION,) if NO_PARTITION in self._find_candidates(facts, ()) else ()
        if named:
            return tuple(name for name in named if self._is_open(name, facts))
        default = self._default(facts)
        if default:
            return tuple(name for name in default if self._is_open(name, facts))
        unnamed = () if self._allowed(facts) is not None else (NO_PARTITION,)
        return (*(name for name in self.names if self._is_open(name, facts)), *unnamed)

    def open_to(self, facts: JobFacts) -> list[str]:
        """Return the partitions that are open to a job."""
        return [name for name in self.names if self._is_open(name, facts)]

    def refusal(self, facts: JobFacts) -> Never | None:
        """Why no partition can take a job as it was submitted, with the remedy; None: some can."""
        if not self.names:
            return None
        read, candidates = self._find(facts)
        named = read.names
        if candidates and (not named or named == (OUTSIDE_ALL,)) and not read.error:
            return None
        if read.error:
            return Never(read.error)
        usable = self.open_to(facts)
        remedy = f"name {_either(usable)} (qalter {_option(facts)})" if usable else "ask an administrator"
        unknown = [name for name in named if name not in self._access]
        if unknown:
            return Never(f"there is no partition {unknown[0]}: {remedy}")
        if candidates:
            return None
        if named:
            return Never(f"partition {_either(named)} is not open to the job: {remedy}")
        default = self._default(facts)
        if default:
            return Never(f"its default partition {_either(default)} is not open to the job: {remedy}")
        return Never(f"no partition is open to the job: {remedy}")

    def charge(self, name: str) -> float:
        """The factor of the cost of jobs of a partition."""
        found = self.rules.sets.get(name)
        return found.charge if found is not None else 1.0

    def _is_open(self, name: str, facts: JobFacts) -> bool:
        access = self._access.get(name)
        if access is None:
            return False
        if access and not access.admits(facts.owner, facts.group, facts.account, facts.queue):
            return False
        allowed = self._allowed(facts)
        return allowed is None or name in allowed

    def _allowed(self, facts: JobFacts) -> frozenset[str] | None:
        """The partitions that the tables ``defaults`` allow a job; None: all."""
        lists = [one.allowed for one in self._tables(facts) if one is not None and one.allowed]
        return frozenset(name for names in lists for name in names) if lists else None

    def _default(self, facts: JobFacts) -> Sequence[str]:
        for one in self._tables(facts):
            if one is not None and one.default:
                return one.default
        if self.rules.queue_names and facts.queue in self._access:
            return (facts.queue,)
        return self.rules.default

    def _tables(self, facts: JobFacts) -> Iterator[PartitionDefaults | None]:
        if not self._defaults:
            return
        names: Mapping[str, str] = {
            "user": facts.owner.partition("@")[0],
            "account": facts.account,
            "group": facts.group,
            "queue": facts.queue,
        }
        for who in _BY_WHO:
            yield self._defaults.get((who, names[who])) or self._defaults.get((who, ""))


def _members(one: PartitionSettings) -> _Members:
    properties = tuple(frozenset(each.split("&")) for each in one.properties)
    return _Members(frozenset(one.nodes), properties, one.every_node)


def _access(one: PartitionSettings) -> Access:
    users, groups, accounts, queues = map(frozenset, (one.users, one.groups, one.accounts, one.queues))
    return Access(users, groups, accounts, queues)


def _option(facts: JobFacts) -> str:
    """Return the option that changes the partitions of a job: the one that it used, since TORQUE would keep
    both.
    """
    if facts.family == "openpbs":
        return f"-l {NODE_PARTITION}=NAME"
    extension = any(name.lower() == f"x.{PARTITION}" for name in facts.resources)
    return "-W x=PARTITION:NAME" if extension else f"-l {PARTITION}=NAME"


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
