"""What an `amqp://` URL says: hosts, virtual host, encryption, and how queues are declared."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from queuecraft.model.address import bare, fault
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import HOST

Declaring: TypeAlias = Literal["assert", "check", "skip"]

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_DECLARING: Final[Mapping[str, Declaring]] = {"assert": "assert", "check": "check", "skip": "skip"}
_FILES: Final = ("cafile", "certfile", "keyfile")
_OPTIONS: Final = ("cafile", "certfile", "declare", "keyfile", "management", "verify")


@dataclass(frozen=True, slots=True)
class Address:
    """One host of a URL, and all that is the same for each."""

    host: str
    port: int
    virtual_host: str = "/"
    encrypted: bool = False
    declaring: Declaring = "assert"
    files: dict[str, str] = field(default_factory=dict[str, str])
    verified: bool = True
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
            ("https", _PORTS["amqps"], 15671) if self.encrypted else ("http", _PORTS["amqp"], 15672)
        )
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}" if self.port == usual else None

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
    """The hosts of a URL, in the order they are to be tried.

    >>> [(each.host, each.port) for each in addresses("amqp://ada:x@one,two:5673/shop")]
    [('one', 5672), ('two', 5673)]
    >>> addresses("amqp://host/%2Fshop")[0].virtual_host
    '/shop'
    """
    if (problem := fault(url)) is not None:
        raise ConfigError(f"the URL {problem}")
    scheme, _, rest = bare(url).partition("://")
    scheme = scheme.lower()
    place, _, query = rest.partition("?")
    hosts, slash, virtual_host = place.partition("/")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(
                f"an {scheme}:// URL has no option {name!r}; known: {', '.join(_OPTIONS)}"
            )
    declaring = _DECLARING.get(options.get("declare", "assert"))
    if declaring is None:
        raise ConfigError(f"declare={options['declare']!r}: expected 'assert', 'check' or 'skip'")
    if options.get("verify", "yes") not in ("yes", "no"):
        raise ConfigError(f"verify={options['verify']!r}: expected 'yes' or 'no'")
    files = {name: path for name, path in options.items() if name in _FILES}
    for name, path in files.items():
        if not path:
            raise ConfigError(f"{name}= names no file; expected the path of a PEM file")
    if "keyfile" in files and "certfile" not in files:
        raise ConfigError("a keyfile is of use only with the certfile it belongs to; give both")
    if scheme == "amqp" and (files or "verify" in options):
        raise ConfigError("certificates are of use only with TLS; begin the URL with amqps://")
    management = options.get("management")
    if management is not None and not _is_interface(management):
        # What was given is not shown: it may hold a password.
        raise ConfigError(
            "management= does not say where the management interface is; expected 'no', or a URL "
            "such as 'http://rabbit:15672', without a user: that of the broker is asked for"
        )
    found: list[Address] = []
    for host in hosts.split(","):
        match = HOST.fullmatch(host)
        if match is None:
            raise ConfigError(
                f"{host!r} is no host; expected one such as 'rabbit' or 'rabbit:5672'"
            )
        found.append(
            Address(
                match[1].strip("[]"),
                int(match[2] or _PORTS[scheme]),
                unquote(virtual_host) if slash and virtual_host else "/",
                scheme == "amqps",
                declaring,
                files,
                options.get("verify", "yes") == "yes",
                management,
            )
        )
    return found


def _is_interface(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = HOST.fullmatch(parts.netloc)
    place = host is not None and 0 < int(host[2] or 1) < 2**16
    known = parts.scheme in ("http", "https") and not parts.query and not parts.fragment
    return url == "no" or (place and known and url.isprintable() and " " not in url)
