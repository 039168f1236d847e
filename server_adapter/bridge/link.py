"""Connection to the server: opened on demand, kept, and reopened with backoff."""

import asyncio
import logging
import pwd
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

from server_adapter.batch.errors import ServerUnreachableError, StaleConnectionError
from server_adapter.batch.sockets import Address

_log = logging.getLogger(__name__)
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 2.0  # a restarted server must be noticed quickly
_REMINDED: Final = 60.0


class LinkedConnection(Protocol):
    """Connection interface for a link."""

    @property
    def usable(self) -> bool:
        """Whether the connection is not known to be closed."""
        ...

    @property
    def closed_by_server(self) -> bool:
        """Whether the server closed it, and no error of an exchange was the reason."""
        ...

    def peer_owner(self) -> int | None:
        """Return the user id of the server's process if it runs on this host."""
        ...

    async def close(self) -> None:
        """Says goodbye."""
        ...


C = TypeVar("C", bound=LinkedConnection)


class ServerLink(Generic[C]):
    """Lends the connection that `connect` opens to one user at a time.

    A connection older than `lifetime` seconds is replaced, since the server accepts a credential only for a
    limited time. None: no limit.

    `up_since` is the time of the first connection after an outage, during which the server may have been
    restarted; None without an outage. Seconds by `clock`. A server on this host must be a process of the user
    id `owner`, if given.
    """

    def __init__(
        self,
        address: Address,
        connect: Callable[[], Awaitable[C]],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        owner: int | None = None,
        lifetime: float | None = None,
    ) -> None:
        self._lifetime = lifetime
        self._opened_at = 0.0
        self._address = address
        self._connect = connect
        self._clock = clock
        self._sleep = sleep
        self._owner = owner
        self._turn = asyncio.Lock()
        self._connection: C | None = None
        self._was_away = False
        self.up_since: float | None = None
        self.connects = 0

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[C]:
        """Lend the connection for one or several requests without other requests in between.

        Raises `ServerUnreachableError`, `RightsError`, `ProtocolError` if it cannot be opened.
        """
        async with self._turn:
            connection = await self._open()
            try:
                yield connection
            except ServerUnreachableError as error:
                # A slow server, or one that refuses a connection, was not restarted; one that closed the
                # connection may have been.
                lives = isinstance(error, StaleConnectionError) or isinstance(error.__cause__, TimeoutError)
                self._was_away = self._was_away or not lives
                raise
            else:
                self._was_away = self._was_away or connection.closed_by_server
            finally:
                if not connection.usable:
                    await self._drop()

    async def wait_until_up(self) -> None:
        """Try every second or two until the server answers; log this at first and once a minute.

        Raises `RightsError` and `ProtocolError`, since waiting does not help.
        """
        wait, began, reminded = _FIRST_WAIT, time.monotonic(), float("-inf")
        while True:
            try:
                async with self.borrow():
                    return
            except ServerUnreachableError as error:
                now = time.monotonic()
                if now - reminded >= _REMINDED:
                    _log.warning("%s; away for %.0f s, tried every %.0f s", error, now - began, _LONGEST_WAIT)
                    reminded = now
            await self._sleep(wait * random.uniform(0.8, 1.2))
            wait = min(_LONGEST_WAIT, wait * 2)

    async def close(self) -> None:
        """Says goodbye."""
        await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _check_owner(self, connection: C) -> None:
        """Check the owner of the server's process: any local user may listen while it is down."""
        found = None if self._owner is None else connection.peer_owner()
        if self._owner is None or found is None or found == self._owner:
            return
        await connection.close()
        where = f"{self._address.host}:{self._address.port}"
        raise ServerUnreachableError(
            f"{where} is not pbs_server: a process of {_user(found)} answers there, not one of "
            f"{_user(self._owner)} (server.owner); nothing that it says is believed"
        )

    async def _open(self) -> C:
        if self._connection is not None:
            # broken connections are dropped at once, so the server has closed this one since
            if not self._connection.usable:
                self._was_away = True
            elif not self._is_old():
                return self._connection
            await self._drop()
        began = time.monotonic()
        try:
            connection = await self._connect()
            await self._check_owner(connection)
        except ServerUnreachableError:
            self._was_away = True
            raise
        self._connection = connection
        self._opened_at = began
        self.connects += 1
        if self._was_away:
            self._was_away = False
            _log.info("pbs_server answers at %s:%d", self._address.host, self._address.port)
            self.up_since = self._clock()
        return connection

    def _is_old(self) -> bool:
        return self._lifetime is not None and time.monotonic() - self._opened_at >= self._lifetime


class LinkPool(Generic[C]):
    """Lends one of several connections, for requests that the server answers late. A connection is opened
    only if all open ones are in use.
    """

    def __init__(self, links: Iterable[ServerLink[C]]) -> None:
        self._links = list(links)
        self._idle = list(self._links)
        self._free = asyncio.Semaphore(len(self._links))

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[C]:
        """Lend a connection. Raises as `ServerLink.borrow`."""
        async with self._free:
            link = self._idle.pop()
            try:
                async with link.borrow() as connection:
                    yield connection
            finally:
                self._idle.append(link)

    async def close(self) -> None:
        """Say goodbye on each connection."""
        for link in self._links:
            await link.close()


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
