"""Decoding of requests from client commands, including operators that only qmgr of 6.1 sends."""

from server_adapter.dis import Attribute, Decoder, DisSyntaxError, Operation

_OPERATIONS = {int(operation): operation for operation in Operation} | {
    11: Operation.SET,  # merge: a list set in one go
    12: Operation.INCR,  # `+=` of qmgr since 6.1
}


class ClientDecoder(Decoder):
    """A decoder that also takes the operators 11 and 12 in attribute lists."""

    __slots__ = ()

    def attribute(self) -> Attribute:
        """One entry of an attribute list; the declared size, a hint, is not kept."""
        self.unsigned()
        name = self.string()
        resource = self.string() if self.unsigned() else None
        value = self.string()
        start = self.position
        operation = _OPERATIONS.get(self.unsigned())
        if operation is None:
            raise DisSyntaxError("unknown operator", start)
        return Attribute(name, value, resource, operation)
