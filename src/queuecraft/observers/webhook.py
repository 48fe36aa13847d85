"""Posting an alert to a URL of the configuration: counts alone, no redirects, never for long."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import ssl
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from queuecraft.model.errors import QueueError

TIMEOUT: Final = 5.0  # seconds in all
LONGEST: Final = 4096  # bytes of an answer's first line

Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where clouds tell a machine its secrets, beside the link-local addresses.
METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "192.0.0.192"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Webhook:
    """One URL. Its host is looked up for each post, and the address that was looked at is the one
    that is connected to."""

    def __init__(self, url: str, log: logging.Logger) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._named = parts.netloc
        self._log = log

    async def post(self, values: Mapping[str, object]) -> bool:
        """Post values as JSON; whether the other side has taken them. Never raises."""
        try:
            async with asyncio.timeout(TIMEOUT):
                status = await self._post(json.dumps(values).encode())
        except TimeoutError:
            why = f"no answer within {TIMEOUT:g} s"
        except QueueError as error:
            why = error.message
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            # Its text may quote the URL, and a URL of this kind is as good as a password.
            why = type(error).__name__
        else:
            if 200 <= status < 300:
                return True
            why = f"it answered {status}" + ("; redirects are not followed" * (300 <= status < 400))
        self._log.warning("the webhook of delayed.webhook was not told: %s", why)
        return False

    async def _post(self, body: bytes) -> int:
        address = await self._address()
        context = ssl.create_default_context() if self._tls else None
        reader, writer = await asyncio.open_connection(
            str(address),
            self._port,
            ssl=context,
            server_hostname=self._host if self._tls else None,
            limit=LONGEST,
        )
        try:
            head = (
                f"POST {self._path} HTTP/1.1\r\nHost: {self._named}\r\n"
                "Content-Type: application/json\r\nUser-Agent: queuecraft\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            return _status(await reader.readline())
        finally:
            writer.transport.abort()  # what else it may say is not waited for

    async def _address(self) -> Ip:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
        if not addresses or any(is_forbidden(each) for each in addresses):
            raise QueueError("its host has an address where alerts are never sent")
        return addresses[0]


def is_forbidden(address: Ip) -> bool:
    """Whether nothing is to be posted there: link-local addresses, which also are those where a
    cloud keeps the secrets of a machine, however they are written.

    >>> is_forbidden(ipaddress.ip_address("169.254.169.254"))
    True
    >>> is_forbidden(ipaddress.ip_address("::ffff:169.254.169.254"))
    True
    >>> is_forbidden(ipaddress.ip_address("10.0.0.7"))
    False
    """
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in _NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is None and address.teredo is not None:
            inside = address.teredo[1]
        if inside is not None and is_forbidden(inside):
            return True
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in METADATA
    )


def _status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/") or not code.isdigit():
        raise QueueError("it does not speak HTTP")
    return int(code)
