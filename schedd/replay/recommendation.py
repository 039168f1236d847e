"""Choice of a planning mode from replays of a site's own log: figures against EASY, a rule, and its reason.

The reference is EASY on the same jobs. The score of a mode is the geometric mean of four ratios to EASY: mean
wait, bounded slowdown, 99.9th percentile of the wait and longest wait. Several logs count equally.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import Any, Final

from schedd.engine import SITE_PUBLISH_HOLD, SITE_SLACK, EngineSettings
from schedd.policy.slack import Slack
from schedd.replay.driver import BACKFILL_POLICY, replay
from schedd.replay.failures import Outage
from schedd.replay.prepared import Prepared
from schedd.replay.result import ReplayResult
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY, Progress

REFERENCE: Final = "easy"  # the policy that the modes are compared with

MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "plan": {"backfill": "oldest", "search_every": 0},
    "shortest": {"backfill": "shortest", "search_every": 0},
    "search": {"backfill": "oldest", "search_every": EngineSettings().search_every},
}
"""Settings of ``[clusters.NAME]`` by mode: the plan with repair only, shortest-expected-job-first
backfilling, and periodic searches.
"""

_EQUAL: Final = 1.03  # scores within this factor of the best one count as equal
_TAIL_LIMIT: Final = 1.25  # a mode with a larger ratio of a tail is chosen only if all modes have one
_ENOUGH_JOBS: Final = 1_000  # with fewer jobs, the recommendation has a warning
_WAIT_FLOOR_S: Final = 60.0  # shorter waits count as this long: ratios of a few seconds are meaningless

ModeResults = Mapping[str, ReplayResult]  # results of one log by mode, including `REFERENCE`


@dataclass(frozen=True, slots=True)
class ModeRatios:
    """Ratios of one mode to EASY, as geometric means over the logs; ``cpu_s`` is a sum."""

    mean_wait: float
    slowdown: float
    p999_wait: float
    longest_wait: float
    cpu_s: float

    @property
    def score(self) -> float:
        """Geometric mean of the four ratios; less is better."""
        return _geometric_mean((self.mean_wait, self.slowdown, self.p999_wait, self.longest_wait))

    @property
    def worst_tail(self) -> float:
        """The larger ratio of the two tails."""
        return max(self.p999_wait, self.longest_wait)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended mode with its settings, the reason in sentences, and the ratios of all modes."""

    mode: str
    reason: str
    ratios: Mapping[str, ModeRatios]
    settings: Mapping[str, Any]  # settings of `[clusters.NAME]`

    def as_row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "mode": self.mode,
            "settings": dict(self.settings),
            "reason": self.reason,
            "scores": {mode: ratios.score for mode, ratios in self.ratios.items()},
        }


def replay_mode(
    prepared: Prepared,
    mode: str,
    *,
    settings: EngineSettings | None,
    slack: Slack | None,
    hold: int = SITE_PUBLISH_HOLD,
    searching: SearchSchedule,
    outages: Sequence[Outage] = (),
    expected_starts: bool = False,
    validate: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> ReplayResult:
    """Replay ``prepared`` in one of `MODES`, or under `REFERENCE`. Raises ReplayDefectError.

    ``settings`` are a site's, with its policy; the mode replaces their backfilling and searches. Without them
    ``slack`` and ``hold`` count, by default as for a new site.
    """
    policy = {REFERENCE: REFERENCE, "shortest": BACKFILL_POLICY}.get(mode, PLANNING_POLICY)
    if settings is None:
        own: dict[str, Any] = {"slack": slack or SITE_SLACK, "hold": hold}
    else:
        own = {"settings": settings.with_changes(**MODES.get(mode, {}))}
    return replay(
        prepared,
        policy,
        **own,
        searching=searching if mode == "search" else None,
        outages=outages,
        expected_starts=expected_starts,
        validate=validate,
        on_progress=on_progress,
    )


def mode_ratios(logs: Sequence[ModeResults]) -> dict[str, ModeRatios]:
    """Return the ratios of each mode to EASY over all ``logs``."""
    return {mode: _ratios([(of[mode], of[REFERENCE]) for of in logs]) for mode in MODES}


def _ratios(pairs: Sequence[tuple[ReplayResult, ReplayResult]]) -> ModeRatios:
    both = [(mode.metrics, easy.metrics) for mode, easy in pairs]

    def waits(name: str) -> float:
        return _geometric_mean(
            max(getattr(mode, name), _WAIT_FLOOR_S) / max(getattr(easy, name), _WAIT_FLOOR_S)
            for mode, easy in both
        )

    return ModeRatios(
        mean_wait=waits("avg_wait_s"),
        slowdown=_geometric_mean(
            mode.avg_bounded_slowdown_10s / easy.avg_bounded_slowdown_10s for mode, easy in both
        ),
        p999_wait=waits("p999_wait_s"),
        longest_wait=waits("max_wait_s"),
        cpu_s=sum(mode.cpu_s for mode, _ in pairs),
    )


def recommend_mode(
    logs: Sequence[ModeResults], search_every: int = EngineSettings().search_every
) -> Recommendation:
    """Return the mode to use by the results of one log or several; searches were ``search_every`` seconds
    apart.

    Modes with a tail of more than 1.25 times EASY's are excluded, unless all have one. Of the others, scores
    within 3 % of the best count as equal, and the mode with the least processor time is recommended.
    """
    ratios = mode_ratios(logs)
    safe = {mode for mode, of in ratios.items() if of.worst_tail <= _TAIL_LIMIT}
    among = safe or set(ratios)
    best = min(among, key=lambda mode: ratios[mode].score)
    equal = [mode for mode in among if ratios[mode].score <= _EQUAL * ratios[best].score]
    chosen = min(equal, key=lambda mode: ratios[mode].cpu_s)
    settings = {**MODES[chosen], **({"search_every": search_every} if chosen == "search" else {})}
    reasons = list(_reasons(chosen, best, ratios, safe))
    jobs = sum(one[REFERENCE].jobs for one in logs)
    if jobs < _ENOUGH_JOBS:
        counted = f"{jobs} job" if jobs == 1 else f"{jobs} jobs"
        reasons.append(
            f"{counted} are too few, since one job decides the tails: compare some thousand jobs of a "
            "loaded period."
        )
    return Recommendation(chosen, " ".join(reasons), ratios, settings)


def _reasons(chosen: str, best: str, ratios: Mapping[str, ModeRatios], safe: set[str]) -> Iterator[str]:
    of = ratios[chosen]
    yield (
        f"{chosen}: {_change(of.mean_wait)} mean wait, {_change(of.slowdown)} bounded slowdown, "
        f"{_change(of.p999_wait)} 99.9th percentile of the wait and {_change(of.longest_wait)} longest wait "
        "against EASY."
    )
    if chosen != best:
        ratio = ratios[best].cpu_s / of.cpu_s if of.cpu_s > 0 else 1.0
        yield (
            f"{best} has nearly the same score ({ratios[best].score:.2f} against {of.score:.2f}) for "
            f"{ratio:.1f} times the processor time."
        )
    if not safe:
        yield f"Each mode has a tail of more than {_TAIL_LIMIT} times EASY's."
    for mode in (mode for mode in ratios if safe and mode not in safe):
        if ratios[mode].score < of.score:
            yield (
                f"{mode} has a better score ({ratios[mode].score:.2f} against {of.score:.2f}), but a tail "
                f"of {ratios[mode].worst_tail:.2f} times EASY's."
            )
        else:
            yield f"{mode} is left out for a tail of {ratios[mode].worst_tail:.2f} times EASY's."
    others = [mode for mode in ratios if mode not in (chosen, best) and (mode in safe or not safe)]
    if others:
        scores = ", ".join(f"{mode} {ratios[mode].score:.2f}" for mode in others)
        yield f"Scores: {chosen} {of.score:.2f}, {scores} (EASY 1)."


def _change(ratio: float) -> str:
    percent = round(100 * (ratio - 1))
    return "the same" if not percent else f"{abs(percent)} % {'more' if percent > 0 else 'less'}"


def _geometric_mean(ratios: Iterator[float] | Sequence[float]) -> float:
    return exp(fmean(log(ratio) for ratio in ratios))
