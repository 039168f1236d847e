"""Kernels of the predicted run times: a table of templates, and quantiles of what jobs alike did.

A template is the latest ends of jobs that agree in some of user, name, walltime and processors. The table
has buckets of ``WAYS`` entries: a template stands in the bucket that its key names, and where that is full it
takes the place of the one that nobody learned from for longest.
"""

from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.jit import inner, kernel, maker
from schedd.plan.kernels.layout import Ints, Table
from schedd.predict.layout import Floats

__all__ = [
    "DECAY",
    "DOUBT",
    "KINDS",
    "RING",
    "USER",
    "WAYS",
    "Templates",
    "copy_into",
    "entries_of",
    "learn",
    "move",
    "predict",
    "predict_open",
]

Singles = npt.NDArray[np.float32]
SingleTable = Annotated[Singles, 2]

WAYS: Final = 8
RING: Final = 32
"""So many of the latest ends are kept of each template."""
DECAY: Final = 0.9
"""What an end counts of what the one after it does."""
DOUBT: Final = 2.0
"""A template of weight n gets n / (n + DOUBT) of what more exact ones left over."""
DOUBT_RUNNING: Final = 5.0
"""The same of a job that runs; n is then the weight of the ends beyond what it has run."""
KINDS: Final = 6
"""How many templates a job has; the most exact first."""
USER: Final = 3
"""Which of them is that of its user."""


class Templates(NamedTuple):
    """The table; N entries, a power of two."""

    keys: Ints
    """(N,) 0: free."""
    learned: Ints
    """(N,) how many ends were learned."""
    used: Ints
    """(N,) number of the latest end."""
    shift: Floats
    """(N,) how much longer than calibrated the high quantiles are told, as a logarithm; of users alone."""
    ends: SingleTable
    """(N, RING) logarithm of run time over walltime; number i stands at i modulo RING."""


@inner
def find(tb: Templates, key: int) -> int:
    """The entry of a template, or -1."""
    first = (key & (tb.keys.shape[0] // WAYS - 1)) * WAYS
    for i in range(first, first + WAYS):
        if tb.keys[i] == key:
            return i
    return -1


@inner
def _enter(tb: Templates, key: int, number: int) -> int:
    """The entry of a template, made if it is not there."""
    found = find(tb, key)
    if found >= 0:
        return found
    first = (key & (tb.keys.shape[0] // WAYS - 1)) * WAYS
    oldest = int(first)
    for i in range(first, first + WAYS):
        if tb.keys[i] == 0:
            oldest = int(i)
            break
        if tb.used[i] < tb.used[oldest]:
            oldest = int(i)
    tb.keys[oldest] = key
    tb.learned[oldest] = 0
    tb.used[oldest] = number
    tb.shift[oldest] = 0.0
    return oldest


@kernel
def predict(
    tb: Templates, keys: Ints, levels: Floats, offset: Floats, shift: float, shifted: int, walltime: int
) -> tuple[Floats, Ints]:
    """Quantiles at ``levels`` of a job's run time: logarithms of shares of the walltime before calibration,
    and seconds after it.

    ``offset`` calibrates each; those from number ``shifted`` on are moved by ``shift`` and that of the user.
    What no template accounts for is the walltime itself.
    """
    value = np.empty(KINDS * RING + 1)
    weight = np.empty(KINDS * RING + 1)
    left = 1.0
    m = 0
    for k in range(KINDS):
        entry = find(tb, keys[k]) if keys[k] != 0 else -1
        if entry < 0 or tb.learned[entry] == 0:
            continue
        count = tb.learned[entry]
        n = min(count, RING)
        total = (1.0 - DECAY**n) / (1.0 - DECAY)
        share = left * total / (total + DOUBT)
        w = share / total
        for j in range(n):
            value[m] = tb.ends[entry, (count - 1 - j) % RING]
            weight[m] = w
            w *= DECAY
            m += 1
        left -= share
    value[m] = 0.0
    weight[m] = left
    raw = _quantiles(value[: m + 1], weight[: m + 1], levels)
    user = find(tb, keys[USER])
    if user >= 0:
        shift += tb.shift[user]
    return raw, _told(raw, offset, shift, shifted, walltime)


@maker
def _quantiles(value: Floats, weight: Floats, levels: Floats) -> Floats:
    """The values at which so much of the weight, 1 in all, is reached; 0, the walltime, where it never is."""
    order = np.argsort(value)
    found = np.zeros(levels.shape[0])
    total = 0.0
    i = 0
    for j in range(value.shape[0]):
        total += weight[order[j]]
        while i < levels.shape[0] and total >= levels[i] - 1e-9:
            found[i] = value[order[j]]
            i += 1
    return found


@maker
def _told(raw: Floats, offset: Floats, shift: float, shifted: int, walltime: int) -> Ints:
    """Seconds, calibrated, in order of size."""
    told = np.empty(raw.shape[0], np.int64)
    least = 1
    for i in range(raw.shape[0]):
        log = raw[i] + offset[i] + (shift if i >= shifted else 0.0)
        # A millionth of a second off: what equals the walltime is not to be rounded beyond it.
        seconds = walltime if log >= 0.0 else int(np.ceil(np.exp(log) * walltime - 1e-6))
        least = max(least, min(seconds, walltime))
        told[i] = least
    return told


@kernel
def entries_of(tb: Templates, keys: Table) -> Ints:
    """The entries of all ``keys``, (jobs, KINDS), one job after the other; -1: there is none."""
    found = np.empty(keys.shape[0] * KINDS, np.int64)
    for i in range(keys.shape[0]):
        for k in range(KINDS):
            found[i * KINDS + k] = find(tb, keys[i, k]) if keys[i, k] != 0 else -1
    return found


@kernel
def predict_open(
    tb: Templates,
    entries: Table,
    keys: Table,
    walltime: Ints,
    running: Table,
    ran: Floats,
    own: Ints,
    levels: Floats,
    offset: Floats,
    shift: float,
    shifted: int,
) -> Table:
    """As ``predict``, (jobs, levels) seconds for many, of whom the templates are ``entries``, (jobs, KINDS).

    Those that run count, too, in the templates that name their user: that they ran for so long already, and
    may for longer (Kaplan and Meier 1958), up to the walltime. Ends alone tell of the short ones of many that
    began together.
    A job that runs itself is told of by those alone that run longer than it did, in each template. Quantiles
    of all jobs alike, cut off there, would rest on the few levels beyond; and by their calibration, which is
    that of all, they would be moved for no reason.
    ``running``: the keys of those, who began last first; ``ran``: the logarithms of what they ran over the
    walltime; ``own``: the job itself among them, or -1.
    """
    told = np.empty((keys.shape[0], levels.shape[0]), np.int64)
    value = np.empty(2 * KINDS * RING + 1)
    weight = np.empty(2 * KINDS * RING + 1)
    ended = np.empty(2 * KINDS * RING + 1, np.int64)
    uncalibrated = np.zeros(offset.shape[0])
    for i in range(keys.shape[0]):
        runs = own[i] >= 0
        past = ran[own[i]] if runs else -np.inf
        doubt = DOUBT_RUNNING if runs else DOUBT
        left = 1.0
        unknown = 0.0  # how many run longer than all that ended, and nobody knows for how long
        m = 0
        for k in range(KINDS):
            entry = entries[i, k]
            if entry < 0 or tb.learned[entry] == 0:
                continue
            first = m
            count = tb.learned[entry]
            n = min(count, RING)
            total = 0.0
            w = 1.0
            for j in range(n):
                end = tb.ends[entry, (count - 1 - j) % RING]
                if end > past:
                    value[m] = end
                    weight[m] = w
                    ended[m] = 1
                    total += w
                    m += 1
                w *= DECAY
            if total == 0.0:
                continue
            share = left * total / (total + doubt)
            at_risk = total
            w = 1.0
            seen = 0
            for r in range(running.shape[0] if k <= USER else 0):
                if r != own[i] and running[r, k] == keys[i, k]:
                    if ran[r] > past:
                        value[m] = ran[r]
                        weight[m] = w
                        ended[m] = 0
                        at_risk += w
                        m += 1
                    w *= DECAY
                    seen += 1
                    if seen == RING:
                        break
            beyond = 1.0  # the share of such jobs that runs longer
            order = np.argsort(value[first:m], kind="mergesort")  # of equals ends come first
            for j in range(m - first):
                at = first + order[j]
                w = weight[at]
                part = beyond * min(1.0, w / at_risk) if ended[at] == 1 and at_risk > 1e-12 else 0.0
                weight[at] = share * part
                beyond -= part
                at_risk -= w
            unknown += share * beyond
            left -= share
        value[m] = 0.0
        weight[m] = left + unknown
        raw = _quantiles(value[: m + 1], weight[: m + 1], levels)
        if runs:
            told[i] = _told(raw, uncalibrated, 0.0, shifted, walltime[i])
        else:
            more = tb.shift[entries[i, USER]] if entries[i, USER] >= 0 else 0.0
            told[i] = _told(raw, offset, shift + more, shifted, walltime[i])
    return told


@kernel
def learn(tb: Templates, keys: Ints, value: float, number: int) -> int:
    """Note an end of that logarithm in all templates of the job; returns how many of them are new."""
    new = 0
    for k in range(keys.shape[0]):
        if keys[k] == 0:
            continue
        entry = _enter(tb, keys[k], number)
        new += tb.learned[entry] == 0
        tb.ends[entry, tb.learned[entry] % RING] = value
        tb.learned[entry] += 1
        tb.used[entry] = number
    return new


@kernel
def move(tb: Templates, key: int, by: float, most: float, number: int) -> None:
    """Change the shift of a user, within ``most`` of 0."""
    entry = _enter(tb, key, number)
    tb.shift[entry] = min(max(tb.shift[entry] + by, -most), most)


@kernel
def copy_into(old: Templates, new: Templates) -> None:
    """Enter all templates into a larger, empty table, who was learned from latest last."""
    for i in np.argsort(old.used, kind="mergesort"):
        if old.keys[i] != 0:
            entry = _enter(new, old.keys[i], old.used[i])
            new.learned[entry] = old.learned[i]
            new.shift[entry] = old.shift[i]
            new.ends[entry] = old.ends[i]
