"""Owner of the process at the other end of a local connection, from /proc/net/tcp.

The port of pbs_server is not privileged: while the server is down, any local user can listen on it.
"""

import ipaddress
import sys
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns


def peer_owner_id(own: tuple[str, int], peer: tuple[str, int]) -> int | None:
    """Return the user id of the process that accepted the connection; None if the peer is on another host.

    `own` and `peer` are the addresses of the connection as seen from here. The result is also None until the
    peer has accepted; after the first reply it has.
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
