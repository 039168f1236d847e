"""Status requests with a list of wanted attributes; unknown attributes are removed from the list."""

import logging
from collections.abc import Iterable

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import Attribute
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

_log = logging.getLogger(__name__)


class AttributeQuery:
    """Requests jobs or nodes with these attributes.

    A server refuses the whole request (15002) if it does not know one of the names, but only when it has an
    object to describe. Each name is then tried once on one object, and unknown names are removed until
    `reset`. Every server must know the first name.
    """

    def __init__(self, code: RequestCode, names: Iterable[str]) -> None:
        self._code = code
        self._all = self._names = tuple(names)

    def reset(self) -> None:
        """Request all attributes again, since a server of another version may know others."""
        self._names = self._all

    @property
    def names(self) -> tuple[str, ...]:
        """The requested attributes that the server knows."""
        return self._names

    def request(self, name: str = "") -> StatusRequest:
        """Return the request for all objects, or for the object of this name."""
        return self._request(name, self._names)

    async def fetch(self, connection: TorqueConnection, name: str = "") -> list[DescribedObject]:
        """Return all objects, or the object of this name. Raises what `TorqueConnection.describe` raises."""
        try:
            return await connection.describe(self.request(name))
        except ServerRefusedError as error:
            if error.code != TorqueErrorCode.NOATTR:
                raise
        first = name
        if not first:
            found = await connection.describe(self._request("", self._names[:1]))
            if not found:  # the last object has gone since
                return []
            first = found[0].name
        known = [word for word in self._names if await self._knows(connection, first, word)]
        unknown = [word for word in self._names if word not in known]
        _log.info("the server has no attribute %s", ", ".join(unknown))
        self._names = tuple(known)
        return await connection.describe(self.request(name))

    async def _knows(self, connection: TorqueConnection, name: str, word: str) -> bool:
        try:
            await connection.describe(self._request(name, (word,)))
        except ServerRefusedError as error:
            if error.code == TorqueErrorCode.NOATTR:
                return False
            raise
        return True

    def _request(self, name: str, words: Iterable[str]) -> StatusRequest:
        return StatusRequest(
            code=self._code, name=name, attributes=tuple([Attribute(word) for word in words])
        )
