"""Searches at the same time, in rounds: each round begins from the best plan so far."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from schedd.optimize.search import Improvement, PlanSearch
from schedd.optimize.search_report import SearchEndReason
from schedd.optimize.settings import SearchSettings

RunTogether = Callable[[Sequence[Callable[[], None]]], object]
"""Makes all calls, at the same time or one after another, and returns after the last one."""

_MAX_ROUNDS: Final = 10  # at the end of a round, all searches go on from the best plan

_MIN_ROUND_MOVES: Final = 200  # fewer moves of a search are not divided into rounds

_LIFTED_FACTORS: Final = (1, 4, 0.5, 2)
"""Size of the moves of each search, relative to ``SearchSettings.lifted``: other moves find other plans."""


def run_sequentially(calls: Sequence[Callable[[], None]]) -> None:
    """Make the calls one after another: a ``RunTogether`` without threads."""
    for call in calls:
        call()


class ParallelSearch:
    """Searches at the same time on forks of one plan, each in a thread if ``run_together`` has threads.

    The first search has the settings as given, and tries the whole orders; the others differ in their seed
    and in the size of their moves. After each of up to ten rounds all go on from the plan of the lowest cost
    (of equal ones, the first search's). Without a time limit the result depends on the plan, the seed
    and the number of searches only, not on threads.
    """

    def __init__(self, first: PlanSearch, run_together: RunTogether) -> None:
        """``first``: a search that has not begun, with the settings of all."""
        settings = self._settings = first.settings
        self._best = first
        self._run_together = run_together
        self._running: tuple[PlanSearch, ...] = ()
        moves = settings.moves
        self._rounds = _MAX_ROUNDS if moves is None else max(1, min(_MAX_ROUNDS, moves // _MIN_ROUND_MOVES))
        self._stopped = False
        self._tried = self._accepted = self._too_late = self._pulled_left = 0
        self._elapsed = 0.0
        self._why = SearchEndReason.STOPPED

    def stop(self) -> None:
        """Stop all searches; callable from any thread. The best plan so far is kept."""
        self._stopped = True
        for search in self._running:
            search.stop()

    def run(self) -> Improvement:
        """Search and return the improvement; call once."""
        self.search()
        return self.improvement()

    def search(self) -> None:
        """Search; call once."""
        begin = perf_counter()
        for number in range(self._rounds):
            if self._stopped or not self._search_round(number, begin):
                break
        self._running = ()
        self._elapsed = perf_counter() - begin

    def improvement(self) -> Improvement:
        """Return the result of the finished search; takes some milliseconds."""
        found = self._best.improvement()
        report = replace(
            found.report,
            tried=self._tried,
            accepted=self._accepted,
            too_late=self._too_late,
            pulled_left=self._pulled_left,
            why_ended=self._why,
            elapsed_s=self._elapsed,
        )
        return Improvement(found.places, report)

    def _search_round(self, number: int, begin: float) -> bool:
        """Search once more from the best plan; return whether another round may follow."""
        settings = self._settings
        seconds = None
        if settings.seconds is not None:
            left = settings.seconds - (perf_counter() - begin)
            seconds = max(0.0, left / (self._rounds - number))
        moves = None if settings.moves is None else _share(settings.moves, number, self._rounds)
        bounded = replace(settings, seconds=seconds, moves=moves)
        searches = tuple(
            self._best.branch(_vary_settings(bounded, number, index)) for index in range(settings.parallel)
        )
        self._running = searches
        if self._stopped:  # between the last look and now
            return False
        self._run_together([search.search for search in searches])
        for search in searches:
            search.finish()
            self._tried += search.counts.tried
            self._too_late += search.counts.too_late
        self._best = min(searches, key=lambda search: search.cost)
        self._accepted += self._best.counts.accepted
        self._pulled_left += self._best.counts.pulled_left
        self._why = self._best.end_reason
        return self._why in (SearchEndReason.MOVES, SearchEndReason.SECONDS)


def _share(moves: int, number: int, rounds: int) -> int:
    """Return the moves of round ``number``; those of all rounds add up to ``moves``."""
    return moves * (number + 1) // rounds - moves * number // rounds


def _vary_settings(settings: SearchSettings, number: int, index: int) -> SearchSettings:
    """Return the settings of search ``index`` in round ``number``."""
    if number == index == 0:
        return settings
    factor = _LIFTED_FACTORS[index % len(_LIFTED_FACTORS)]
    return replace(
        settings,
        seed=settings.seed * 1_000_003 + number * settings.parallel + index,
        lifted=max(2, int(settings.lifted * factor)),
        whole=0,
    )
