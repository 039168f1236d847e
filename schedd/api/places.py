"""Who holds the daemon's connections, and who makes room when there are too many.

A connection has a place for as long as somebody waits for an answer on it. One that waits for its next
request, or for the rest of one, makes room for a newcomer when the places are taken: first those that have
said nothing, then the others, the oldest first. Those of the adapter, of operators and of admins never make
room, and a quarter of all places is kept for them, for the UNIX socket, and for addresses from which they
came. The last free descriptors of the process are kept for them as well, for root and the daemon's own user
on the UNIX socket, and for the daemon's requests to itself.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from schedd.service.settings.file import LimitSettings

__all__ = ["Places", "Tenant"]

_KEPT = 4
"""One place of so many is kept for those who are known."""
_DESCRIPTORS = 64
"""So many descriptors are kept, at most three eighths of all; half of them for the daemon's own files."""
_COUNT_S = 1.0
"""Between two counts of the descriptors in use."""
_KNOWN = 100
"""Addresses that are remembered."""


class Tenant(Protocol):
    """A connection, as far as its place goes."""

    whose: str
    """The address at its other end; on the UNIX socket the user."""
    local: bool
    """It came by the UNIX socket."""
    trusted: bool
    """It has shown the token of an adapter, an operator or an admin."""
    privileged: bool
    """It is one of root, of the daemon's own user on the UNIX socket, or of the daemon itself."""

    @property
    def idleness(self) -> int:
        """0 while an answer is awaited, 1 while a request comes or may come, 2 if it never said anything."""
        ...

    def make_room(self) -> None:
        """Be closed."""
        ...


class Places:
    """Of one daemon, on all sockets on which it listens. For the event loop's thread alone."""

    def __init__(
        self,
        descriptors: int = 1 << 20,
        used: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``descriptors``: how many the process may have open; ``used``: how many it has."""
        self._descriptors = descriptors
        self._kept = min(_DESCRIPTORS, descriptors * 3 // 8)
        self._used, self._clock = used, clock
        self._others, self._counted = 0, float("-inf")
        self._open: dict[Tenant, None] = {}
        self._of: Counter[str] = Counter()
        self._known: OrderedDict[str, None] = OrderedDict()
        self.own: set[tuple[str, int]] = set()
        """Addresses from which the daemon asks itself."""

    @property
    def most_descriptors(self) -> int:
        """With so many in use no more connections are accepted for a moment."""
        return self._descriptors - self._kept // 2

    def _room(self) -> int:
        """For how many connections there are descriptors beside the kept ones."""
        now = self._clock()
        if now >= self._counted + _COUNT_S:
            self._others, self._counted = max(0, self._used() - len(self._open)), now
        return self._descriptors - self._kept - self._others

    def take(self, one: Tenant, limits: LimitSettings) -> bool:
        """Whether there is a place for ``one``, to be given back; another may have to go for it."""
        own = (other for other in self._open if other.whose == one.whose)
        room = self._room()
        if len(self._open) >= room and not self._free(iter(self._open)):
            known = one.privileged or one.whose in self._known
            if not known or len(self._open) >= room + self._kept // 2:
                return False
        if one.privileged and not one.local:  # the daemon's own
            self._admit(one)
            return True
        if self._of[one.whose] >= limits.connections_one and not self._free(own):
            return False
        # Those that are known have all places, others leave some free.
        open_to_all = limits.connections - limits.connections // _KEPT
        most = limits.connections if one.local or one.whose in self._known else open_to_all
        if len(self._open) >= most and not self._free(iter(self._open)):
            return False
        self._admit(one)
        return True

    def _admit(self, one: Tenant) -> None:
        self._open[one] = None
        self._of[one.whose] += 1

    def give_back(self, one: Tenant) -> None:
        """It is over; nothing for one that had no place."""
        if one in self._open:
            del self._open[one]
            self._of[one.whose] -= 1
            if not self._of[one.whose]:
                del self._of[one.whose]

    def trust(self, one: Tenant) -> None:
        """It has shown who it is, and so its address is known, too."""
        one.trusted = True
        if not one.local:
            self._known[one.whose] = None
            self._known.move_to_end(one.whose)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)

    def _free(self, among: Iterator[Tenant]) -> bool:
        """Let the idlest make room; whether there was one."""
        found = max((other for other in among if not other.trusted), key=_idleness, default=None)
        if found is None or not found.idleness:
            return False
        self.give_back(found)
        found.make_room()
        return True


def _idleness(one: Tenant) -> int:
    return one.idleness
