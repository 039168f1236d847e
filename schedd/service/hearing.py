"""Whether a cluster's adapter is still heard of."""

import time
from datetime import UTC, datetime

__all__ = ["Hearing"]


class Hearing:
    """When the adapter was last heard of. Any thread may ask; ages are in real seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        """Of its last request by the monotonic clock; before the first one, when it could first be heard."""
        self.at = 0
        """The same by the cluster's clock, in seconds since the epoch; 0: it was not heard of yet."""
        self.version = ""
        """As it last said; empty: it did not."""
        self.ahead: float | None = None
        """By how many seconds its clock is before the cluster's, as far as it said so."""
        self._read: tuple[float, int] | None = None
        """When it last read the server, by both clocks, as far as it said so."""

    def begin(self) -> None:
        """From now on it is expected to be heard of: this daemon leads."""
        self.last, self.at, self._read = time.monotonic(), 0, None
        self.version, self.ahead = "", None

    def learn(self, version: str, ahead: float | None) -> None:
        """Its version, and how far its clock is ahead; what it does not say stays as it was."""
        self.version = version or self.version
        self.ahead = ahead if ahead is not None else self.ahead

    def hear(self, now: int, read_age: float | None = None) -> None:
        """It is there, at this second of the cluster's clock; it read the server so many seconds before."""
        self.last, self.at = time.monotonic(), now
        if read_age is not None:
            self._read = self.last - read_age, int(now - read_age)

    @property
    def age(self) -> float:
        """Real seconds since it was last heard of, or since it is expected to be."""
        return time.monotonic() - self.last

    def silence(self, most: float) -> str:
        """That it, or the server behind it, is silent for longer than ``most`` seconds, if it is."""
        if self.age > most:
            if not self.at:
                return "no adapter was heard of since the daemon started"
            return f"the adapter was last heard of at {_time(self.at)}"
        read = self._read
        if read is not None and time.monotonic() - read[0] > most:
            return f"the adapter does not reach the server since {_time(read[1])}"
        return ""


def _time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
