"""Facts about jobs, carried over a rebuild of the plan until the server lists each job again."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

from schedd.engine.facts.records import Breach, Cause, Risk
from schedd.model import FOREVER, Request
from schedd.plan.schema import FieldRule
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedJob:
    """Facts about one job that the server does not know. Times are seconds since the epoch, -1: none.

    ``planned`` is the start in the plan before the rebuild; until ``open_until`` a run decision may still be
    carried out. ``owner``, ``submitted``, ``queue``, ``size`` (see ``request_size``) and ``shared`` (amounts
    of the resources of the whole cluster) identify the job; empty ones are not compared.
    """

    promised: int = FOREVER
    eligible_since: int = -1
    weak: bool = False
    planned: int = -1
    open_until: int = -1
    published_start: int = -1
    published_at: int = 0
    started: int = -1
    suspended_since: int = -1
    suspended_s: int = 0
    quarantine: str = ""
    returns: int = 0
    refusal: str = ""
    breaches: tuple[Breach, ...] = ()
    risk: Risk | None = None
    owner: str = ""
    submitted: int = -1
    queue: str = ""
    size: tuple[int, ...] = ()
    shared: tuple[tuple[str, int], ...] = ()

    def is_same_job(self, owner: str, submitted: int) -> bool:
        """Return whether the carried job is this one, not an earlier job with the same id."""
        return self.owner in ("", owner) and self.submitted in (-1, submitted)

    def fits(self, queue: str, size: tuple[int, ...], shared: Mapping[str, int]) -> bool:
        """Whether the job still asks for no more than its promise was made for, in the same queue."""
        if self.queue not in ("", queue) or any(shared.get(name, 0) > most for name, most in self.shared):
            return False
        return not self.size or (
            len(size) == len(self.size) and all(a <= b for a, b in zip(size, self.size, strict=True))
        )


def request_size(request: Request | None, walltime: int) -> tuple[int, ...]:
    """Walltime, chunks, CPUs, GPUs and memory of a request in all; empty where it is not understood."""
    if request is None:
        return ()
    chunks = request.chunks
    return (
        walltime,
        sum(one.count for one in chunks),
        sum(one.count * one.cpus for one in chunks),
        sum(one.count * one.gpus for one in chunks),
        sum(one.count * one.mem for one in chunks),
    )


_DEFAULTS: Final[Mapping[str, Any]] = {one.name: one.default for one in fields(CarriedJob)}
_read_fields: Final = attrgetter(*_DEFAULTS)  # all jobs are saved with each checkpoint


def save_carried_job(kept: CarriedJob) -> dict[str, Any]:
    """Return the fields as plain values, without defaults."""
    values = {
        name: value
        for (name, default), value in zip(_DEFAULTS.items(), _read_fields(kept), strict=True)
        if value != default
    }
    if kept.breaches:
        values["breaches"] = [[b.time, b.event, b.cause.value, b.promised, b.planned] for b in kept.breaches]
    if kept.risk is not None:
        values["risk"] = [kept.risk.time, kept.risk.event, kept.risk.cause.value, kept.risk.delay]
    return values


def load_carried_job(saved: Any) -> CarriedJob:
    """Return the job that ``save_carried_job`` saved, unknown fields aside. Raises TypeError, ValueError."""
    values = {name: value for name, value in saved.items() if name in _DEFAULTS}
    values["weak"] = bool(values.get("weak", False))
    values["size"] = tuple(values.get("size", ()))
    values["shared"] = tuple((name, amount) for name, amount in values.get("shared", ()))
    values["breaches"] = tuple(
        Breach(time, event, Cause(cause), promised, planned)
        for time, event, cause, promised, planned in values.get("breaches", ())
    )
    if values.get("risk") is not None:
        time, event, cause, *delay = values["risk"]
        values["risk"] = Risk(time, event, Cause(cause), *delay)
    return CarriedJob(**values)


CARRIED_JOBS: Final = FieldRule(
    dict,
    lambda value: {name: save_carried_job(one) for name, one in value.items()},
    lambda saved: {name: load_carried_job(one) for name, one in saved.items()},
)
"""How a state keeps them."""
