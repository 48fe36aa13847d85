"""What a `redis://` URL says: hosts, database, encryption, and how queues are kept."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qsl, unquote

from queuecraft.model.address import bare, fault
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import HOST

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
PREFIX: Final = "qc"
_FILES: Final = ("cafile", "certfile", "keyfile")
_OPTIONS: Final = (
    *("cafile", "certfile", "keyfile", "mode", "prefix", "retain", "sentinel", "verify"),
)


@dataclass(frozen=True, slots=True)
class Address:
    """One host of a URL, and all that is the same for each."""

    host: str
    port: int = PORT
    database: int = 0
    encrypted: bool = False
    prefix: str = PREFIX
    retain: int = 0
    """How many handled messages a stream keeps."""
    sentinels: tuple[tuple[str, int], ...] = ()
    """Whom to ask where the master is; then `host` and `port` are those of the first of them."""
    master: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    verified: bool = True

    def at(self, host: str, port: int) -> Address:
        """The same on another host."""
        return replace(self, host=host, port=port)

    def context(self) -> ssl.SSLContext | None:
        """For TLS: made anew for each connection, since certificates are replaced."""
        if not self.encrypted:
            return None
        try:
            context = ssl.create_default_context(cafile=self.files.get("cafile"))
            if "certfile" in self.files:
                # An encrypted key is refused: OpenSSL would ask for its password on the terminal.
                context.load_cert_chain(
                    self.files["certfile"], self.files.get("keyfile"), password=str
                )
        except (OSError, ssl.SSLError) as error:
            given = ", ".join(f"{name}={path!r}" for name, path in self.files.items())
            raise ConfigError(f"the certificates cannot be used ({given}): {error}") from error
        if not self.verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def addresses(url: str) -> list[Address]:
    """The hosts of a URL, in the order they are to be tried; with Sentinel, one for all of them.

    >>> [(each.host, each.port) for each in addresses("redis://:x@one,two:6380/1?mode=list")]
    [('one', 6379), ('two', 6380)]
    >>> addresses("redis://one,two/0?sentinel=shop")[0].sentinels
    (('one', 26379), ('two', 26379))
    """
    if (problem := fault(url)) is not None:
        raise ConfigError(f"the URL {problem}")
    scheme, _, rest = bare(url).partition("://")
    scheme = scheme.lower()
    place, _, query = rest.partition("?")
    hosts, _, database = place.partition("/")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(
                f"a {scheme}:// URL has no option {name!r}; known: {', '.join(_OPTIONS)}"
            )
    common = Address(
        host="",
        database=_number("the path", unquote(database) or "0", "the number of a database"),
        encrypted=scheme == "rediss",
        prefix=_prefix(options.get("prefix", PREFIX)),
        retain=_number("retain=", options.get("retain", "0"), "how many messages are to stay"),
        master=_master(options),
        files=_files(scheme, options),
        verified=options.get("verify", "yes") == "yes",
    )
    usual = SENTINEL_PORT if common.master else PORT
    places = [_place(host, usual) for host in hosts.split(",")]
    if common.master:
        return [replace(common, host=places[0][0], port=places[0][1], sentinels=tuple(places))]
    return [common.at(*place) for place in places]


def _place(host: str, usual: int) -> tuple[str, int]:
    match = HOST.fullmatch(host)
    if match is None:
        raise ConfigError(f"{host!r} is no host; expected one such as 'redis' or 'redis:6379'")
    return match[1].strip("[]"), int(match[2] or usual)


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


def _files(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    if options.get("verify", "yes") not in ("yes", "no"):
        raise ConfigError(f"verify={options['verify']!r}: expected 'yes' or 'no'")
    files = {name: path for name, path in options.items() if name in _FILES}
    for name, path in files.items():
        if not path:
            raise ConfigError(f"{name}= names no file; expected the path of a PEM file")
    if "keyfile" in files and "certfile" not in files:
        raise ConfigError("a keyfile is of use only with the certfile it belongs to; give both")
    if scheme == "redis" and (files or "verify" in options):
        raise ConfigError("certificates are of use only with TLS; begin the URL with rediss://")
    return files
