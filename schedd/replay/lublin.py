"""Synthetic workload by the model of Lublin and Feitelson: sizes, run times and arrivals of rigid
batch jobs.

U. Lublin, D. Feitelson, *The Workload on Parallel Supercomputers: Modeling the Characteristics of Rigid
Jobs*, J. Parallel and Distributed Computing 63(11), 2003. The constants are the ones published by the
authors for batch jobs with their program ``lublin99``. The model has no users, limits or memory; users
and limits are added here, and `generate` says how.
"""

from math import lgamma, log, log2
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schedd.replay.workload import Trace, TraceJob

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Sizes: a serial job, else 2 to a two-stage uniform power that is rounded for "powers of two".
_SERIAL: Final = 0.2927
_POWER_OF_TWO: Final = 0.6686
_LOG_LOW: Final = 1.2
_LOG_MEDIUM_BELOW_HIGH: Final = 2.0  # published as 5 of 7, to be scaled with the machine's size
_FIRST_STAGE: Final = 0.875

# Run times: the logarithm is one of two gammas (shape, scale), the first with p = slope * size + constant.
_SHORT: Final = (6.57, 0.823)
_LONG: Final = (639.1, 0.0156)
_P_SLOPE: Final = -0.003
_P_CONSTANT: Final = 0.6986
_LOG_RUN_MAX: Final = 12.0

# Arrivals: the logarithm of a gap is a gamma; a daily cycle of half hours, a gamma too, stretches the gaps.
_GAP: Final = (6.0415 * 1.0519, 0.8531)
_LOG_GAP_MAX: Final = 13.0
_CYCLE: Final = (6.1271, 5.2740)
_BUCKETS: Final = 48
_BUCKET_S: Final = 1800
_DAY_BEGINS: Final = 11

_ROUND_LIMITS_S: Final = np.array(
    [300, 600, 900, 1200, 1800, *(3600 * h for h in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48))], dtype=np.int64
)


def generate(n: int, max_procs: int, seed: int, *, load: float | None = None, users: int = 40) -> Trace:
    """Return `n` jobs for a machine of `max_procs` processors; equal arguments give equal traces.

    Time 0 is midnight. With `load`, arrivals are stretched evenly until the work offered from time 0 to the
    last arrival is that share of the machine (the daily cycle then no longer lasts a day).

    Limits: the accuracy run / limit of a job is uniform on (0, 1], as Mu'alem and Feitelson (2001) found over
    most of its range; the limit is then rounded up to one of 16 round times from 5 minutes to 48 hours, as
    users do. Users: user k of `users` submits in proportion to 1 / k. Raises ValueError for arguments below 1
    or a load of 0 or less.
    """
    if min(n, max_procs, users) < 1 or (load is not None and not load > 0):
        raise ValueError(f"n {n}, max_procs {max_procs}, users {users}, load {load}: all must be above 0")
    rng = np.random.default_rng(seed)
    procs = _sizes(rng, n, max_procs)
    run = _run_times(rng, procs)
    submit = _arrivals(rng, n)
    if load is not None:
        wanted_span = float((procs * run).sum()) / (load * max_procs)
        submit *= wanted_span / submit[-1]
    limit = _limits(rng, run)
    shares = 1.0 / np.arange(1, users + 1)
    user = rng.choice(users, size=n, p=shares / shares.sum()) + 1
    return Trace(
        name=f"lublin-{n}-{max_procs}-{seed}",
        jobs=tuple(
            TraceJob(
                id=i + 1,
                submit=int(submit[i]),
                run=int(run[i]),
                procs=int(procs[i]),
                estimate=int(limit[i]),
                user=f"user{user[i]}",
                group=f"group{user[i] % 5}",
                queue="batch",
                status=1,
            )
            for i in range(n)
        ),
        max_procs=max_procs,
    )


def _sizes(rng: np.random.Generator, n: int, max_procs: int) -> Ints:
    high = log2(max_procs)
    low = min(_LOG_LOW, high)
    medium = max(low, high - _LOG_MEDIUM_BELOW_HIGH)
    kind = rng.random(n)
    first = rng.random(n) < _FIRST_STAGE
    power = np.where(first, rng.uniform(low, medium, n), rng.uniform(medium, high, n))
    # Rounding must not leave the machine: the largest power of two on it is the last.
    rounded = np.minimum(np.floor(power + 0.5), np.floor(high))
    power = np.where(kind <= _SERIAL + _POWER_OF_TWO, rounded, power)
    sizes = np.floor(np.exp2(power) + 0.5).astype(np.int64)
    sizes[kind <= _SERIAL] = 1
    return np.clip(sizes, 1, max_procs)


def _run_times(rng: np.random.Generator, procs: Ints) -> Ints:
    p = np.clip(_P_SLOPE * procs + _P_CONSTANT, 0.0, 1.0)
    logs = np.full(procs.size, np.inf)
    while (again := np.flatnonzero(logs > _LOG_RUN_MAX)).size:
        short = rng.random(again.size) <= p[again]
        logs[again] = np.where(short, rng.gamma(*_SHORT, again.size), rng.gamma(*_LONG, again.size))
    runs: Ints = np.maximum(np.exp(logs).astype(np.int64), 1)
    return runs


def _arrivals(rng: np.random.Generator, n: int) -> Floats:
    """Return arrival times in seconds: gaps are work of a cycle with a pace that varies over the day."""
    logs = np.full(n, np.inf)
    while (again := np.flatnonzero(logs > _LOG_GAP_MAX)).size:
        logs[again] = rng.gamma(*_GAP, again.size)
    return _moments(np.cumsum(np.exp(logs)) / _BUCKET_S)


def _moments(spent: Floats) -> Floats:
    """Return the time in seconds when the cycle has done this work, in mean half hours since midnight."""
    pace = np.concatenate(([0.0], np.cumsum(_daily_weights())))
    days, rest = np.divmod(spent, pace[-1])
    moments: Floats = (days * _BUCKETS + np.interp(rest, pace, np.arange(_BUCKETS + 1.0))) * _BUCKET_S
    return moments


def _daily_weights() -> Floats:
    """Share of each half hour in a day's arrivals, from midnight, as a multiple of the mean share.

    Half hour b is the mass of the cycle's gamma on [b + 1/2, b + 3/2), the day running from half hour
    `_DAY_BEGINS` - 1 into the next day.
    """
    shape, scale = _CYCLE
    nodes, weights = np.polynomial.legendre.leggauss(8)
    weights_at = np.empty(_BUCKETS)
    for centre in range(_DAY_BEGINS, _DAY_BEGINS + _BUCKETS):
        x = centre + nodes / 2
        density = np.exp((shape - 1) * np.log(x) - x / scale - lgamma(shape) - shape * log(scale))
        weights_at[(centre - 1) % _BUCKETS] = float((weights * density).sum()) / 2
    weights_at /= weights_at.mean()
    return weights_at


def _limits(rng: np.random.Generator, run: Ints) -> Ints:
    wanted = run / (1.0 - rng.random(run.size))
    at = np.searchsorted(_ROUND_LIMITS_S, np.minimum(wanted, _ROUND_LIMITS_S[-1]))
    limits: Ints = _ROUND_LIMITS_S[at]
    return limits
