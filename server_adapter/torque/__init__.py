"""TORQUE's batch protocol: requests, replies, a connection, the scheduler's port (protocol document)."""

from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.sockets import Address
from server_adapter.torque.codes import READ_ONLY, ObjectType, RequestCode, SchedulerCommand
from server_adapter.torque.connection import Connection, open_connection
from server_adapter.torque.credentials import AnyPort, PrivilegedPort, Trqauthd, Vouch
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.listener import CommandListener, CommandReceived, PortTakenError

__all__ = [
    "READ_ONLY",
    "Address",
    "AnyPort",
    "BatchError",
    "CommandListener",
    "CommandReceived",
    "Connection",
    "ObjectType",
    "PortTakenError",
    "PrivilegedPort",
    "ProtocolError",
    "RequestCode",
    "RequestForbiddenError",
    "RightsError",
    "SchedulerCommand",
    "ServerCode",
    "ServerRefusedError",
    "ServerUnreachableError",
    "Trqauthd",
    "Vouch",
    "open_connection",
]
