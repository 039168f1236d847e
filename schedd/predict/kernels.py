"""Kernels of the run-time prediction: a set-associative table of templates, and weighted quantiles of similar
jobs.

A template holds the latest ends of jobs that agree in some of user, name, walltime and processors. Its key
selects a bucket of ``BUCKET_SIZE`` entries; in a full bucket the least recently updated template is evicted.
"""

from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.jit import inner, kernel, maker
from schedd.plan.kernels.layout import Ints, Table
from schedd.predict.predictions import Floats

Singles = npt.NDArray[np.float32]
SingleTable = Annotated[Singles, 2]

BUCKET_SIZE: Final = 8
ENDS_PER_TEMPLATE: Final = 32  # latest ends kept per template
END_DECAY: Final = 0.9  # weight of an end relative to the next later one
DOUBT_WAITING: Final = 2.0
"""A template of weight n gets the share n / (n + DOUBT_WAITING) of the weight left by more specific ones."""
DOUBT_RUNNING: Final = 5.0
"""Like DOUBT_WAITING, for a running job; n is then the weight of the ends beyond its elapsed time."""
RUNNING_PER_TEMPLATE: Final = 64
"""Running jobs that enter a template at most; of more, every second, third ... one enters for all."""
TEMPLATES_PER_JOB: Final = 6  # number of templates of a job, the most specific first
USER_TEMPLATE: Final = 3  # index of the template of the user


class Templates(NamedTuple):
    """Table of templates; N entries, a power of two."""

    keys: Ints  # (N,); 0: free
    learned: Ints  # (N,) number of ends learned
    used: Ints  # (N,) serial number of the latest end
    shift: Floats  # (N,) logarithmic shift of the high quantiles; only in user templates
    ends: SingleTable
    """(N, ENDS_PER_TEMPLATE) log(run time / walltime); end i is at i modulo ENDS_PER_TEMPLATE."""


@inner
def find(tb: Templates, key: int) -> int:
    """Return the entry of a template, or -1."""
    first = (key & (tb.keys.shape[0] // BUCKET_SIZE - 1)) * BUCKET_SIZE
    for i in range(first, first + BUCKET_SIZE):
        if tb.keys[i] == key:
            return i
    return -1


@inner
def _enter(tb: Templates, key: int, number: int) -> int:
    """Return the entry of a template; create it if it is missing."""
    found = find(tb, key)
    if found >= 0:
        return found
    first = (key & (tb.keys.shape[0] // BUCKET_SIZE - 1)) * BUCKET_SIZE
    oldest = int(first)
    for i in range(first, first + BUCKET_SIZE):
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
def predict_submitted(
    tb: Templates, keys: Ints, levels: Floats, offset: Floats, shift: float, shifted: int, walltime: int
) -> tuple[Floats, Ints]:
    """Return quantiles at ``levels`` of a run time: log(run time / walltime) uncalibrated, and calibrated
    seconds.

    ``offset`` calibrates each level; levels from index ``shifted`` on are also moved by ``shift`` and the
    user's shift. The weight left by all templates is assigned to the walltime.
    """
    value = np.empty(TEMPLATES_PER_JOB * ENDS_PER_TEMPLATE + 1)
    weight = np.empty(TEMPLATES_PER_JOB * ENDS_PER_TEMPLATE + 1)
    left = 1.0
    m = 0
    for k in range(TEMPLATES_PER_JOB):
        entry = find(tb, keys[k]) if keys[k] != 0 else -1
        if entry < 0 or tb.learned[entry] == 0:
            continue
        count = tb.learned[entry]
        n = min(count, ENDS_PER_TEMPLATE)
        total = (1.0 - END_DECAY**n) / (1.0 - END_DECAY)
        share = left * total / (total + DOUBT_WAITING)
        w = share / total
        for j in range(n):
            value[m] = tb.ends[entry, (count - 1 - j) % ENDS_PER_TEMPLATE]
            weight[m] = w
            w *= END_DECAY
            m += 1
        left -= share
    value[m] = 0.0
    weight[m] = left
    raw = _quantiles(value[: m + 1], weight[: m + 1], levels)
    user = find(tb, keys[USER_TEMPLATE])
    if user >= 0:
        shift += tb.shift[user]
    return raw, _calibrated_seconds(raw, offset, shift, shifted, walltime)


@maker
def _quantiles(value: Floats, weight: Floats, levels: Floats) -> Floats:
    """Return the weighted quantiles of ``value`` (total weight 1); 0, the walltime, for a level never
    reached.
    """
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
def _calibrated_seconds(raw: Floats, offset: Floats, shift: float, shifted: int, walltime: int) -> Ints:
    """Return calibrated quantiles in seconds, ascending, in 1..walltime."""
    seconds_at = np.empty(raw.shape[0], np.int64)
    least = 1
    for i in range(raw.shape[0]):
        log = raw[i] + offset[i] + (shift if i >= shifted else 0.0)
        # 1e-6 keeps a value equal to the walltime from being rounded up.
        seconds = walltime if log >= 0.0 else int(np.ceil(np.exp(log) * walltime - 1e-6))
        least = max(least, min(seconds, walltime))
        seconds_at[i] = least
    return seconds_at


@kernel
def entries_of(tb: Templates, keys: Table) -> Ints:
    """Return the entries of ``keys``, (jobs, TEMPLATES_PER_JOB), flattened; -1: no entry."""
    found = np.empty(keys.shape[0] * TEMPLATES_PER_JOB, np.int64)
    for i in range(keys.shape[0]):
        for k in range(TEMPLATES_PER_JOB):
            found[i * TEMPLATES_PER_JOB + k] = find(tb, keys[i, k]) if keys[i, k] != 0 else -1
    return found


@inner
def _running_steps(running: Table, k: int, key: int, own: int, count: int) -> tuple[int, int]:
    """Return for template ``k`` of ``count`` ends: every which of its running jobs enters, and how many are
    looked at.
    """
    if count > ENDS_PER_TEMPLATE * RUNNING_PER_TEMPLATE:
        return 1, ENDS_PER_TEMPLATE if k <= USER_TEMPLATE else 0
    found = 0
    for r in range(running.shape[0]):
        found += r != own and running[r, k] == key
    step = (found + RUNNING_PER_TEMPLATE - 1) // RUNNING_PER_TEMPLATE
    return max(step, 1), found


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
    """Return quantiles in seconds, (jobs, levels), of open jobs; ``entries``: their templates, (jobs,
    TEMPLATES_PER_JOB).

    Running jobs enter the templates as censored observations (Kaplan and Meier 1958). Ended jobs alone
    would be a biased sample of short ones, most of all at first: the first jobs of a full machine to end are
    its shortest ones. A running job therefore weighs at least as much as an average end of the template.
    A running job is predicted from the observations beyond its elapsed time, without calibration: the
    calibration of all jobs does not hold for the tail. ``running``: keys of the running jobs, latest start
    first; ``ran``: their log(elapsed / walltime); ``own``: index of the job in ``running``, or -1.
    """
    quantiles = np.empty((keys.shape[0], levels.shape[0]), np.int64)
    size = TEMPLATES_PER_JOB * (ENDS_PER_TEMPLATE + RUNNING_PER_TEMPLATE) + 1
    value, weight = np.empty(size), np.empty(size)
    ended = np.empty(size, np.int64)
    uncalibrated = np.zeros(offset.shape[0])
    for i in range(keys.shape[0]):
        runs = own[i] >= 0
        past = ran[own[i]] if runs else -np.inf
        doubt = DOUBT_RUNNING if runs else DOUBT_WAITING
        left = 1.0
        unknown = 0.0  # weight of running jobs longer than every ended one
        m = 0
        for k in range(TEMPLATES_PER_JOB):
            entry = entries[i, k]
            if entry < 0 or tb.learned[entry] == 0:
                continue
            first = m
            count = tb.learned[entry]
            n = min(count, ENDS_PER_TEMPLATE)
            total = 0.0
            w = 1.0
            for j in range(n):
                end = tb.ends[entry, (count - 1 - j) % ENDS_PER_TEMPLATE]
                if end > past:
                    value[m] = end
                    weight[m] = w
                    ended[m] = 1
                    total += w
                    m += 1
                w *= END_DECAY
            if total == 0.0:
                continue
            share = left * total / (total + doubt)
            at_risk = total
            least = (1.0 - END_DECAY**n) / (1.0 - END_DECAY) / count  # mean weight of all ends
            step, most = _running_steps(running, k, keys[i, k], own[i], count)
            w = 1.0 if k <= USER_TEMPLATE else 0.0
            seen = 0
            for r in range(running.shape[0] if most > 0 else 0):
                if r != own[i] and running[r, k] == keys[i, k]:
                    if seen % step == 0:
                        if ran[r] > past:
                            value[m] = ran[r]
                            weight[m] = max(w, step * least)
                            ended[m] = 0
                            at_risk += weight[m]
                            m += 1
                        w *= END_DECAY
                    seen += 1
                    if seen >= most:
                        break
            beyond = 1.0  # survival function
            order = np.argsort(value[first:m], kind="mergesort")  # at ties, ends come before running jobs
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
            quantiles[i] = _calibrated_seconds(raw, uncalibrated, 0.0, shifted, walltime[i])
        else:
            more = tb.shift[entries[i, USER_TEMPLATE]] if entries[i, USER_TEMPLATE] >= 0 else 0.0
            quantiles[i] = _calibrated_seconds(raw, offset, shift + more, shifted, walltime[i])
    return quantiles


@kernel
def learn_end(tb: Templates, keys: Ints, value: float, number: int) -> int:
    """Add an end of value log(run time / walltime) to all templates of a job; return the number of new
    templates.
    """
    new = 0
    for k in range(keys.shape[0]):
        if keys[k] == 0:
            continue
        entry = _enter(tb, keys[k], number)
        new += tb.learned[entry] == 0
        tb.ends[entry, tb.learned[entry] % ENDS_PER_TEMPLATE] = value
        tb.learned[entry] += 1
        tb.used[entry] = number
    return new


@kernel
def shift_user(tb: Templates, key: int, by: float, most: float, number: int) -> None:
    """Change the shift of a user by ``by``, bounded to ±``most``."""
    entry = _enter(tb, key, number)
    tb.shift[entry] = min(max(tb.shift[entry] + by, -most), most)


@kernel
def copy_into(old: Templates, new: Templates) -> None:
    """Copy all templates into a larger, empty table, in order of their last update."""
    for i in np.argsort(old.used, kind="mergesort"):
        if old.keys[i] != 0:
            entry = _enter(new, old.keys[i], old.used[i])
            new.learned[entry] = old.learned[i]
            new.shift[entry] = old.shift[i]
            new.ends[entry] = old.ends[i]
