"""Server family from the settings, and its credentials."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from server_adapter.bridge.manual_starts import ManualStarts, RecordedStarts, ServerLog
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import Server
from server_adapter.openpbs import credentials as openpbs
from server_adapter.servers.openpbs.server import OpenPBSServer
from server_adapter.servers.torque.server import TorqueServer
from server_adapter.settings import AdapterSettings, PbsServerSettings
from server_adapter.torque import credentials as torque

Clock = Callable[[], float]


def connector(settings: AdapterSettings, clock: Clock = time.time) -> Callable[[AdaptiveRateLimiter], Server]:
    """Return the factory of the configured server."""
    make = _FAMILIES[settings.server.family]
    return lambda pace: make(settings, pace, clock)


def torque_credential(server: PbsServerSettings) -> torque.TorqueCredential:
    """Return the credential for a TORQUE server, by the settings and the user of this process."""
    if server.auth == "none":
        return torque.TorqueAnyPort()
    if server.auth == "privileged" or (server.auth == "auto" and os.geteuid() == 0):
        return torque.TorquePrivilegedPort()
    return torque.Trqauthd(server.trqauthd, server.name or None)


def openpbs_credential(server: PbsServerSettings) -> openpbs.OpenPBSCredential:
    match server.auth:
        case "none":
            return openpbs.OpenPBSAnyPort()
        case "privileged":
            return openpbs.OpenPBSPrivilegedPort()
        case "munge":
            return openpbs.Munge()
    return openpbs.OpenPBSVouch()


def _torque(settings: AdapterSettings, pace: AdaptiveRateLimiter, clock: Clock) -> Server:
    by_hand = _by_hand(settings)
    return TorqueServer(settings, torque_credential(settings.server), by_hand, pace, clock=clock)


def _by_hand(settings: AdapterSettings) -> ManualStarts:
    server = settings.server
    log = None
    if server.logs is not None:
        log = ServerLog(server.logs, {*server.schedulers, server.user})
    return ManualStarts(RecordedStarts(settings.state_dir), log)


def _openpbs(settings: AdapterSettings, pace: AdaptiveRateLimiter, clock: Clock) -> Server:
    by_hand = _by_hand(settings)
    return OpenPBSServer(settings, openpbs_credential(settings.server), by_hand, pace, clock=clock)


_FAMILIES: Final[Mapping[str, Callable[[AdapterSettings, AdaptiveRateLimiter, Clock], Server]]] = {
    "torque": _torque,
    "openpbs": _openpbs,
}
