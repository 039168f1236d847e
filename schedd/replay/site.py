"""Machine of a replay, and the translation of a log's job into a request on it.

Without node shapes the machine is one node of P cpus, and memory is ignored. With them a job requests its
node specification if the log has one, otherwise processors anywhere.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from schedd.dialect import Family, RequestError, parse_size
from schedd.replay.machines import NodeGroup
from schedd.replay.workload import TraceJob
from schedd.wire import NodeFacts

_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_GPU_NAMES: Final = frozenset({"gpus", "gpu", "ngpus"})
_GRES: Final = re.compile(r"[+,%&]")
_AMOUNT: Final = re.compile(r"([A-Za-z_]\w*)=\d+\b")
_OTHER_WORDS: Final = frozenset(
    {"ppn", "ncpus", "mem", "pmem", "vmem", "mpiprocs", "ompthreads", "host", "vnode"}
)
_CHUNK_KEYS: Final = frozenset({"ncpus", "mem"})


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A job's request in its server's dialect, without the walltime."""

    family: Family
    resources: Mapping[str, str]


@dataclass(frozen=True)
class ReplaySite:
    """Nodes of the machine. ``shaped``: they are the log's own, not one node for the whole machine.

    ``paced``: run times refer to the slowest nodes and are shorter on faster ones.
    """

    nodes: tuple[NodeFacts, ...]
    shaped: bool
    paced: bool = False

    @property
    def procs(self) -> int:
        """Total cpus."""
        return sum(node.cpus for node in self.nodes)

    @cached_property
    def memory(self) -> bool:
        return any(node.mem for node in self.nodes)

    @cached_property
    def speeds(self) -> Mapping[str, float]:
        """Speed by node name."""
        return {node.name: node.speed for node in self.nodes}

    @cached_property
    def _names_and_properties(self) -> frozenset[str]:
        """Names and properties of nodes: the valid conditions of a request."""
        return frozenset(word for node in self.nodes for word in (node.name, *node.properties))

    @cached_property
    def counted(self) -> frozenset[str]:
        """Names of resources that nodes have, except cpus and memory."""
        found = {name for node in self.nodes for name in node.resources}
        if any(node.gpus for node in self.nodes):
            found |= _GPU_NAMES
        return frozenset(found)

    def request(self, job: TraceJob) -> TraceRequest:
        """Return the request of ``job`` on this machine."""
        if not self.shaped:
            return TraceRequest("torque", {"ncpus": str(job.procs)})
        if job.select_spec:
            return TraceRequest("openpbs", {"select": self._select(job.select_spec)})
        gres = self._gres(job.gres)
        spec = job.nodes_spec
        if not spec and job.gpus and job.node_count and "gpus" in self.counted:
            each, gpus = -(-job.procs // job.node_count), -(-job.gpus // job.node_count)
            spec = f"{job.node_count}:ppn={each}:gpus={gpus}"
        if spec:
            spec, nodes, mem = self._nodes(spec)
            resources = {"nodes": spec, **gres}
            if self.memory:
                per_node = mem or job.mem_kib_per_node or 0
                total = per_node * nodes or (job.mem_kib_per_proc or 0) * job.procs
                resources |= {"mem": f"{total}kb"} if total else {}
            return TraceRequest("torque", resources)
        mem = job.mem_kib_per_proc or 0
        return TraceRequest(
            "torque",
            {"procs": str(job.procs), **({"pmem": f"{mem}kb"} if mem and self.memory else {}), **gres},
        )

    def _gres(self, text: str) -> dict[str, str]:
        """Return the parts of ``gres=fpga:1+matlab:2`` that nodes have, as a resource."""
        parts = [part for part in _GRES.split(text) if re.split("[:=]", part)[0] in self.counted]
        return {"gres": "+".join(parts)} if parts else {}

    def unknown_resources(self, jobs: Iterable[TraceJob]) -> frozenset[str]:
        """Return resources requested by ``jobs`` that no node has; they are ignored."""
        found: set[str] = set()
        for job in jobs:
            found |= {re.split("[:=]", part)[0] for part in _GRES.split(job.gres) if part}
            found |= {"gpus"} if job.gpus else set()
            for spec in filter(None, (job.nodes_spec, job.select_spec)):
                found |= {name for name in _AMOUNT.findall(spec) if name not in _OTHER_WORDS}
        return frozenset(found - self.counted)

    def unknown_properties(self, jobs: Iterable[TraceJob]) -> frozenset[str]:
        """Return properties and hosts requested by ``jobs`` that no node has; they are ignored."""
        if not self.shaped:
            return frozenset()
        specs = {job.nodes_spec for job in jobs if job.nodes_spec and not job.select_spec}
        words = {word for spec in specs for word in re.split(r"[:+#|]", spec)}
        bare = {
            word.lstrip("^!") for word in words if word and "=" not in word and not _NUMBER.fullmatch(word)
        }
        return frozenset(word for word in bare - {"excl", "shared"} if not self._known(word))

    def _known(self, word: str) -> str:
        """Return ``word`` as a node name (without domain) or property, or an empty string."""
        if word in self._names_and_properties:
            return word
        short = word.partition(".")[0]
        return short if short in self._names_and_properties else ""

    def _nodes(self, spec: str) -> tuple[str, int, int]:
        """Return ``nodes=`` without unknown conditions, the number of nodes, and KiB of each or 0."""
        listing, *everywhere = spec.split("#")
        parts: list[str] = []
        count = mem = 0
        for part in listing.split("+"):
            words = part.split(":")
            first = words[0]
            units = int(first) if first.isdecimal() else 1
            kept = [str(units)]
            for word in words if not first.isdecimal() else words[1:]:
                name, _, value = word.partition("=")
                if name == "ppn" and _NUMBER.fullmatch(value):
                    kept.append(f"ppn={-(-float(value) // 1):.0f}")
                elif name in _GPU_NAMES and _NUMBER.fullmatch(value):
                    kept += [f"gpus={value}"] if "gpus" in self.counted else []
                elif name in self.counted and _NUMBER.fullmatch(value):
                    kept.append(word)
                elif name == "mem":
                    mem = max(mem, _kib(value))
                elif name == "host" or not value:
                    kept += self._condition(value or name)
            count += units
            parts.append(":".join(kept))
        marks = [mark for mark in everywhere if mark in ("excl", "shared")]
        return "#".join(["+".join(parts), *marks]), count, mem

    def _condition(self, word: str) -> list[str]:
        """Return a property or host, perhaps negated or with alternatives; empty if no node matches."""
        pieces = word.split("|")
        known = [("^" if p[:1] in "^!" else "") + self._known(p.lstrip("^!")) for p in pieces if p]
        return ["|".join(known)] if known and all(name.lstrip("^") for name in known) else []

    def _select(self, spec: str) -> str:
        """Return a ``select=`` value without unknown conditions."""
        chunks = []
        for chunk in spec.split("+"):
            kept = []
            for word in chunk.split(":"):
                name, _, value = word.partition("=")
                if not value or (name in _CHUNK_KEYS and (name != "mem" or self.memory)):
                    kept.append(word)
                elif name in self.counted and _NUMBER.fullmatch(value):
                    kept.append(f"ngpus={value}" if name in _GPU_NAMES else word)
                elif name in ("host", "vnode") and self._known(value):
                    kept.append(f"host={self._known(value)}")
            chunks.append(":".join(kept))
        return "+".join(chunks)


def _kib(text: str) -> int:
    try:
        return parse_size(text)
    except RequestError:
        return 0


def single_node_site(procs: int) -> ReplaySite:
    """Return the machine as one node of ``procs`` cpus without planned memory."""
    return ReplaySite((NodeFacts(name="machine", cpus=procs),), shaped=False)


def equal_node_site(nodes: int, cpus: int, mem: int = 0) -> ReplaySite:
    """Return ``nodes`` nodes of ``cpus`` cpus and ``mem`` KiB each (0: memory is not planned)."""
    digits = len(str(nodes))
    return ReplaySite(
        tuple(NodeFacts(name=f"n{i:0{digits}}", cpus=cpus, mem=mem) for i in range(1, nodes + 1)), shaped=True
    )


def machine_file_site(groups: Sequence[NodeGroup]) -> ReplaySite:
    """Return the nodes of a machine file: ``CLUSTER1`` to ``CLUSTERn``.

    Their properties follow MetaCentrum's names: the cluster, ``cl_CLUSTER`` and ``nodecpusN``; then those of
    the file.
    """
    return ReplaySite(
        tuple(
            NodeFacts(
                name=f"{group.cluster}{i}",
                cpus=group.cpus,
                mem=group.mem,
                properties=tuple(
                    dict.fromkeys(
                        (group.cluster, f"cl_{group.cluster}", f"nodecpus{group.cpus}", *group.properties)
                    )
                ),
                speed=group.speed,
                gpus=dict(group.resources).get("gpus", 0),
                resources={name: amount for name, amount in group.resources if name != "gpus"},
            )
            for group in groups
            for i in range(1, group.nodes + 1)
        ),
        shaped=True,
    )
