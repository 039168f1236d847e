"""Hosts with several vnodes: each is one node of the plan.

The server's `place` refers to hosts: `scatter` places one chunk on a host, `pack` all chunks on one host,
`exclhost` takes a host with all its vnodes, and a chunk may span several vnodes of a host. This module merges
the vnodes of each host before any other code reads them; `vnode_capacity` selects the vnodes of a job.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from schedd.wire import NO_TYPES, ResourceTypes
from schedd.wire.resources import A_VNODE_OF, OWN_VNODE, VNODES_FOR, cpu_amount_name, gpu_amount_name
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values, parse_or
from server_adapter.openpbs.notation import (
    boolean,
    format_amount,
    parse_amount,
    select,
    split_chunks,
    unquote,
)
from server_adapter.servers.openpbs.facts import (
    ASSIGNED,
    AVAILABLE,
    SHARED,
    UNUSABLE,
    is_exclusive,
    node_facts,
    reservations_of,
    vnode_priority,
    vnode_state,
)

_HOST: Final = AVAILABLE + "host"
_NAMES: Final = frozenset({"host", "vnode"})
_INDIRECT: Final = "@"  # refers to the value of another vnode
_NAME: Final = re.compile(r"(?<=[(+])[^:()+]+|^[^:()+]+(?=[:+]|$)")
_PLACES: Final = ("exec_vnode", "resv_nodes", "reserve_execvnodes")
_VSCATTER: Final = "vscatter"
_PLACE: Final = "Resource_List.place"
_SELECT: Final = "schedselect"
_SIZED: Final = ("ncpus", "mem", "ngpus")
_GPUS: Final = "ngpus"
_CPUS: Final = "ncpus"
MAX_KINDS: Final = 6  # distinct values of cores, and of gpus, that are counted
_AMOUNT_NAMES: Final[Mapping[str, Callable[[str, str], str]]] = {
    _CPUS: cpu_amount_name,
    _GPUS: gpu_amount_name,
}
_DEFAULT_COUNTS: Final = {_CPUS: "1"}  # of a chunk that does not name the resource
_NAMED_VNODE: Final = "vnode="
_VNODE_NAME: Final = re.compile(r"(?:^|[:+])vnode=([^:+]+)")
_VNODE: Final = re.compile(r":vnode=[^:]*")
_NO_CHUNKS: Final[list[tuple[int, dict[str, str]]]] = []
_STRICTEST: Final = ("force_exclhost", "force_excl", "default_exclhost", "default_excl", SHARED)
_IGNORES: Final = "ignore_excl"


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts that are planned as one node.

    `members` are the vnodes of each such host by its name, `node_of` is the inverse. `apart` are hosts whose
    vnodes are planned separately, since they belong to several queues, or another host has a vnode with the
    host's name.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    node_of: Mapping[str, str] = field(default_factory=dict)
    sized: tuple["SizedVnode", ...] = ()  # all vnodes, if a host has several
    types: ResourceTypes = NO_TYPES  # types of the server's resources
    kinds: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """For `ncpus` and `ngpus` the resources and values that only some cores or gpus of a host have, such as
    `gpu_type` and `1g.5gb`, and for `ncpus` the vnodes that jobs request by name."""
    kinds_of: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """The resources and values of each vnode that are in `kinds`."""
    _known: dict[tuple[str, str, str], dict[str, str]] = field(default_factory=dict, compare=False)
    """The changes of `_on_vnodes` by its arguments: many jobs have equal requests."""

    def vnodes(self, node: str) -> tuple[str, ...]:
        return self.members.get(node, (node,))

    def translate_placement(self, values: Values) -> Values:
        """Return the values of a job or reservation with planned nodes in place of vnodes."""
        if not self.members:
            return values
        changed = {
            name: renamed
            for name in _PLACES
            if (text := values.get(name)) and (renamed := _NAME.sub(self._renamed, text)) != text
        }
        changed |= self._on_vnodes(values, _SELECT, _PLACE, values.get("queue", ""))
        if self.kinds:
            changed |= self._of_kinds({**values, **changed}, _SELECT)
        return {**values, **changed} if changed else values

    def translate_request(self, resources: Values) -> Values:
        """Return the request of a reservation, with `select` and `place` converted for the plan."""
        changed = {**resources, **self._on_vnodes(resources, "select", "place", "")}
        return {**changed, **self._of_kinds(changed, "select")}

    def _of_kinds(self, values: Values, select_name: str) -> dict[str, str]:
        """Return the select with the amounts of cores and gpus of the kinds that a chunk requests.

        The plan sees a host with several vnodes as one node. Without these amounts, each core and gpu of the
        host would count as one with every value of its vnodes. A chunk that names its vnode takes cores of
        every kind that this vnode has.
        """
        text = values.get(select_name, "")
        named = _NAMED_VNODE in text
        if not named and not any(name in text for kinds in self.kinds.values() for name, _ in kinds):
            return {}
        text = self.types.spelled_select(text)
        asked = parse_or(lambda chunks: list(select(chunks)), text, default=_NO_CHUNKS)
        chunks = split_chunks(text)
        for at, (_, wanted) in enumerate(asked):
            certain = self.kinds_of.get(wanted.get("vnode", ""), frozenset())
            for resource, kinds in self.kinds.items():
                count = wanted.get(resource, _DEFAULT_COUNTS.get(resource, "0"))
                chunks[at] += "".join(
                    [
                        f":{_AMOUNT_NAMES[resource](name, value)}={count}"
                        for name, value in sorted(kinds)
                        if count != "0"
                        and ((name, value) in certain or (name in wanted and _is_value(wanted[name], value)))
                    ]
                )
        return {select_name: "+".join(chunks)} if asked else {}

    def _on_vnodes(self, values: Values, select_name: str, place_name: str, queue: str) -> dict[str, str]:
        """Return the changed values of a request that needs vnodes: the plan knows only the sums of the
        vnodes of each host.

        A chunk larger than the vnodes with its properties, on every host, requests a vnode with a name that
        explains this. With `vscatter` a chunk is on one vnode. If there are too few hosts for the chunks,
        they request that number of vnodes, on any hosts; otherwise the plan treats `vscatter` as `scatter`.
        """
        text, place = values.get(select_name, ""), values.get(place_name, "")
        if not self.members or not text:
            return {}
        key = text, place, queue
        if key not in self._known:
            found = self._find_vnodes(self.types.spelled_select(text), place.split(":"), queue)
            self._known[key] = found
        names = {_SELECT: select_name, _PLACE: place_name}
        return {
            names[name]: value for name, value in self._known[key].items() if value != values[names[name]]
        }

    def _find_vnodes(self, text: str, words: list[str], queue: str) -> dict[str, str]:
        whole = _VSCATTER in words
        asked = parse_or(lambda chunks: list(select(chunks)), text, default=_NO_CHUNKS)
        if not asked or (not whole and all(name in _SIZED for _, wanted in asked for name in wanted)):
            return {}  # as most requests
        own = [one for one in self.sized if one.queue == queue] or [
            one for one in self.sized if not one.queue
        ]
        fitting = [self._fitting_nodes(wanted, own, "vnode" if whole else "part") for _, wanted in asked]
        sums = _sums_by_vnode(asked, self.types)
        sizes = {one.name: one.sizes for one in own}
        known = {tag for one in self.sized for tag in one.tags}
        of_chunks = [
            {one.name for one in own if meets(wanted, (one.name,), one.tags, known, self.types)}
            for _, wanted in (asked if whole else ())
        ]
        chunks: list[str] = []
        for chunk, (_, wanted), nodes in zip(split_chunks(text), asked, fitting, strict=True):
            vnode = wanted.get("vnode", "")
            if not nodes and (whole or self._fitting_nodes(wanted, own, "host")):
                chunk = f"{_VNODE.sub('', chunk)}:vnode={A_VNODE_OF}{_size(wanted)}"
            elif vnode in sizes and any(
                sums[vnode][name] > sizes[vnode].get(name, 0) for name in sums[vnode]
            ):
                size = "_".join(
                    [
                        f"{name}={format_amount(name, count, self.types, size=name == 'mem')}"
                        for name, count in sums[vnode].items()
                    ]
                )
                chunk = f"{_VNODE.sub('', chunk)}:vnode={A_VNODE_OF}{size}"
            elif whole:
                # These chunks can only be on the same vnodes. The plan counts all vnodes of their hosts.
                there = of_chunks[len(chunks)]
                count = sum(n for (n, _), some in zip(asked, of_chunks, strict=True) if some <= there)
                at = {one.node for one in own if one.name in there}
                if len(there) < count <= sum(one.node in at for one in own):
                    chunk = f"{_VNODE.sub('', chunk)}:vnode={VNODES_FOR}{count}"
            chunks.append(chunk)
        sets = [*filter(None, fitting), {one.node for one in own if any(one.sizes.values())}]
        if not whole or all(
            sum(count for (count, _), nodes in zip(asked, fitting, strict=True) if nodes <= several)
            <= len(several)
            for several in sets
        ):
            return {_SELECT: "+".join(chunks)}
        return {
            _PLACE: ":".join(["free" if word == _VSCATTER else word for word in words]),
            _SELECT: "+".join([f"{chunk}:{OWN_VNODE}=1" for chunk in chunks]),
        }

    def _fitting_nodes(
        self, wanted: Mapping[str, str], vnodes: Sequence["SizedVnode"], by: Literal["vnode", "part", "host"]
    ) -> set[str]:
        """Return the nodes with room for a chunk: in one vnode with the requested properties, in all of these
        together (`part`), or in all vnodes of a host that has such a vnode.
        """
        # Its gpus with `part`: see `_of_kinds`.
        counted = _SIZED[:-1] if self.kinds.get(_GPUS) and by == "part" else _SIZED
        needs = {name: parse_amount(name, wanted.get(name, "0"), self.types) or 0 for name in counted}
        known = {tag for one in self.sized for tag in one.tags}
        meeting = [one for one in vnodes if meets(wanted, (one.name,), one.tags, known, self.types)]
        sizes: dict[str, Counter[str]] = {}
        for one in meeting:
            sizes.setdefault(one.name if by == "vnode" else one.node, Counter()).update(one.sizes)
        for one in vnodes if by == "host" else ():
            if one.node in sizes and one not in meeting:
                sizes[one.node].update(one.sizes)
        return {
            self.node_of.get(name, name)
            for name, size in sizes.items()
            if all(count <= size[resource] for resource, count in needs.items())
        }

    def nodes(self, vnodes: Iterable[DescribedObject]) -> list[DescribedObject]:
        """Return the planned nodes for these vnodes, each at the position of its first vnode."""
        found: dict[str, list[DescribedObject]] = {}
        for vnode in vnodes:
            found.setdefault(self.node_of.get(vnode.name, vnode.name), []).append(vnode)
        return [
            self._with_kind_amounts(
                _merge_vnodes(name, several, self.types)
                if name in self.members
                else self._single(several[0]),
                several,
            )
            for name, several in found.items()
        ]

    def _single(self, vnode: DescribedObject) -> DescribedObject:
        if not self.members:
            return vnode
        return DescribedObject(vnode.object_type, vnode.name, {**vnode.values, AVAILABLE + OWN_VNODE: "1"})

    def _with_kind_amounts(self, node: DescribedObject, vnodes: list[DescribedObject]) -> DescribedObject:
        """Return the node with the number of cores and gpus of each kind in `kinds`; vnodes that are not
        usable count with what jobs still hold.
        """
        if not self.kinds:
            return node
        usable = [one for one in vnodes if vnode_state(one.values) == "up"]
        counts: dict[str, int] = {}
        for one in vnodes:
            for resource, kinds in self.kinds.items():
                there = parse_amount(resource, one.values.get(AVAILABLE + resource, "0"), self.types) or 0
                held = there
                if usable and one not in usable:
                    held = parse_amount(resource, one.values.get(ASSIGNED + resource, "0"), self.types) or 0
                for name, value in kinds:
                    if (there or held) and (name, value) in self.kinds_of.get(one.name, ()):
                        for prefix, count in ((AVAILABLE, held), (UNUSABLE, max(0, there - held))):
                            amount = prefix + _AMOUNT_NAMES[resource](name, value)
                            counts[amount] = counts.get(amount, 0) + count
        added = {key: str(count) for key, count in counts.items()}
        return DescribedObject(node.object_type, node.name, {**node.values, **added})

    def _renamed(self, found: re.Match[str]) -> str:
        return self.node_of.get(found.group(), found.group())


@dataclass(frozen=True, slots=True)
class SizedVnode:
    """A vnode, with its planned node, queue, properties and sizes."""

    name: str
    node: str
    queue: str
    tags: frozenset[str]
    sizes: Mapping[str, int]


NO_HOSTS: Final = Hosts()  # every vnode is a node of the plan


def requested_vnodes(selects: Iterable[str]) -> set[str]:
    """Return the vnodes that these requests name."""
    return {name for text in selects if _NAMED_VNODE in text for name in _VNODE_NAME.findall(text)}


def group_by_host(
    vnodes: Sequence[DescribedObject],
    types: ResourceTypes = NO_TYPES,
    named: Collection[str] = (),
    *,
    by_host: bool = True,
) -> Hosts:
    """Return the hosts with several of these vnodes. Jobs request the vnodes ``named`` by name: the cores of
    each are counted, of at most `MAX_KINDS` kinds altogether. Not ``by_host``: only hosts that a vnode's
    sharing gives to one job as a whole.
    """
    groups: dict[str, list[DescribedObject]] = {}
    names = set()
    for vnode in vnodes:
        names.add(vnode.name)
        if host := vnode.values.get(_HOST):
            groups.setdefault(host, []).append(vnode)
    several = {host: found for host, found in groups.items() if len(found) > 1}
    if not several:
        return Hosts(types=types)
    members: dict[str, tuple[str, ...]] = {}
    apart = set()
    for host, found in several.items():
        own = tuple([vnode.name for vnode in found])
        several_queues = len({vnode.values.get("queue", "") for vnode in _working(found, types)}) > 1
        is_whole = by_host or any(
            vnode.values.get("sharing", SHARED).endswith("exclhost") for vnode in _working(found, types)
        )
        if several_queues or host in names - {*own} or not is_whole:
            apart.add(host)
        else:
            members[host] = own
    node_of = {vnode: host for host, own in members.items() for vnode in own}
    sized = [
        SizedVnode(
            one.name,
            node_of.get(one.name, one.name),
            one.values.get("queue", ""),
            frozenset(node_facts(one.name, one.values, types=types).properties),
            amounts(one.values, AVAILABLE, types),
        )
        for one in vnodes
    ]
    merged = [[vnode for vnode in several[host] if vnode.name in own] for host, own in members.items()]
    counted = {
        resource: _countable({kind for here in merged for kind in _partial_kinds(here, resource, types)})
        for resource in _AMOUNT_NAMES
    }
    by_name = sorted(name for name in named if name in node_of)[: MAX_KINDS - len(counted[_CPUS])]
    counted[_CPUS] |= {("vnode", name) for name in by_name}
    kinds = {resource: these for resource, these in counted.items() if these}
    all_kinds = frozenset().union(*kinds.values())
    kinds_of = {
        vnode.name: frozenset(
            {(name, value) for name, value in all_kinds if value in _kind_values(vnode, name)}
        )
        for vnode in (vnodes if all_kinds else ())
    }
    return Hosts(members, frozenset(apart), node_of, tuple(sized), types, kinds, kinds_of)


def _kind_values(vnode: DescribedObject, name: str) -> set[str]:
    return {vnode.name} if name == "vnode" else _texts(vnode.values.get(AVAILABLE + name, ""))


def _partial_kinds(
    vnodes: Sequence[DescribedObject], resource: str, types: ResourceTypes
) -> set[tuple[str, str]]:
    """Return the resources and the values that only some of a host's vnodes with cores or gpus have."""
    having = [
        one.values
        for one in vnodes
        if (parse_amount(resource, one.values.get(AVAILABLE + resource, ""), types) or 0)
    ]
    found: set[tuple[str, str]] = set()
    for values in having:
        for key, text in values.items():
            name = key[len(AVAILABLE) :]
            if not key.startswith(AVAILABLE) or name in _NAMES or text.startswith(_INDIRECT):
                continue
            if types.is_amount(name) or parse_amount(name, text, types) is not None:
                continue
            found |= {(name, value) for value in _texts(text)}
    return {
        (name, value)
        for name, value in found
        if sum(value in _texts(values.get(AVAILABLE + name, "")) for values in having) < len(having)
    }


def _countable(kinds: set[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return the kinds of the resources with the fewest values, at most `MAX_KINDS`: the plan counts few
    kinds of resources, and a resource with a value for each vnode is no kind.
    """
    values: dict[str, list[tuple[str, str]]] = {}
    for kind in sorted(kinds):
        values.setdefault(kind[0], []).append(kind)
    found: list[tuple[str, str]] = []
    for of_resource in sorted(values.values(), key=len):
        if len(found) + len(of_resource) <= MAX_KINDS:
            found += of_resource
    return frozenset(found)


def _texts(text: str) -> set[str]:
    return {one.strip() for one in text.split(",") if one.strip()}


def _is_value(wanted: str, value: str) -> bool:
    """Return whether a chunk requests this value; a boolean may be written in several ways."""
    word = unquote(wanted)
    return word == value or (value == "True" and word.lower() in ("true", "t", "y", "1"))


def _sums_by_vnode(
    asked: Iterable[tuple[int, Mapping[str, str]]], types: ResourceTypes
) -> dict[str, Counter[str]]:
    """Return the sums of the chunks that request the same vnode by its name."""
    found: dict[str, Counter[str]] = {}
    for count, wanted in asked:
        if vnode := wanted.get("vnode"):
            sums = found.setdefault(vnode, Counter())
            for name in _SIZED:
                if amount := parse_amount(name, wanted.get(name, "0"), types):
                    sums[name] += count * amount
    return found


def _size(wanted: Mapping[str, str]) -> str:
    return "_".join([f"{name}={wanted[name]}" for name in _SIZED if name in wanted])


def is_vscatter(place: str, select: str) -> bool:
    """Return whether each chunk needs its own vnode, also after `translate_request`."""
    return _VSCATTER in place.split(":") or f":{OWN_VNODE}=" in select


def meets(
    asked: Mapping[str, str],
    names: Collection[str],
    tags: Collection[str],
    known: Collection[str],
    types: ResourceTypes,
) -> bool:
    """Return whether a node with these names and properties meets the request, apart from amounts.

    A requested property that no node has (it is not in `known`) is ignored.
    """
    for name, value in asked.items():
        if name == "vnode":
            if value not in names:
                return False
        elif name == "host":
            found = {value, value.lower()}
            if not found.isdisjoint(known) and found.isdisjoint((*tags, *names)):
                return False
        elif types.is_level(name):
            start = f"{name.lower()}="
            there = [int(tag[len(start) :]) for tag in tags if tag.startswith(start)]
            least = parse_amount(name, unquote(value), types) or 0
            if least and max(there, default=0) < least and any(tag.startswith(start) for tag in known):
                return False
        elif types.is_amount(name):
            pass
        elif (is_true := boolean(name, value, types)) is False:
            if f"{name.lower()}=True" in tags:
                return False
        else:
            tag = f"{name.lower()}={'True' if is_true else unquote(value)}"
            if tag in known and tag not in tags:
                return False
    return True


def amounts(values: Values, prefix: str, types: ResourceTypes) -> dict[str, int]:
    """Return a vnode's countable resources (`AVAILABLE`) or those held (`ASSIGNED`), in KiB."""
    found = {}
    for key, text in values.items():
        name = key[len(prefix) :]
        if not key.startswith(prefix) or types.is_level(name):
            continue
        if (count := parse_amount(name, text, types)) is not None:
            found[name] = count
    return found


def _working(vnodes: Sequence[DescribedObject], types: ResourceTypes) -> Sequence[DescribedObject]:
    """Return the vnodes with any resources: the vnode that represents a host usually has none."""
    return [one for one in vnodes if any(amounts(one.values, AVAILABLE, types).values())] or vnodes


def _merge_vnodes(name: str, vnodes: list[DescribedObject], types: ResourceTypes) -> DescribedObject:
    """Merge vnodes to a node: amounts of usable ones, and those still held on the others."""
    working = _working(vnodes, types)
    usable = [one for one in working if vnode_state(one.values) == "up"]
    available: dict[str, int] = {}
    assigned: dict[str, int] = {}
    unusable: dict[str, int] = {}
    for one in vnodes:
        here = amounts(one.values, ASSIGNED, types)
        for resource, count in here.items():
            assigned[resource] = assigned.get(resource, 0) + count
        # A host without a usable vnode retains its size: it is down, not smaller.
        counts = one in usable or not usable
        for resource, count in amounts(one.values, AVAILABLE, types).items():
            there = count if counts else here.get(resource, 0)
            available[resource] = available.get(resource, 0) + there
            if count > there:
                unusable[resource] = unusable.get(resource, 0) + count - there
    sizes = {key for one in vnodes for key, text in one.values.items() if not text.strip().isdecimal()}
    values = _merge_texts(name, vnodes, working, types)
    for prefix, total in ((AVAILABLE, available), (ASSIGNED, assigned), (UNUSABLE, unusable)):
        for resource, count in total.items():
            is_size = (AVAILABLE if prefix == UNUSABLE else prefix) + resource in sizes
            values[prefix + resource] = format_amount(resource, count, types, size=is_size)
    values[AVAILABLE + OWN_VNODE] = str(len(usable or working))
    if usable and len(working) > len(usable):
        values[UNUSABLE + OWN_VNODE] = str(len(working) - len(usable))
    values["state"] = _state(usable, working)
    return DescribedObject(vnodes[0].object_type, name, values)


def _merge_texts(
    name: str, vnodes: list[DescribedObject], working: Sequence[DescribedObject], types: ResourceTypes
) -> dict[str, str]:
    """Return the merged values that are not amounts: all values of any vnode, and the names of the vnodes."""
    found: dict[str, list[str]] = {}
    for one in working:
        for key, text in one.values.items():
            resource = key[len(AVAILABLE) :]
            if not key.startswith(AVAILABLE) or resource in _NAMES or text.startswith(_INDIRECT):
                continue
            is_word = parse_amount(resource, text, types) is None and not types.is_amount(resource)
            if is_word or types.is_level(resource):
                found[key] = list(dict.fromkeys([*found.get(key, []), *map(str.strip, text.split(","))]))
    reserved = [one for vnode in vnodes for one in reservations_of(vnode.values)]
    if reserved:
        found["resv"] = list(dict.fromkeys(reserved))
    values = {key: ",".join(texts) for key, texts in found.items()}
    values[_HOST] = name
    values[AVAILABLE + "vnode"] = ",".join([one.name for one in vnodes])
    sharings = {one.values.get("sharing", SHARED) for one in working}
    values["sharing"] = next((one for one in _STRICTEST if one in sharings), _IGNORES)
    for key in ("queue", "partition"):
        if text := next((one.values[key] for one in working if one.values.get(key)), ""):
            values[key] = text
    if priority := max([vnode_priority(one.values) for one in working]):
        values["Priority"] = str(priority)
    return values


def _state(usable: Sequence[DescribedObject], working: Sequence[DescribedObject]) -> str:
    if usable:
        return "job-exclusive" if any(is_exclusive(one.values) for one in working) else "free"
    return "offline" if any(vnode_state(one.values) == "drain" for one in working) else "down"
