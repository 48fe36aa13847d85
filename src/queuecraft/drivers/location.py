"""The parts of a broker's URL that every broker has: hosts, a path, options, encryption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from queuecraft.drivers.encryption import OPTIONS, Encryption
from queuecraft.model.address import bare, fault
from queuecraft.model.errors import ConfigError
from queuecraft.model.masking import HOST


@dataclass(frozen=True, slots=True)
class Location:
    """A URL in pieces. A host that names no port has None."""

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    options: dict[str, str]
    encryption: Encryption | None

    @classmethod
    def of(cls, url: str, options: Sequence[str], *, secure: str, example: str) -> Location:
        """Take a URL to pieces. `secure` is the scheme that means TLS, `example` a host with its
        port. Raises `ConfigError` for an option that is none of these.

        >>> there = Location.of(
        ...     "redis://:x@one,two:6380/1?mode=list",
        ...     ["mode"],
        ...     secure="rediss",
        ...     example="redis:6379",
        ... )
        >>> there.hosts, there.path, there.options, there.encryption
        ((('one', None), ('two', 6380)), '1', {'mode': 'list'}, None)
        """
        if (problem := fault(url)) is not None:
            raise ConfigError(f"the URL {problem}")
        scheme, _, rest = bare(url).partition("://")
        scheme = scheme.lower()
        place, _, query = rest.partition("?")
        hosts, _, path = place.partition("/")
        given = dict(parse_qsl(query, keep_blank_values=True))
        known = sorted((*options, *OPTIONS))
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"{_a(scheme)}:// URL has no option {name!r}; known: {', '.join(known)}"
                )
        encryption = Encryption.of(given)
        if scheme != secure and any(name in OPTIONS for name in given):
            raise ConfigError(
                f"certificates are of use only with TLS; begin the URL with {secure}://"
            )
        return cls(
            scheme,
            tuple(_host(host, example) for host in hosts.split(",")),
            path,
            given,
            encryption if scheme == secure else None,
        )


def _host(host: str, example: str) -> tuple[str, int | None]:
    match = HOST.fullmatch(host)
    if match is None:
        name = example.partition(":")[0]
        raise ConfigError(f"{host!r} is no host; expected one such as {name!r} or {example!r}")
    return match[1].strip("[]"), None if match[2] is None else int(match[2])


def _a(scheme: str) -> str:
    return f"{'an' if scheme[:1] in 'aeiou' else 'a'} {scheme}"
