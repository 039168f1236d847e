"""Draw of a node, learned from its board: a line of watts over busy cores.

The line is fitted by least squares with exponentially decaying weights. Its intercept is the idle draw, its
slope the draw of a busy core.
"""

from dataclasses import dataclass, replace
from typing import Final

from schedd.policy.economy import Draw

HALF_LIFE: Final = 7 * 86_400  # seconds after which the weight of a reading has halved
_LEAST: Final = 4.9  # minimum total weight of readings
_VARIED: Final = 1.0  # minimum sum of squared deviations of busy cores for a slope
_MOVED: Final = 0.05  # the draw in force changes if its error exceeds this share of the node's maximum draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Readings of one node: the ``last`` one in watts and its time ``as_of`` (seconds since the epoch); sums
    over readings while it was on: the number of readings (``n``), busy ``cores``, ``watts`` and their
    products; the mean while it was ``off``; and the ``draw`` in force.
    """

    as_of: int
    last: float
    n: float = 0.0
    cores: float = 0.0
    watts: float = 0.0
    cores_cores: float = 0.0
    cores_watts: float = 0.0
    off: float | None = None
    draw: Draw | None = None

    def read(self, watts: float, now: int, cores: int, gpu_watts: float) -> "Meter":
        """Return the meter after a reading with ``cores`` busy; ``gpu_watts`` is the gpus' part."""
        left = 0.5 ** (max(0, now - self.as_of) / HALF_LIFE)
        own = max(0.0, watts - gpu_watts)
        return replace(
            self,
            as_of=max(now, self.as_of),
            last=watts,
            n=self.n * left + 1,
            cores=self.cores * left + cores,
            watts=self.watts * left + own,
            cores_cores=self.cores_cores * left + cores * cores,
            cores_watts=self.cores_watts * left + cores * own,
        )

    def read_off(self, watts: float, now: int) -> "Meter":
        """Return the meter after a reading of a node that was off."""
        off = watts if self.off is None else self.off + (watts - self.off) / 4
        return replace(self, as_of=max(now, self.as_of), last=watts, off=off)

    def measured_draw(self, site: Draw | None) -> Draw | None:
        """Return the measured draw; ``site``, the configured draw, replaces missing values. None without
        sufficient data.

        If the number of busy cores never varied, the draw of a core is taken from ``site``.
        """
        if self.n < _LEAST:
            return None
        set_off, gpu = (site.off, site.gpu) if site is not None else (0.0, 0.0)
        varied = self.cores_cores - self.cores**2 / self.n
        if varied >= _VARIED:
            core = max(0.0, (self.cores_watts - self.cores * self.watts / self.n) / varied)
        elif site is not None:
            core = site.core
        else:
            return None
        idle = max(0.0, (self.watts - core * self.cores) / self.n)
        off = self.off if self.off is not None else set_off
        return Draw.model_construct(  # not within the bounds of settings
            idle=round(idle, 1), core=round(core, 2), gpu=gpu, off=round(min(off, idle), 1)
        )

    def settled(self, site: Draw | None, cpus: int) -> "Meter":
        """Return a meter with the measured draw in force for ``cpus`` cores; the same one if unchanged."""
        found = self.measured_draw(site)
        if found is None:
            return self
        now = self.draw if self.draw is not None else site
        if now is not None:
            most = max(found.idle + cpus * found.core, 1.0)
            apart = max(
                abs(found.idle - now.idle),
                cpus * abs(found.core - now.core),
                abs(found.off - now.off),
                abs(found.gpu - now.gpu),
            )
            if apart <= _MOVED * most:
                return self
        return replace(self, draw=found)
