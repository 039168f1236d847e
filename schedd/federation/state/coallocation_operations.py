"""Operations on co-allocations: submit, edit, advance, cancel."""

from collections.abc import Mapping
from typing import Any, Final

from schedd.federation.coallocation.coallocations import CoAllocation
from schedd.federation.coallocation.decisions import (
    CoAllocationRules,
    ComponentClusterView,
    decide,
    observe_components,
)
from schedd.federation.events import AttemptRefused, CoAllocationSubmitted, ComponentEditRequested
from schedd.federation.state.item_operations import ItemOperations

_MAX_STEPS: Final = 4  # maximum decision steps in one call


class EditImpossibleError(Exception):
    """The component cannot be changed now; the text is the reason."""


class CoAllocationOperations(ItemOperations[CoAllocation]):
    """Operations on co-allocations. Thread-safe."""

    def __init__(self, rules: CoAllocationRules, *shared: Any) -> None:
        super().__init__(*shared)
        self.rules = rules
        self.gap_searches = {"asked": 0, "found": 0}
        """Counts since this daemon leads: searches for an earlier end of a waiting co-allocation, and
        successful ones.

        Local jobs can use each gap first.
        """

    def submit(
        self, owner: str, components: tuple[Mapping[str, Any], ...], options: Mapping[str, Any], key: str = ""
    ) -> CoAllocation:
        """Submit a co-allocation. Return the existing one for a known ``key``. Raises StoreError."""
        with self._lock.request():
            known = self._items.by_owner_key(owner, key)
            if known is not None:
                return known
            return self._submit(
                lambda number, now: CoAllocationSubmitted(
                    job=number, time=now, owner=owner, components=components, options=options, key=key
                )
            )

    def edit(
        self, name: str, by: str, request: Mapping[str, Any] | None, component: int | None, later: bool
    ) -> CoAllocation:
        """Request a change of a component: add one (``component`` is None), substitute it by ``request``, or
        delete it (``request`` is None). Raises EditImpossibleError, StoreError and KeyError.
        """
        with self._lock.request():
            group = self._items[name]
            index = len(group.components) if component is None else component
            event = ComponentEditRequested(
                job=name, time=self._now(), by=by, component=index, request=request, later=later
            )
            why = group.edit_obstacle(event)
            if why:
                raise EditImpossibleError(f"co-allocation {name} cannot be changed: {why}")
            self._commit([event])
            return self._items[name]

    def advance(self, name: str, looks: Mapping[str, ComponentClusterView]) -> CoAllocation:
        """Apply observed states, decide the next steps, return the new state. Raises StoreError."""
        with self._lock.request():
            now = self._now()
            self._commit(observe_components(self._items[name], self.rules, looks, now))
            for _ in range(_MAX_STEPS):
                events = decide(self._items[name], self.rules, looks, now)
                if not self._commit(events):
                    break
            return self._items[name]

    def refuse_component(self, group: str, attempt: int, text: str) -> None:
        """Store that a cluster's schedd refuses a component job. Raises StoreError."""
        self.commit([AttemptRefused(job=group, time=self._now(), attempt=attempt, text=text)])
