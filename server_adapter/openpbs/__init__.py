"""OpenPBS's batch protocol: packets, requests, replies in parts, connection, scheduler registration."""

from server_adapter.batch.codes import ObjectType, RequestCode
from server_adapter.openpbs.codes import READ_ONLY, OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection, open_connection
from server_adapter.openpbs.credentials import Munge, OpenPBSAnyPort, OpenPBSPrivilegedPort, OpenPBSVouch
from server_adapter.openpbs.registration import CycleCommand, Registration, register

__all__ = [
    "READ_ONLY",
    "CycleCommand",
    "Munge",
    "ObjectType",
    "OpenPBSAnyPort",
    "OpenPBSCommand",
    "OpenPBSConnection",
    "OpenPBSErrorCode",
    "OpenPBSPrivilegedPort",
    "OpenPBSVouch",
    "Registration",
    "RequestCode",
    "open_connection",
    "register",
]
