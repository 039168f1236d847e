"""Allowed targets of webhooks: public addresses, an address in the setting itself, and the setting's
exceptions.

The request goes to the checked address, so that a later change of the name's resolution has no effect.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_PORTS: Final = {"http": 80, "https": 443}


class TargetRefused(Exception):
    """The host has no allowed address."""


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A request's URL with an address instead of the name, and the headers and extensions with the name."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    extensions: dict[str, str] = field(default_factory=dict)


def is_public(address: Address) -> bool:
    """Whether the address is public: not of this host, link-local, private, reserved, or mapped."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(address.packed[-4:])
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def parse_allowed(allowed: Sequence[str]) -> tuple[tuple[Network, ...], frozenset[str]]:
    """Split the exceptions into networks and names. Raises ValueError for a network with host bits set."""
    networks: list[Network] = []
    names: set[str] = set()
    for one in allowed:
        first = one.partition("/")[0]
        if "/" in one or ":" in one or first.replace(".", "").isdigit():
            networks.append(ipaddress.ip_network(one))
        else:
            names.add(one.rstrip(".").lower())
    return tuple(networks), frozenset(names)


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in found]


async def resolve_targets(
    url: str, allowed: Sequence[str], resolve: Resolve = _resolve
) -> tuple[RequestTarget, ...]:
    """Return the targets for a URL, in order of preference. For a proxied host, the proxy is responsible.

    Raises TargetRefused, and OSError if the name is unknown.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if _literal(host) is not None or _proxied(parts.scheme, host):
        return (RequestTarget(url),)
    networks, names = parse_allowed(allowed)
    port = parts.port or _PORTS[parts.scheme]
    found = list(dict.fromkeys(ipaddress.ip_address(one) for one in await resolve(host, port)))
    good = [
        one
        for one in found
        if host.lower() in names or is_public(one) or any(one in network for network in networks)
    ]
    if not good:
        listed = ", ".join(map(str, found)) or "nothing"
        raise TargetRefused(
            f"{host} is {listed}: not a public address; if that is intended, name the host or the network "
            "in the webhook's `allow`"
        )
    return tuple(_target(parts, host, one) for one in good)


def _literal(host: str) -> Address | None:
    """Return the address in the setting; other notations (127.1, 0x7f000001) are treated as names."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _proxied(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return (scheme in proxies or "all" in proxies) and not proxy_bypass(host)


def _target(parts: SplitResult, host: str, address: Address) -> RequestTarget:
    user, at, _ = parts.netloc.rpartition("@")
    port = f":{parts.port}" if parts.port is not None else ""
    written = f"[{address}]" if address.version == 6 else str(address)
    url = parts._replace(netloc=f"{user}{at}{written}{port}").geturl()
    return RequestTarget(url, {"Host": f"{host}{port}"}, {"sni_hostname": host})
