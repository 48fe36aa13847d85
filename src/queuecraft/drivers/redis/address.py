"""What a `redis://` URL says: hosts, database, encryption, and how queues are kept."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from queuecraft.drivers.encryption import Encryption
from queuecraft.drivers.location import Location
from queuecraft.model.errors import ConfigError

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
PREFIX: Final = "qc"
_OPTIONS: Final = ("mode", "prefix", "retain", "sentinel")


@dataclass(frozen=True, slots=True)
class Address:
    """One host of a URL, and all that is the same for each."""

    host: str
    port: int = PORT
    database: int = 0
    encryption: Encryption | None = None
    prefix: str = PREFIX
    retain: int = 0
    """How many handled messages a stream keeps."""
    sentinels: tuple[tuple[str, int], ...] = ()
    """Whom to ask where the master is; then `host` and `port` are those of the first of them."""
    master: str = ""

    def at(self, host: str, port: int) -> Address:
        """The same on another host."""
        return replace(self, host=host, port=port)

    def context(self) -> ssl.SSLContext | None:
        """For TLS, if the URL asks for it."""
        return None if self.encryption is None else self.encryption.context()


def addresses(url: str) -> list[Address]:
    """The hosts of a URL, in the order they are to be tried; with Sentinel, one for all of them.

    >>> [(each.host, each.port) for each in addresses("redis://:x@one,two:6380/1?mode=list")]
    [('one', 6379), ('two', 6380)]
    >>> addresses("redis://one,two/0?sentinel=shop")[0].sentinels
    (('one', 26379), ('two', 26379))
    """
    there = Location.of(url, _OPTIONS, secure="rediss", example="redis:6379")
    options = there.options
    common = Address(
        host="",
        database=_number("the path", unquote(there.path) or "0", "the number of a database"),
        encryption=there.encryption,
        prefix=_prefix(options.get("prefix", PREFIX)),
        retain=_number("retain=", options.get("retain", "0"), "how many messages are to stay"),
        master=_master(options),
    )
    usual = SENTINEL_PORT if common.master else PORT
    places = [(host, port or usual) for host, port in there.hosts]
    if common.master:
        return [replace(common, host=places[0][0], port=places[0][1], sentinels=tuple(places))]
    return [common.at(*place) for place in places]


def _number(what: str, text: str, expected: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"{what} says {text!r}; expected {expected}, such as 0")
    return int(text)


def _prefix(text: str) -> str:
    if not text or not text.isprintable() or set(text) & set("{}"):
        raise ConfigError(
            f"prefix={text!r}: expected a text such as {PREFIX!r}, without braces: all keys begin "
            "with it, in braces"
        )
    return text


def _master(options: Mapping[str, str]) -> str:
    if options.get("sentinel") == "":
        raise ConfigError("sentinel= is empty; expected the name of the master, as in its settings")
    return options.get("sentinel", "")
