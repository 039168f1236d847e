"""Clusters and jobs for benchmarks: stated distributions, one seed.

Times are in seconds, memory in KiB. Every profile draws jobs independently of each other; numbers in the
tables below are weights unless said otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from schedd.model import Node

Profile = Literal["metacentrum", "uniform", "large"]
PROFILES: Final = get_args(Profile)

_GIB: Final = 1 << 20
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A job as its user wrote it: TORQUE's ``nodes``, ``mem`` (KiB in all; 0: none), walltime in seconds."""

    nodes: str
    mem: int
    walltime: int

    @property
    def resources(self) -> dict[str, str]:
        memory = {"mem": f"{self.mem}kb"} if self.mem else {}
        return {"nodes": self.nodes, "walltime": str(self.walltime), **memory}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes alike: how many (of 219), cpus, GiB of memory, whether they are fast."""

    count: int
    cpus: int
    gib: int
    fast: bool


# 219 nodes and 1,494 cpus in 22 clusters: the size of the paper's test; its node types are not published.
_METACENTRUM: Final = (
    _Kind(27, 2, 4, False),
    _Kind(40, 4, 8, False),
    _Kind(32, 4, 16, True),
    _Kind(60, 8, 16, False),
    _Kind(36, 8, 32, True),
    _Kind(16, 16, 64, True),
    _Kind(8, 16, 128, True),
)
_CLUSTERS: Final = 22


def cluster(profile: Profile, nodes: int) -> list[Node]:
    """``nodes`` nodes of a profile.

    ``metacentrum``: 2 to 16 cpus and 4 to 128 GiB in the proportions of 219 nodes with 1,494 cpus, spread
    over 22 named clusters; ``uniform``: 8 cpus, 32 GiB; ``large``: 64 cpus, 256 GiB.
    """
    if nodes < 1:
        raise ValueError(f"{nodes} nodes: at least 1 is needed")
    if profile == "uniform":
        return [Node(f"n{i:05}", 8, 32 * _GIB) for i in range(nodes)]
    if profile == "large":
        return [Node(f"n{i:05}", 64, 256 * _GIB) for i in range(nodes)]
    kinds = [kind for kind in _METACENTRUM for _ in range(kind.count)]
    found = []
    for i in range(nodes):
        kind = kinds[i * len(kinds) // nodes]
        features = {f"c{i * _CLUSTERS // nodes:02}", *(("fast",) if kind.fast else ())}
        found.append(Node(f"n{i:05}", kind.cpus, kind.gib * _GIB, features=frozenset(features)))
    return found


def jobs(profile: Profile, n: int, seed: int) -> Iterator[BenchJob]:
    """``n`` jobs of a profile, in random order.

    ``metacentrum``: 12 % ask for several nodes (2 to 16, log-uniform, of 1, 2, 4 or 8 cpus), the others for
    1, 2, 4, 8 or 16 cpus of one node (60, 14, 14, 10, 2); memory per cpu is 256 MiB to 4 GiB, log-uniform,
    but no more than 2 GiB for less than 16 cpus; 16 % ask for fast nodes; walltime is 2 h, 4 h, 24 h, 48 h,
    7 d or 30 d (30, 15, 35, 10, 8, 2) for 60 % of the jobs, else log-uniform from 5 minutes to 10 days.
    ``uniform``: 1 to 8 cpus of one node, 10 minutes to 24 hours, both uniform; no memory.
    ``large``: half ask for 1 to 32 whole nodes (log-uniform), half for 1 to 64 cpus of one node (uniform)
    with 2 GiB each; walltime is log-uniform from 4 h to 4 days.
    """
    rng = np.random.default_rng(seed)
    draw = {"metacentrum": _metacentrum, "uniform": _uniform, "large": _large}[profile]
    for _ in range(n):
        yield draw(rng)


def _metacentrum(rng: np.random.Generator) -> BenchJob:
    if rng.random() < 0.12:
        count, cpus = _log_uniform(rng, 2, 16), _weighted(rng, (1, 2, 4, 8), (30, 30, 25, 15))
    else:
        count, cpus = 1, _weighted(rng, (1, 2, 4, 8, 16), (60, 14, 14, 10, 2))
    # At most the memory per cpu of nodes with this number of cpus.
    memory = min(_log_uniform(rng, _GIB // 4, 4 * _GIB), 2 * _GIB if cpus < 16 else 4 * _GIB)
    if rng.random() < 0.6:
        hours = (2, 4, 24, 48, 168, 720)
        walltime = _weighted(rng, hours, (30, 15, 35, 10, 8, 2)) * _HOUR
    else:
        walltime = _log_uniform(rng, 300, 240 * _HOUR)
    fast = ":fast" if rng.random() < 0.16 else ""
    return BenchJob(f"{count}:ppn={cpus}{fast}", count * cpus * memory, walltime)


def _uniform(rng: np.random.Generator) -> BenchJob:
    return BenchJob(f"1:ppn={rng.integers(1, 9)}", 0, int(rng.integers(600, 24 * _HOUR + 1)))


def _large(rng: np.random.Generator) -> BenchJob:
    walltime = _log_uniform(rng, 4 * _HOUR, 96 * _HOUR)
    if rng.random() < 0.5:
        return BenchJob(f"{_log_uniform(rng, 1, 32)}:ppn=64", 0, walltime)
    cpus = int(rng.integers(1, 65))
    return BenchJob(f"1:ppn={cpus}", cpus * 2 * _GIB, walltime)


def _log_uniform(rng: np.random.Generator, least: int, most: int) -> int:
    return int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))


def _weighted(rng: np.random.Generator, values: Sequence[int], weights: Sequence[int]) -> int:
    return int(rng.choice(values, p=np.array(weights) / sum(weights)))
