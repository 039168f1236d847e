"""Whose process is at the other end of a connection within this host: the kernel's word, by /proc/net/tcp.

pbs_server's port is no privileged one: while the server is down any local user can listen there.
"""

import ipaddress
import sys
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns


def peer_owner_id(own: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """The user id of the process that has accepted our connection; None where the peer is on another host.

    `own` and `peer` are the connection's addresses as seen from here. Before the peer has accepted (it has as
    soon as anything was answered) nobody owns its end: None, too.
    """
    ends = tuple(zip(_written(peer), _written(own), strict=True))
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if (words[_LOCAL], words[_REMOTE]) in ends:
                return int(words[_UID]) if words[_INODE] != "0" else None
    return None


def _written(address: tuple[str, int]) -> tuple[str, str]:
    """As the tables write it, in version 4 and in version 6."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(host, ipaddress.IPv4Address):
        mapped = ipaddress.IPv6Address(f"::ffff:{host}")
        return _hex(host.packed, address[1]), _hex(mapped.packed, address[1])
    four = host.ipv4_mapped
    return (_hex(four.packed, address[1]) if four else ""), _hex(host.packed, address[1])


def _hex(packed: bytes, port: int) -> str:
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
