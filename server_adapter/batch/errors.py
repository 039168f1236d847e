"""What can go wrong between us and a pbs_server, of whichever family: our typed exceptions."""


class BatchError(Exception):
    """Base of all that the wire packages raise on purpose."""


class ServerRefusedError(BatchError):
    """The server answered with an error code; `text` is its own explanation, if it gave one.

    `name` is what its manual calls the code.
    """

    def __init__(self, code: int, text: str, action: str, name: str = "") -> None:
        number = f"{code} {name}" if name else f"code {code}"
        super().__init__(f"pbs_server refused to {action}: {number}" + (f" ({text})" if text else ""))
        self.code = code
        self.text = text
        self.action = action


class ProtocolError(BatchError):
    """The peer sent bytes that are no batch request or reply. The connection cannot be used any further."""


class ServerUnreachableError(BatchError):
    """No connection to the server, or it broke, or no answer came in time. Connect again later."""


class StaleConnectionError(ServerUnreachableError):
    """The server refused the connection, not the request: its credential has expired, or the server does not
    know the connection any more. The request was not carried out; it may be sent again on a new connection.

    `code` is the server's.
    """

    def __init__(self, code: int, text: str, action: str, name: str = "") -> None:
        number = f"{code} {name}" if name else f"code {code}"
        words = f" ({text})" if text else ""
        super().__init__(f"pbs_server refused the connection when it was to {action}: {number}{words}")
        self.code = code
        self.text = text
        self.action = action


class RightsError(BatchError):
    """Missing rights: no privileged port, no authentication, or the server does not trust this client."""


class TakenError(BatchError):
    """The scheduler's place is taken, most likely by another scheduler that runs."""


class RequestForbiddenError(BatchError):
    """A request that this connection's mode does not permit was stopped before it left."""
