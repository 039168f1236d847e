"""OpenPBS's batch protocol: packets, requests, replies in parts, a connection, the scheduler's place."""

from server_adapter.openpbs.codes import READ_ONLY, Command, ObjectType, RequestCode, ServerCode
from server_adapter.openpbs.connection import Connection, open_connection
from server_adapter.openpbs.credentials import AnyPort, Munge, PrivilegedPort, Vouch
from server_adapter.openpbs.scheduler import CommandReceived, Registration, register

__all__ = [
    "READ_ONLY",
    "AnyPort",
    "Command",
    "CommandReceived",
    "Connection",
    "Munge",
    "ObjectType",
    "PrivilegedPort",
    "Registration",
    "RequestCode",
    "ServerCode",
    "Vouch",
    "open_connection",
    "register",
]
