"""Base of the workers for co-allocations, bags and bookings: one thread serves all items of a kind."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

import structlog

from schedd.federation.items import ImpossibleError
from schedd.federation.state.federation_state import FederationState
from schedd.federation.state.item_operations import ItemOperations
from schedd.federation.workers.cluster_worker import ClientFactory, connect_cluster
from schedd.store import StoreError
from schedd.supervision import ThreadedWork

_log = structlog.get_logger(__name__)
_PAUSE_S: Final = 0.05  # minimum time between two rounds


class ItemWorker(ThreadedWork):
    """Worker thread for the items of one kind, in rounds: one after each change of an item, and one after
    ``routing.poll`` seconds without a change.
    """

    def __init__(
        self,
        name: str,
        federation: FederationState,
        operations: ItemOperations[Any],
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
        connect: ClientFactory = connect_cluster,
    ) -> None:
        super().__init__(federation.supervisor, name)
        self._federation = federation
        self._operations = operations
        self._stopping = stopping
        self._clock = clock
        self._connect = connect

    def run(self) -> None:
        """Process all items in rounds until stopped."""
        while not self._stopping.is_set():
            self._operations.wakeup.clear()
            self.round()
            self._operations.wakeup.wait(self.longest_wait_s())
            self._stopping.wait(_PAUSE_S)

    @abstractmethod
    def round(self) -> None:
        """Do all pending work of the open items."""

    def longest_wait_s(self) -> float:
        """Return the time until the next round if no item changes."""
        return self._federation.settings.routing.poll

    def _guarded(self, item: str, process: Callable[[], None]) -> None:
        """Process one item. An error is logged, and the work goes on with the others."""
        try:
            process()
        except (StoreError, ImpossibleError) as error:
            _log.error("an item was not processed", work=self._failures.name, item=item, why=str(error))
        except Exception as error:
            self._failures.note(error)

    def _is_due(self, since: float, wait: float) -> bool:
        """Return whether ``wait`` seconds have passed, also when the clock was set back meanwhile."""
        return not 0 <= self._clock() - since < wait

    def _now(self) -> int:
        return int(self._clock())
