"""Connection to a TORQUE server: permitted requests by mode, and the protocol version."""

import time
from collections.abc import Callable, Collection

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError, ServerUnreachableError
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import ServerLink
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.connection import TorqueConnection, open_connection
from server_adapter.torque.credentials import TorqueCredential

PERMITTED: dict[str, frozenset[RequestCode]] = {
    "shadow": READ_ONLY,
    "adviser": READ_ONLY | {RequestCode.MODIFY_JOB},
    "scheduler": READ_ONLY | {RequestCode.MODIFY_JOB, RequestCode.RUN_JOB, RequestCode.ASYNC_RUN_JOB},
}
"""Permitted requests by mode; the connection refuses to encode others."""


class TorqueLink(ServerLink[TorqueConnection]):
    """Connection to a TORQUE server. The protocol version is detected by the first status request, and again
    after an attempt that fails: the server may have been replaced, and a newer one may leave a request of
    the older protocol without an answer.
    """

    def __init__(
        self,
        address: Address,
        credential: TorqueCredential,
        *,
        user: str = "root",
        timeout: float = 30.0,
        permitted: Collection[RequestCode] = READ_ONLY,
        clock: Callable[[], float] = time.time,
        owner: int | None = None,
        lifetime: float | None = None,
    ) -> None:
        version: int | None = None

        async def connect() -> TorqueConnection:
            nonlocal version
            known, version = version, None
            try:
                connection = await open_connection(
                    address, credential, user=user, version=known, timeout=timeout, permitted=permitted
                )
            except ServerRefusedError as error:
                raise ServerUnreachableError(f"another version may serve now: {error}") from error
            version = connection.version
            return connection

        super().__init__(address, connect, clock=clock, owner=owner, lifetime=lifetime)
