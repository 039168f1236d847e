"""A slow and plain reference for run-time prediction: dictionaries of lists, sorted each time."""

import math
from collections import defaultdict

import numpy as np

from schedd.predict import LEVELS, P90_INDEX, JobFeatures

_DECAY, _DOUBT, _DOUBT_RUNNING = 0.9, 2.0, 5.0
_MOST_RUNNING, _ENDS_PER_RUNNING = 64, 4


class RunTimeReference:
    """The same as `RunTimes`, without a limit on templates."""

    def __init__(self) -> None:
        self.ends: dict[tuple[object, ...], list[float]] = defaultdict(list)
        self.errors: list[list[float]] = []
        self.offset = [0.0] * len(LEVELS)
        self.shift = 0.0
        self.shift_of: dict[str, float] = defaultdict(float)

    @staticmethod
    def _templates(ask: JobFeatures) -> list[tuple[object, ...]]:
        named = [("name", ask.user, ask.walltime, ask.procs, ask.name)] if ask.name else []
        return [
            *named,
            ("shape", ask.user, ask.walltime, ask.procs),
            ("walltime", ask.user, ask.walltime),
            ("user", ask.user),
            ("all", ask.walltime),
            ("all",),
        ]

    def predict(self, ask: JobFeatures) -> tuple[list[float], list[int]]:
        """Return the quantiles as logarithms of shares of the walltime, and calibrated in seconds."""
        atoms: list[tuple[float, float]] = []
        left = 1.0
        for template in self._templates(ask):
            latest = self.ends[template][-32:][::-1]
            weights = [_DECAY**age for age in range(len(latest))]
            share = left * sum(weights) / (sum(weights) + _DOUBT)
            atoms += [(v, share * w / sum(weights)) for v, w in zip(latest, weights, strict=True)]
            left -= share
        return self._quantiles(ask, [*atoms, (0.0, left)])

    def predict_open(
        self, ask: JobFeatures, running: list[tuple[JobFeatures, int]], ran: int | None = None
    ) -> list[int]:
        """Return quantiles in seconds for a job that has run ``ran`` seconds.

        ``running``: the other running jobs, newest first.
        """
        atoms: list[tuple[float, float]] = []
        left, unknown = 1.0, 0.0
        n_running = len(running) + (ran is not None)
        past = -math.inf if ran is None else math.log(max(ran, 1) / ask.walltime)
        doubt = _DOUBT if ran is None else _DOUBT_RUNNING
        for template in self._templates(ask):
            latest = [float(np.float32(one)) for one in self.ends[template][-32:][::-1]]
            ended = [(value, 0, _DECAY**age) for age, value in enumerate(latest) if value > past]
            if not ended:
                continue
            alike = [
                math.log(max(ran, 1) / other.walltime)
                for other, ran in running
                if template in self._templates(other)
            ]
            step = max(1, math.ceil(len(alike) / _MOST_RUNNING))
            mean = sum(_DECAY**age for age in range(len(latest))) / len(self.ends[template])
            decayed = [_DECAY**i if template[0] != "all" else 0.0 for i in range(len(alike))]
            going = [
                (value, 1, max(decayed[i], step * mean))
                for i, value in enumerate(alike[::step])
                if value > past
            ]
            lives = ended + going
            share = left * (total := sum(weight for *_, weight in ended)) / (total + doubt)
            beyond = 1.0
            for k, (value, still_runs, weight) in enumerate(order := sorted(lives)):
                if not still_runs:
                    part = beyond * weight / sum(one[2] for one in order[k:])
                    atoms.append((value, share * part))
                    beyond -= part
            unknown += share * beyond
            left -= share
        known = min(1.0, len(self.errors) / max(1, _ENDS_PER_RUNNING * n_running))
        atoms.append((0.0, left + unknown))
        return self._quantiles(ask, atoms, known if ran is None else None)[1]

    def _quantiles(
        self, ask: JobFeatures, atoms: list[tuple[float, float]], calibrated: float | None = 1.0
    ) -> tuple[list[float], list[int]]:
        atoms.sort()
        raw = []
        for level in LEVELS.tolist():
            total = 0.0
            for value, weight in atoms:
                total += weight
                if total >= level - 1e-9:
                    raw.append(value)
                    break
            else:
                raw.append(0.0)
        seconds_by_level, least = [], 1
        for i, value in enumerate(raw):
            shift = self.shift + self.shift_of[ask.user] if i >= P90_INDEX - 1 else 0.0
            by = calibrated * self.offset[i] + shift if calibrated is not None else 0.0
            seconds = math.exp(min(value + by, 0.0)) * ask.walltime
            least = max(least, min(math.ceil(seconds - 1e-6), ask.walltime))
            seconds_by_level.append(least)
        return raw, seconds_by_level

    def record_outcome(
        self, ask: JobFeatures, seconds_by_level: list[int], raw: list[float], run: int
    ) -> None:
        """Learn from the end of a job and its prediction."""
        run = min(max(run, 1), ask.walltime)
        value = math.log(run / ask.walltime)
        for template in self._templates(ask):
            self.ends[template].append(value)
        self.errors.append([value - one for one in raw])
        if len(self.errors) % 100 == 0:
            latest = self.errors[-1000:]
            for i, level in enumerate(LEVELS.tolist()):
                errors = sorted(error[i] for error in latest)
                at = (len(errors) - 1) * level
                low = int(at)
                self.offset[i] = errors[low] + (at - low) * (errors[low + 1] - errors[low])
        miss = (1.0 if run > seconds_by_level[P90_INDEX] else 0.0) - 0.1
        self.shift += 0.01 * miss
        self.shift_of[ask.user] = min(max(self.shift_of[ask.user] + 0.3 * miss, -6.0), 6.0)
