"""The one connection to the server: opened when needed, kept, opened again with growing waits."""

import asyncio
import logging
import pwd
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

from server_adapter.batch.errors import ServerUnreachableError, StaleConnectionError
from server_adapter.batch.sockets import Address

_log = logging.getLogger(__name__)
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 2.0  # a server that is back is to be found at once
_REMINDED: Final = 60.0


class LinkedConnection(Protocol):
    """What a link needs of a connection."""

    @property
    def usable(self) -> bool:
        """Whether the next request has a chance."""
        ...

    def peer_owner(self) -> int | None:
        """The user id of the server's process, where it is on this host."""
        ...

    async def close(self) -> None:
        """Says goodbye."""
        ...


C = TypeVar("C", bound=LinkedConnection)


class ServerLink(Generic[C]):
    """Lends out the connection that `connect` opens to one user at a time.

    A connection that is older than `lifetime` seconds is closed, and a new one is opened: the server believes
    a credential only for so long. None: it stays open as long as it is usable.

    `up_since` is when the server was first reached after it had been away (it then may have been restarted),
    None where that was never seen. Seconds by `clock`. A server of this host must be a process of the user id
    `owner`, where one is given.
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
        """The connection, for one or several requests that nobody else's come between.

        Raises `ServerUnreachableError`, `RightsError`, `ProtocolError` when there is none to be had.
        """
        async with self._turn:
            connection = await self._open()
            try:
                yield connection
            except ServerUnreachableError as error:
                # A server that is slow or that refuses a connection was not restarted; one that hung up may
                # have been.
                lives = isinstance(error, StaleConnectionError) or isinstance(error.__cause__, TimeoutError)
                self._was_away = self._was_away or not lives
                raise
            finally:
                if not connection.usable:
                    await self._drop()

    async def wait_until_up(self) -> None:
        """Tries every second or two until the server is there; says so at first and once a minute.

        Raises `RightsError` and `ProtocolError`, which waiting does not cure.
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
        """Any user of this host may listen on the port while the server is down: nothing is believed then."""
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
            if not self._connection.usable:  # what broke in use was dropped then: the server hung up since
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


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
