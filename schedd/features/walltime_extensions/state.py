"""State of walltime extensions: the runs to examine, and the actions for each run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.plan.schema import NAMES, NUMBER, SHARED, FieldRule, declared


@dataclass(frozen=True, slots=True)
class RunExtension:
    """Extensions of the run of a job that began at ``started``. Times are seconds since the epoch (UTC).

    ``times`` extensions have added ``added`` seconds, the last at ``last``. While the server does not show
    it, ``walltime`` (s) is the ordered one in place of ``before``; 0: none. ``decision`` is open. ``refusal``
    says why the run was not extended; it is examined again from ``again`` on, unless that is ``final``.
    """

    job: str
    started: int
    times: int = 0
    added: int = 0
    last: int = -1
    before: int = 0
    walltime: int = 0
    decision: str = ""
    refusal: str = ""
    again: int = 0
    final: bool = False


_RUNS: Final = FieldRule(
    dict,
    lambda runs: list(runs.values()),
    lambda saved: {one["job"]: RunExtension(**one) for one in saved},
    each=asdict,
    kind=RunExtension,
)


@dataclass(slots=True)
class WalltimeExtensions:
    """The component's part of the engine's state."""

    due: dict[str, int] = declared(NAMES, make=dict)
    """By running job that may be extended: when it is examined."""
    first: int = declared(NUMBER, default=FOREVER)  # no job is examined before
    runs: dict[str, RunExtension] = declared(_RUNS, make=dict, carried=True, lasting=True)  # by job
    extended: int = declared(NUMBER, default=0, carried=True, lasting=True)
    """Number of extensions since the first start of the engine."""
    refused: int = declared(NUMBER, default=0, carried=True, lasting=True)  # by the server or the adapter
    selects: bool = declared(SHARED, default=False, carried=True)
    """Whether the site's settings let any job be extended."""


@dataclass(frozen=True, slots=True)
class PublishedExtensions:
    """Extensions and refusals: the present runs by job, and how many there were."""

    runs: Mapping[str, RunExtension] = field(default_factory=dict)
    extended: int = 0
    refused: int = 0


_NONE: Final = PublishedExtensions()


def extensions_state(state: EngineState) -> WalltimeExtensions:
    """The component's part of the engine's state."""
    found: WalltimeExtensions = state.parts[WalltimeExtensions]  # no call: arrivals ask often
    return found


def published_extensions(state: EngineState) -> PublishedExtensions:
    """Return a copy for other threads."""
    part = extensions_state(state)
    if not (part.runs or part.extended or part.refused):
        return _NONE
    return PublishedExtensions(dict(part.runs), part.extended, part.refused)


def shift_extensions(part: WalltimeExtensions, now: int, _: int) -> None:
    """Let no past extension be in the future when the clock was set back."""
    part.runs = {
        job: replace(one, last=min(one.last, now), again=min(one.again, now))
        for job, one in part.runs.items()
    }
