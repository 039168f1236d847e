"""TORQUE's batch protocol: requests, replies, connection, the scheduler's port (protocol document)."""

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.sockets import Address
from server_adapter.torque.codes import READ_ONLY, SchedulerCommand
from server_adapter.torque.connection import TorqueConnection, open_connection
from server_adapter.torque.credentials import TorqueAnyPort, TorquePrivilegedPort, TorqueVouch, Trqauthd
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.listener import CommandListener, PortTakenError, SchedulerCall

__all__ = [
    "READ_ONLY",
    "Address",
    "BatchError",
    "CommandListener",
    "ObjectType",
    "PortTakenError",
    "ProtocolError",
    "RequestCode",
    "RequestForbiddenError",
    "RightsError",
    "SchedulerCall",
    "SchedulerCommand",
    "ServerRefusedError",
    "ServerUnreachableError",
    "TorqueAnyPort",
    "TorqueConnection",
    "TorqueErrorCode",
    "TorquePrivilegedPort",
    "TorqueVouch",
    "Trqauthd",
    "open_connection",
]
