"""Exceptions of the connection to a pbs_server, for both families."""


class BatchError(Exception):
    """Base of all exceptions of the wire packages."""


class ServerRefusedError(BatchError):
    """The server answered with an error code; `text` is its explanation, possibly empty.

    `name` is the code's name in the server's manual.
    """

    def __init__(self, code: int, text: str, action: str, name: str = "") -> None:
        number = f"{code} {name}" if name else f"code {code}"
        super().__init__(f"pbs_server refused to {action}: {number}" + (f" ({text})" if text else ""))
        self.code = code
        self.text = text
        self.action = action


class ProtocolError(BatchError):
    """The peer sent no batch request or reply; the connection cannot be used any further."""


class ServerUnreachableError(BatchError):
    """The server could not be reached, the connection broke, or a reply timed out. Connect again later."""


class StaleConnectionError(ServerUnreachableError):
    """The server refused the connection, not the request: its credential has expired, or the server no longer
    knows the connection. The request was not executed; it may be sent again on a new connection.

    `code` is the server's.
    """

    def __init__(self, code: int, text: str, action: str, name: str = "") -> None:
        number = f"{code} {name}" if name else f"code {code}"
        words = f" ({text})" if text else ""
        super().__init__(f"pbs_server refused the connection when it was to {action}: {number}{words}")
        self.code = code
        self.text = text
        self.action = action


class OpenOutcomeError(ServerUnreachableError):
    """The server answered that a node did not answer it: the node may still carry out the request.

    `code` is the server's.
    """

    def __init__(self, refusal: ServerRefusedError) -> None:
        super().__init__(f"{refusal}; a node may still carry it out")
        self.code = refusal.code


class RightsError(BatchError):
    """Missing rights: no privileged port, no authentication, or the server does not trust this client."""


class TakenError(BatchError):
    """Another process, most likely another scheduler, has the scheduler's role or port."""


class RequestForbiddenError(BatchError):
    """A request that the mode of this connection does not permit; it was not sent."""
