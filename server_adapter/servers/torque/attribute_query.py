"""A status request in wanted attributes, of which a server may not know all."""

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
    """Asks for jobs or nodes in these attributes.

    A server refuses the whole request (15002) when it does not know one of the names, though only once it
    has something to describe. Then each name is tried by itself, once and on one object, and the unknown ones
    are left out. The first name must be one that every server knows.
    """

    def __init__(self, code: RequestCode, names: Iterable[str]) -> None:
        self._code = code
        self._names = tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes asked for: without those that the server turned out not to know."""
        return self._names

    def request(self, name: str = "") -> StatusRequest:
        """About all objects, or the one of this name."""
        return self._request(name, self._names)

    async def fetch(self, connection: TorqueConnection, name: str = "") -> list[DescribedObject]:
        """All objects, or the one of this name. Raises what `TorqueConnection.describe` raises."""
        try:
            return await connection.describe(self.request(name))
        except ServerRefusedError as error:
            if error.code != TorqueErrorCode.NOATTR:
                raise
        first = name or (await connection.describe(self._request("", self._names[:1])))[0].name
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
