"""Clusters of Netto's thesis (2009): four under Lublin's workload, five with jobs of their own between which
bags are shared out, and three with jobs of their own over which groups are spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

import numpy as np

from research.federations.field import ClusterSpec, FieldJob
from research.federations.groups import GroupJob
from schedd.replay.lublin import generate
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError, TraceJob
from schedd.wire import NodeFacts

_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR
SCHEMAS: Final = {"relaxed": (18 * _HOUR, 36 * _HOUR, 10 * _DAY), "tight": (12 * _HOUR, _DAY, 7 * _DAY)}
"""Choices for the seconds from submission plus run time to the deadline."""


@dataclass(frozen=True, slots=True)
class Source:
    """Jobs of a ``log`` with the given processors and seconds, enough for the ``load`` of ``procs``."""

    name: str
    log: str
    procs: int
    load: float
    sizes: tuple[int, int]
    times: tuple[int, int]
    part: float
    """Begin of the part of the log that they are drawn from: two sources of one log use different years of
    it.
    """
    there: str = ""
    """The log that the thesis has."""


LOCAL: Final = (
    Source(
        "ctc", "CTC-SP2-1996-3.1-cln.swf.gz", 430, 0.49, (1, 306), (_HOUR, 18 * _HOUR), 0.05, "CTC SP2 2.1"
    ),
    Source(
        "hpc2n", "HPC2N-2002-2.1-cln.swf.gz", 240, 0.56, (1, 128), (_HOUR, 120 * _HOUR), 0.05, "HPC2N 1.1"
    ),
    Source(
        "hpc2n-later",
        "HPC2N-2002-2.1-cln.swf.gz",
        240,
        0.48,
        (1, 128),
        (_HOUR, 120 * _HOUR),
        0.5,
        "HPC2N 1.1, another year",
    ),
    Source(
        "sdsc", "SDSC-SP2-1998-4.2-cln.swf.gz", 128, 0.54, (1, 115), (_HOUR, 18 * _HOUR), 0.05, "SDSC SP2 3.1"
    ),
    Source(
        "lpc", "METACENTRUM-2009-2.swf.gz", 140, 0.52, (1, 1), (2 * _HOUR, 72 * _HOUR), 0.05, "LPC-EGEE 1.2"
    ),
)
"""Table of 6.4. LPC-EGEE is not available: MetaCentrum's jobs of one processor replace it."""
EXTERNAL: Final = Source(
    "external",
    "SDSC-BLUE-2000-4.1-cln.swf.gz",
    1178,
    0.54,
    (64, 632),
    (_HOUR, 36 * _HOUR),
    0.05,
    "SDSC BLUE 3.1",
)
LOGS: Final = tuple(dict.fromkeys(one.log for one in (*LOCAL, EXTERNAL)))
_ANY: Final = (1, 120 * _HOUR)
SITES: Final = (
    Source("ctc", "CTC-SP2-1996-3.1-cln.swf.gz", 430, 0.57, (1, 430), _ANY, 0.05, "CTC SP2 2.1"),
    Source("hpc2n", "HPC2N-2002-2.1-cln.swf.gz", 240, 0.54, (1, 240), _ANY, 0.05, "HPC2N 1.1"),
    Source("sdsc", "SDSC-SP2-1998-4.2-cln.swf.gz", 128, 0.51, (1, 128), _ANY, 0.05, "SDSC SP2 3.1"),
)
"""Table of 4.5, with the loads that are."""
GROUPS: Final = {
    10: Source("groups", "SDSC-BLUE-2000-4.1-cln.swf.gz", 798, 0.16, (128, 704), _ANY, 0.05, "SDSC BLUE 3.1"),
    30: Source("groups", "SDSC-BLUE-2000-4.1-cln.swf.gz", 798, 0.31, (128, 704), _ANY, 0.05, "SDSC BLUE 3.1"),
}
"""The same for its jobs from outside, by the load that names them in its figures. Larger ones do not fit in
parts of ``_PART`` processors."""
GROUP_LOGS: Final = tuple(dict.fromkeys(one.log for one in (*SITES, *GROUPS.values())))
_PART: Final = 64  # processors of a part at most
_MOST_OVERHEAD: Final = 25
_SPAN: Final = 0.4  # share of a log where windows begin


def five_clusters(
    logs: Path, days: float, schema: Literal["relaxed", "tight"], seed: int
) -> tuple[list[ClusterSpec], list[FieldJob]]:
    """The five clusters of section 6.4 with jobs of their own, and bags from outside, for this number of
    days.

    Run times are the logs', and known beforehand. A window of each log is drawn by ``seed``;
    its times between two jobs are stretched evenly to give the load of the table. Raises TraceError and
    OSError.
    """
    random = np.random.default_rng(seed)
    clusters = [ClusterSpec(one.name, (NodeFacts(name=f"{one.name}-1", cpus=one.procs),)) for one in LOCAL]
    names = tuple(spec.name for spec in clusters)
    traces = {log: _jobs_of(logs / log) for log in LOGS}
    found: list[FieldJob] = []
    for source in (*LOCAL, EXTERNAL):
        for number, (submit, one) in enumerate(_window(traces[source.log], source, days, random)):
            deadline = submit + one.run + int(random.choice(SCHEMAS[schema]))
            job = FieldJob(
                submit=submit,
                run=one.run,
                walltime=one.run,
                cpus=one.procs,
                resources={"procs": str(one.procs), "walltime": str(one.run)},
                load=float(one.run * one.procs),
                clusters=(source.name,),
                deadline=deadline,
                user=f"{source.name}-{one.user}",
                home=source.name,
            )
            found += [job] if source is not EXTERNAL else _bag(job, f"{number}[]", names)
    return clusters, sorted(found, key=lambda job: job.submit)


def _bag(job: FieldJob, array: str, clusters: tuple[str, ...]) -> list[FieldJob]:
    """A task for each of its processors."""
    task = replace(
        job,
        cpus=1,
        resources={"procs": "1", "walltime": str(job.walltime)},
        load=float(job.walltime),
        clusters=clusters,
        home="",
        array=array,
    )
    return [task] * job.cpus


@cache
def _jobs_of(path: Path) -> Sequence[TraceJob]:
    (trace,) = read_traces([path])
    return trace.jobs


def _window(
    jobs: Sequence[TraceJob], source: Source, days: float, random: np.random.Generator
) -> list[tuple[int, TraceJob]]:
    """Jobs one after the other, with their submissions in seconds from the beginning on."""
    (least, most), (short, long) = source.sizes, source.times
    fit = [one for one in jobs if least <= one.procs <= most and short <= one.run <= long]
    wanted = source.load * source.procs * days * _DAY
    first = int(len(fit) * (source.part + _SPAN * random.random()))
    work, last = 0.0, first
    while work < wanted:
        if last == len(fit):
            raise TraceError(f"{source.log}: from job {first} on it has not enough of {days:g} days' work")
        work += fit[last].run * fit[last].procs
        last += 1
    chosen = fit[first:last]
    begin, span = chosen[0].submit, max(1, chosen[-1].submit - chosen[0].submit)
    return [(int((one.submit - begin) / span * days * _DAY), one) for one in chosen]


def four_clusters(
    days: float, over: int, seed: int, *, procs: int = 300, load: float = 0.7
) -> tuple[list[ClusterSpec], list[FieldJob]]:
    """Four clusters with the given processors, and a bag for each job of Lublin and Feitelson's model.

    A task's walltime is its run time and ``over`` percent more in the mean (uniform, 0 to twice that), the
    same for all tasks of a bag. Raises ValueError.
    """
    names = ("c1", "c2", "c3", "c4")
    clusters = [ClusterSpec(name, (NodeFacts(name=f"{name}-1", cpus=procs),)) for name in names]
    total = procs * len(names)
    count = max(2, int(40 * days))
    while (drawn := generate(count, total, seed, load=load).jobs)[-1].submit < days * _DAY:
        count *= 2
    random = np.random.default_rng(seed)
    found: list[FieldJob] = []
    for one in drawn:
        if one.submit > days * _DAY:
            break
        walltime = int(max(30, one.run) * (1 + random.uniform(0, 2 * over / 100)))
        bag = FieldJob(
            submit=one.submit,
            run=max(30, one.run),
            walltime=walltime,
            cpus=one.procs,
            resources={},
            load=0.0,
            clusters=names,
            user=one.user,
        )
        found += _bag(bag, f"{one.id}[]", names)
    return clusters, found


def three_clusters(
    logs: Path, days: float, outside: int, precision: int, seed: int
) -> tuple[list[ClusterSpec], list[FieldJob], list[GroupJob]]:
    """The three clusters of section 4.5 with jobs of their own, and jobs from outside as groups of parts, for
    this number of days.

    ``outside`` is a key of ``GROUPS``. Users' walltimes come nearer to the run times by ``precision``
    percent. A window of each log is drawn by ``seed``, the same whatever the rest. Raises TraceError and
    OSError.
    """
    random = np.random.default_rng(seed)
    clusters = [ClusterSpec(one.name, (NodeFacts(name=f"{one.name}-1", cpus=one.procs),)) for one in SITES]
    found: list[FieldJob] = []
    for source in SITES:
        for submit, one in _window(_jobs_of(logs / source.log), source, days, random):
            walltime = _asked(one, precision)
            found.append(
                FieldJob(
                    submit=submit,
                    run=one.run,
                    walltime=walltime,
                    cpus=one.procs,
                    resources={"procs": str(one.procs), "walltime": str(walltime)},
                    load=float(one.run * one.procs),
                    clusters=(source.name,),
                    user=f"{source.name}-{one.user}",
                    home=source.name,
                )
            )
    source = GROUPS[outside]
    groups = [
        GroupJob(
            submit=submit,
            run=one.run,
            walltime=_asked(one, precision),
            parts=tuple(min(_PART, one.procs - first) for first in range(0, one.procs, _PART)),
            overhead=min(_MOST_OVERHEAD, int(random.poisson(20))),
        )
        for submit, one in _window(_jobs_of(logs / source.log), source, days, random)
    ]
    return clusters, sorted(found, key=lambda job: job.submit), groups


def _asked(one: TraceJob, precision: int) -> int:
    """The user's walltime, if it were more precise by this percentage."""
    over = max(0, (one.estimate or one.run) - one.run)
    return one.run + over * (100 - precision) // 100
