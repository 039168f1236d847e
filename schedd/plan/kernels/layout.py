"""Arrays of the kernels and the meaning of their columns.

Rows are timelines: one per node, one per pool (a limit, a licence, a quota). A row is a run of segments in
the slabs ``T`` (starts) and ``F`` (free capacity), located by ``rows``. The first segment extends backward
without end, the last one forward; a segment ends where the next begins. All numbers are int64; times are
seconds since the epoch, memory is KiB.
"""

from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Table = Annotated[Ints, 2]
"""A two-dimensional array. Kernels are compiled for the annotated types: see
kernels/compiler.py.
"""

FAR: Final = 1 << 61  # an unknown end; the same as `schedd.model.FOREVER`
WHOLE: Final = 1 << 20
"""Free shares of an idle node. A job takes one, an exclusive job all of them: the same on every node."""

# Columns of F, of capacities and of needs. Further ones (vmem, node-locked resources) follow.
CPUS: Final = 0
SHARE: Final = 1
MEM: Final = 2
GPUS: Final = 3
BASE_RESOURCES: Final = 4

# rows[row, :]
OFF: Final = 0  # first segment in the slabs
LEN: Final = 1  # number of segments
ROOM: Final = 2  # capacity in segments
USABLE: Final = 3  # 0: unusable; else 1 + speed tier of the node
SLACK: Final = 4  # 1: a pool with room for its total demand, which needs no check
VERSION: Final = 5  # counts the changes of the row
FREED_AT: Final = 6  # number of the last freed interval on the row
KIND: Final = 7  # NODE, POOL_ROW, or SPARE_ROW: a pool's row that is out of use
MOST: Final = 8  # of a pool: the maximum that any job has requested
ROW_FIELDS: Final = 9

# rows[:, KIND]
NODE: Final = 0
POOL_ROW: Final = 1  # uses only the first column; the others are 0
SPARE_ROW: Final = 2

# jobs[:, slot]
START: Final = 0  # planned or actual start; -1 when unplaced
DUR: Final = 1  # seconds
READY: Final = 2  # earliest start
SHAPE: Final = 3
STATE: Final = 4
ALLOC: Final = 5  # first entry in alloc
ALLOCS: Final = 6  # number of entries
POOL: Final = 7  # first entry in pools
POOLS: Final = 8  # number of entries
SEEN: Final = 9  # number of the first freed interval not yet tried for the job; -1: search it as a whole
HELD: Final = 10  # of a placed job, two bits for each of its nodes' rows, by ``held_bits``
JOB_FIELDS: Final = 11

# jobs[STATE]
VACANT: Final = 0
UNPLACED: Final = 1
PLANNED: Final = 2
FIXED: Final = 3  # runs, or blocks nodes: never moved by a search

# shapes[shape, :]
CHUNK: Final = 0  # first chunk
CHUNKS: Final = 1
EXCLUSIVE: Final = 2
SETS: Final = 3  # number of node sets to prefer one of; 0: no sets
HOLDERS: Final = 4  # the first HOLDERS sets could hold the whole job
WAIT: Final = 5  # seconds that it may wait for one set; -1: it never uses several
SHAPE_FIELDS: Final = 6
# The chunks of a shape come once for all nodes, then once for each set, restricted to its rows.

# chunks[chunk, :]
COUNT: Final = 0
SET: Final = 1  # first row of its row set
SET_LEN: Final = 2
PER_NODE: Final = 3  # most units that one node may hold
LEVEL: Final = 4  # of its need: see kernels/bounds.py
NEED: Final = 5  # needs per unit, one per resource

# alloc[entry, :]
A_ROW: Final = 0
A_CHUNK: Final = 1  # which chunk of the shape; -1 for a pool
A_UNITS: Final = 2
A_TAKE: Final = 3  # amounts taken of the row, one per resource

# ctl[:]
SLAB_TOP: Final = 0  # first unused segment of the slabs
ALLOC_TOP: Final = 1  # first unused entry of alloc
WORK: Final = 2  # visited segments: the unit of budgets
STOP: Final = 3  # set from outside: kernels that run long return at once
GARBAGE: Final = 4  # unused segments below SLAB_TOP
ALLOC_GARBAGE: Final = 5
NOW: Final = 6  # present time: no search begins before it
FREED: Final = 7  # entries in the log of freed intervals
FREED_BASE: Final = 8  # number of the first entry
SEARCH_FLAGS: Final = 9  # bits: see TO_SEARCH
LIMIT: Final = 10  # a search may pause beyond this WORK; 0: never
CAME_TO: Final = 11  # time reached by a paused search: there is no start before it
PARTIAL: Final = 12  # 1 + slot of the paused search; 0: none
PARTIAL_START: Final = 13  # planned start of that slot at the pause
PARTIAL_TOP: Final = 14  # number of the next freed interval when the search began
NO_ROOM: Final = 15  # 1: a slice of repair ended because a slab was full
GATES: Final = 16  # a bit for each gate column; even an exclusive job takes only its need of such a gate
LEAST_TIER: Final = 17  # searches skip nodes of lower tiers
PROTECT_TIER: Final = 18  # 1: repair moves no job to nodes of a lower tier than it has
WANTED_SEGMENTS: Final = 19  # after GROW: unused segments required in the slabs; 0: enough
WANTED_ENTRIES: Final = 20  # the same of the allocations
MOST_WORK: Final = 21  # maximum WORK of one search
SEARCH_END: Final = 22  # WORK limit of the present search
WORK_END: Final = 23  # WORK limit of all searches; other threads may lower it
CTL_FIELDS: Final = 24

# ctl[SEARCH_FLAGS]
TO_SEARCH: Final = 1  # the next pass of repair must search some planned job as a whole
NAMED: Final = 2  # jobs with SEEN -1 were not yet tried as a whole for an immediate start
LOST: Final = 4  # the log was lost: no job was tried yet

# entries[:, i] of the log of freed intervals: see kernels/freed.py
T_ROW: Final = 0
T_LO: Final = 1
T_HI: Final = 2
T_VERSION: Final = 3  # VERSION of the row when its runs were measured
T_BEFORE: Final = 4  # number of the previous entry on the same row
T_FIELDS: Final = 5

# bounds[level * DURATIONS + step, row]: see kernels/bounds.py
DURATIONS: Final = 32

# scratch[:, row]
EXTRA: Final = 0  # segments that a change may add
UNITS: Final = 1  # this and the rest: searches for many units
NEXT: Final = 2
FRESH: Final = 3
KEY: Final = 4
SORT: Final = 5
POOL_NEED: Final = 6
CLOSED: Final = 7  # 1: row temporarily closed to units of several chunks; 0 between searches
SCRATCH_ROWS: Final = 8

MOST_RESOURCES: Final = 62  # kernels use one bit per resource

# Return codes instead of a start.
NONE: Final = -1  # no start before the bound
GROW: Final = -2  # a slab is full: grow it and call again; nothing was changed
LATER: Final = -3  # a search paused at its limit: it continues from CAME_TO
SPENT: Final = -4  # a search reached its work limit: the result is unknown

# Return codes of kernels that change placements.
DONE: Final = 0
FULL: Final = 1  # a slab is full: grow it and call again


class Tables(NamedTuple):
    """All arrays of one plan; R resources, S segments, N rows, J slots."""

    T: Ints
    """(S,) starts of segments."""
    F: Table
    """(R, S) free capacity from that time on."""
    rows: Table
    """(N, ROW_FIELDS)."""
    cap: Table
    """(N, R) capacity of each row."""
    jobs: Table
    """(JOB_FIELDS, J)."""
    shapes: Table
    """(shapes, SHAPE_FIELDS)."""
    chunks: Table
    """(chunks, NEED + R)."""
    sets: Ints
    """Row numbers of all row sets, one after another."""
    costs: Ints
    """(as long as ``sets``) cost of each row for jobs of the set, from 0 on: see ``plan/scarcity.py``."""
    pools: Table
    """(entries, 2) row and amount."""
    alloc: Table
    """(entries, A_TAKE + R)."""
    ctl: Ints
    """Counters and flags."""
    bounds: Table
    """(levels * DURATIONS, N) lower bounds of starts."""
    exact: Table
    """(levels * DURATIONS, N) the VERSION of the row when the bound was an actual start."""
    scratch: Table
    """(SCRATCH_ROWS, N) for searches."""
    out: Table
    """(entries, 3) row, chunk, units: result of a search."""
