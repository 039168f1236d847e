"""Choice of the jobs to be preempted: a minimum-cost covering of the missing amounts.

Each candidate has a cost and frees amounts. The chosen candidates together free at least the missing amount
of each kind. The choice has the least total cost if the branch-and-bound search ends within its limit.
Otherwise it is the best one found, at least as good as that of a greedy method.
"""

from collections.abc import Sequence
from typing import Final

SEARCH_LIMIT: Final = 5_000  # nodes of the search tree
_MOST_SEARCHED: Final = 200  # of more candidates the greedy method chooses


def choose_victims(
    costs: Sequence[int],
    frees: Sequence[Sequence[int]],
    missing: Sequence[int],
    limit: int = SEARCH_LIMIT,
) -> tuple[int, ...] | None:
    """Return the indices of the candidates to be preempted, or None if all together free too little.

    ``frees[i][k]`` is the amount of kind ``k`` that candidate ``i`` frees, ``missing[k]`` the amount that is
    needed. Costs and amounts are not negative. Of choices with equal costs, the one with fewer candidates is
    preferred.
    """
    kinds = range(len(missing))
    if any(sum(one[k] for one in frees) < missing[k] for k in kinds):
        return None
    # One more unit of cost for each candidate prefers fewer ones, and changes no order of different costs.
    scaled = [cost * (len(costs) + 1) + 1 for cost in costs]
    greedy = _choose_greedily(scaled, frees, missing)
    if len(costs) > _MOST_SEARCHED:
        return tuple(sorted(greedy))
    return tuple(sorted(_VictimSearch(scaled, frees, missing, limit).run(greedy)))


def _choose_greedily(
    costs: Sequence[int], frees: Sequence[Sequence[int]], missing: Sequence[int]
) -> list[int]:
    """Take the candidate with the least cost per useful part, until all is covered; then drop those that are
    not needed, the most expensive first.
    """
    left, chosen, open_ = list(missing), [], set(range(len(costs)))
    while any(amount > 0 for amount in left):

        def useful(i: int, left: list[int] = left) -> float:
            return sum(min(frees[i][k], amount) / amount for k, amount in enumerate(left) if amount > 0)

        best = min((i for i in open_ if useful(i) > 0), key=lambda i: (costs[i] / useful(i), i))
        open_.discard(best)
        chosen.append(best)
        left = [amount - frees[best][k] for k, amount in enumerate(left)]
    for i in sorted(chosen, key=lambda i: (-costs[i], i)):
        if all(amount + frees[i][k] <= 0 for k, amount in enumerate(left)):
            chosen.remove(i)
            left = [amount + frees[i][k] for k, amount in enumerate(left)]
    return chosen


class _VictimSearch:
    """Depth-first branch and bound. Candidates are decided in order of their costs."""

    def __init__(
        self, costs: Sequence[int], frees: Sequence[Sequence[int]], missing: Sequence[int], limit: int
    ) -> None:
        self._order = sorted(
            (
                i
                for i in range(len(costs))
                if any(min(frees[i][k], missing[k]) > 0 for k in range(len(missing)))
            ),
            key=lambda i: (costs[i], i),
        )
        self._costs = [costs[i] for i in self._order]
        self._frees = [frees[i] for i in self._order]
        self._missing = missing
        self._left = limit
        count, kinds = len(self._order), range(len(missing))
        # From each candidate on: how much can still be freed, and the least cost of freeing one unit.
        self._rest = [[0] * len(missing) for _ in range(count + 1)]
        self._price = [[float("inf")] * len(missing) for _ in range(count + 1)]
        for i in reversed(range(count)):
            for k in kinds:
                amount = self._frees[i][k]
                self._rest[i][k] = self._rest[i + 1][k] + amount
                price = self._costs[i] / amount if amount else float("inf")
                self._price[i][k] = min(self._price[i + 1][k], price)

    def run(self, known: Sequence[int]) -> Sequence[int]:
        """Return the best choice; ``known`` is a valid one."""
        place = {i: position for position, i in enumerate(self._order)}
        self._best = [place[i] for i in known]
        self._least = sum(self._costs[i] for i in self._best)
        self._visit(0, 0, list(self._missing), [])
        return [self._order[i] for i in self._best]

    def _visit(self, i: int, cost: int, left: list[int], chosen: list[int]) -> None:
        if all(amount <= 0 for amount in left):
            if cost < self._least:
                self._least, self._best = cost, list(chosen)
            return
        if i == len(self._order) or self._left <= 0:
            return
        self._left -= 1
        bound = 0.0
        for k, amount in enumerate(left):
            if amount > self._rest[i][k]:
                return
            if amount > 0:
                bound = max(bound, amount * self._price[i][k])
        # a rounding error of the bound must not exclude the best choice
        if cost + bound * (1 - 1e-9) >= self._least:
            return
        chosen.append(i)
        after = [amount - self._frees[i][k] for k, amount in enumerate(left)]
        self._visit(i + 1, cost + self._costs[i], after, chosen)
        chosen.pop()
        self._visit(i + 1, cost, left, chosen)
