"""What an `amqp://` URL says: hosts, virtual host, encryption, and how queues are declared."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from queuecraft.drivers.encryption import Encryption
from queuecraft.drivers.location import Location
from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import HOST

Declaring: TypeAlias = Literal["assert", "check", "skip"]

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_DECLARING: Final[Mapping[str, Declaring]] = {"assert": "assert", "check": "check", "skip": "skip"}


@dataclass(frozen=True, slots=True)
class Address:
    """One host of a URL, and all that is the same for each."""

    host: str
    port: int
    virtual_host: str = "/"
    encryption: Encryption | None = None
    declaring: Declaring = "assert"
    management: str | None = None
    """Where the management interface is, as the URL says: "no" for nowhere."""

    @property
    def interface(self) -> str | None:
        """Where the management interface is to be looked for. Where AMQP has another port than
        usual, that of the interface cannot be known; and where AMQP is encrypted, a password is
        not sent any other way.

        >>> addresses("amqp://rabbit")[0].interface, addresses("amqps://rabbit")[0].interface
        ('http://rabbit:15672', 'https://rabbit:15671')
        >>> addresses("amqp://rabbit:5673")[0].interface is None
        True
        """
        if self.management is not None:
            return None if self.management == "no" else self.management
        scheme, usual, port = (
            ("https", _PORTS["amqps"], 15671)
            if self.encryption
            else ("http", _PORTS["amqp"], 15672)
        )
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}" if self.port == usual else None

    @property
    def nobody(self) -> Credentials:
        """Who one is if nothing is said: whom the certificate names, or the broker's own guest.

        >>> addresses("amqp://rabbit")[0].nobody
        Credentials(username='guest')
        """
        certified = self.encryption is not None and "certfile" in self.encryption.files
        return Credentials(None, "") if certified else Credentials("guest", "guest")

    def context(self) -> ssl.SSLContext | None:
        """For TLS, if the URL asks for it."""
        return None if self.encryption is None else self.encryption.context()


def addresses(url: str) -> list[Address]:
    """The hosts of a URL, in the order they are to be tried.

    >>> [(each.host, each.port) for each in addresses("amqp://ada:x@one,two:5673/shop")]
    [('one', 5672), ('two', 5673)]
    >>> addresses("amqp://host/%2Fshop")[0].virtual_host
    '/shop'
    """
    there = Location.of(url, ("declare", "management"), secure="amqps", example="rabbit:5672")
    options = there.options
    declaring = _DECLARING.get(options.get("declare", "assert"))
    if declaring is None:
        raise ConfigError(f"declare={options['declare']!r}: expected 'assert', 'check' or 'skip'")
    management = options.get("management")
    if management is not None and not _is_interface(management):
        # What was given is not shown: it may hold a password.
        raise ConfigError(
            "management= does not say where the management interface is; expected 'no', or a URL "
            "such as 'http://rabbit:15672', without a user: that of the broker is asked for"
        )
    return [
        Address(
            host,
            port or _PORTS[there.scheme],
            unquote(there.path) or "/",
            there.encryption,
            declaring,
            management,
        )
        for host, port in there.hosts
    ]


def _is_interface(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = HOST.fullmatch(parts.netloc)
    place = host is not None and 0 < int(host[2] or 1) < 2**16
    known = parts.scheme in ("http", "https") and not parts.query and not parts.fragment
    return url == "no" or (place and known and url.isprintable() and " " not in url)
