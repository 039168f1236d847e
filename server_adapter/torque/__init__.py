"""TORQUE's batch protocol: requests, replies, a connection, the scheduler's port (protocol document)."""

from server_adapter.torque.codes import READ_ONLY, ObjectType, RequestCode, SchedulerCommand
from server_adapter.torque.connection import Connection, open_connection
from server_adapter.torque.credentials import Address, AnyPort, PrivilegedPort, Trqauthd, Vouch
from server_adapter.torque.errors import (
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerCode,
    ServerRefusedError,
    ServerUnreachableError,
    TorqueError,
)
from server_adapter.torque.listener import CommandListener, CommandReceived, PortTakenError

__all__ = [
    "READ_ONLY",
    "Address",
    "AnyPort",
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
    "TorqueError",
    "Trqauthd",
    "Vouch",
    "open_connection",
]
