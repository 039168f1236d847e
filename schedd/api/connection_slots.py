"""Slots for the daemon's connections, and which connections are closed when there are too many.

A connection has a slot while a response is pending on it. Connections that wait for the next request, or the
rest of one, are closed for a new one when all slots are taken: first connections that have sent nothing, then
the others, oldest first. Connections of adapters, operators and admins are never closed, and a quarter of all
slots is kept for them, for the UNIX socket, and for addresses they came from. The last free descriptors of
the process are kept for them as well, for root and the daemon's own user on the UNIX socket, and for the
daemon's requests to itself.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from schedd.service.settings.daemon import LimitSettings

_RESERVED_SLOT_FRACTION = 4  # reciprocal of the fraction of slots reserved for known clients
_RESERVED_DESCRIPTORS = 64
"""Number of reserved descriptors, at most three eighths of all; half of them for the daemon's own files."""
_DESCRIPTOR_COUNT_S = 1.0  # between two counts of the descriptors in use
_MAX_KNOWN_ADDRESSES = 100  # addresses that are remembered


class SlotHolder(Protocol):
    """A connection, as far as its place goes."""

    owner: str  # the address at its other end; on the UNIX socket the user
    local: bool  # it came by the UNIX socket
    trusted: bool  # it has shown the token of an adapter, an operator or an admin
    privileged: bool  # opened by root, by the daemon's own user on the UNIX socket, or by the daemon itself

    @property
    def idleness(self) -> int:
        """0 while an answer is awaited, 1 while a request comes or may come, 2 if it never said anything."""
        ...

    def evict(self) -> None: ...


class ConnectionSlots:
    """Slots of one daemon, for all its listening sockets. Used by the event loop's thread only."""

    def __init__(
        self,
        descriptors: int = 1 << 20,
        used: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``descriptors``: how many the process may have open; ``used``: how many it has."""
        self._descriptors = descriptors
        self._reserved = min(_RESERVED_DESCRIPTORS, descriptors * 3 // 8)
        self._used, self._clock = used, clock
        self._other_descriptors, self._counted = 0, float("-inf")
        self._open: dict[SlotHolder, None] = {}
        self._count_by_owner: Counter[str] = Counter()
        self._known: OrderedDict[str, None] = OrderedDict()
        self.own_addresses: set[tuple[str, int]] = set()
        """Addresses that the daemon sends requests to itself from."""

    @property
    def most_descriptors(self) -> int:
        """Number of connections when accepting pauses for a moment."""
        return self._descriptors - self._reserved // 2

    def _available_descriptors(self) -> int:
        """Number of connections with descriptors besides the reserved ones."""
        now = self._clock()
        if now >= self._counted + _DESCRIPTOR_COUNT_S:
            self._other_descriptors, self._counted = max(0, self._used() - len(self._open)), now
        return self._descriptors - self._reserved - self._other_descriptors

    def acquire(self, one: SlotHolder, limits: LimitSettings) -> bool:
        """Whether there is a place for ``one``, to be given back; another may have to go for it."""
        own = (other for other in self._open if other.owner == one.owner)
        room = self._available_descriptors()
        if len(self._open) >= room and not self._evict_idlest(iter(self._open)):
            known = one.privileged or one.owner in self._known
            if not known or len(self._open) >= room + self._reserved // 2:
                return False
        if one.privileged and not one.local:  # the daemon's own
            self._admit(one)
            return True
        if self._count_by_owner[one.owner] >= limits.connections_per_address and not self._evict_idlest(own):
            return False
        # Known clients may use all slots, others not the reserved ones.
        open_to_all = limits.connections - limits.connections // _RESERVED_SLOT_FRACTION
        most = limits.connections if one.local or one.owner in self._known else open_to_all
        if len(self._open) >= most and not self._evict_idlest(iter(self._open)):
            return False
        self._admit(one)
        return True

    def _admit(self, one: SlotHolder) -> None:
        self._open[one] = None
        self._count_by_owner[one.owner] += 1

    def release(self, one: SlotHolder) -> None:
        """Release the connection's slot, if it has one."""
        if one in self._open:
            del self._open[one]
            self._count_by_owner[one.owner] -= 1
            if not self._count_by_owner[one.owner]:
                del self._count_by_owner[one.owner]

    def trust(self, one: SlotHolder) -> None:
        """Mark the connection as a known client's, and its address as known."""
        one.trusted = True
        if not one.local:
            self._known[one.owner] = None
            self._known.move_to_end(one.owner)
            if len(self._known) > _MAX_KNOWN_ADDRESSES:
                self._known.popitem(last=False)

    def _evict_idlest(self, among: Iterator[SlotHolder]) -> bool:
        """Let the idlest make room; whether there was one."""
        found = max((other for other in among if not other.trusted), key=_holder_idleness, default=None)
        if found is None or not found.idleness:
            return False
        self.release(found)
        found.evict()
        return True


def _holder_idleness(one: SlotHolder) -> int:
    return one.idleness
