"""Which broker a replay goes to, so that it does not go on at another."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, unquote, urlencode

import msgspec

from queuecraft.drivers.local import path_of
from queuecraft.model import address
from queuecraft.model.settings import Settings
from queuecraft.pipeline.replay.plan import Plan

_APART: Final = ("mode", "prefix", "sentinel")  # options by which one server holds several brokers
_PLAIN: Final = {"amqps": "amqp", "rediss": "redis", "kafkas": "kafka"}
_PLACES: Final = {"amqp": "/", "redis": "0"}  # where a URL says none


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, without a word of who one is there.

    >>> settings = Settings(url="amqp://ada:s3cret@one,two:5673/shop")
    >>> print(Destination.of("default", settings))
    amqp://one:5672,two:5673/shop
    """

    connection: str
    scheme: str
    hosts: tuple[str, ...] = ()
    place: str = ""
    """The virtual host, the database, or the file."""
    options: dict[str, str] = {}
    exchange: str | None = None
    """Where events go that name no exchange, if there are such."""

    @classmethod
    def of(cls, connection: str, settings: Settings, plan: Plan | None = None) -> Destination:
        """Where the messages of a plan go by a connection."""
        lines = () if plan is None else plan.lines
        unnamed = any(line.queue is None and line.exchange is None for line in lines)
        exchange = settings.exchange if unnamed else None
        scheme, _, rest = address.bare(settings.url).partition("://")
        scheme = scheme.lower()
        kind = _PLAIN.get(scheme, scheme)
        if kind == "local":
            file = path_of(settings.url)
            place = "" if file is None else str(file.resolve())
            return cls(connection=connection, scheme=kind, place=place, exchange=exchange)
        where, _, query = rest.partition("#")[0].partition("?")
        hosts, _, path = where.partition("/")
        said = {name: values[-1] for name, values in parse_qs(query).items()}
        if settings.redis_mode is not None:
            said.setdefault("mode", settings.redis_mode)
        known = address.TYPES.get(scheme)
        port = None if known is None else known.port
        return cls(
            connection=connection,
            scheme=kind,
            hosts=tuple(_with_port(host.lower(), port) for host in hosts.split(",")),
            place=unquote(path) or _PLACES.get(kind, ""),
            options={name: said[name] for name in _APART if name in said},
            exchange=exchange,
        )

    def is_same(self, other: Destination) -> bool:
        """Whether it is that broker, by whatever connection: of its hosts, one is enough.

        >>> one, two, three = (
        ...     Destination.of("default", Settings(url=url))
        ...     for url in ("amqp://ada:x@a,b/shop", "amqp://b:5672/shop", "amqp://b/test")
        ... )
        >>> one.is_same(two), one.is_same(three)
        (True, False)
        """
        shared = not self.hosts or not set(self.hosts).isdisjoint(other.hosts)
        return shared and self._rest == other._rest

    @property
    def _rest(self) -> tuple[object, ...]:
        return self.scheme, self.place, self.options, self.exchange

    def __str__(self) -> str:
        place = self.place if self.place.startswith("/") else f"/{self.place}"
        query = f"?{urlencode(self.options)}" if self.options else ""
        told = f"{self.scheme}://{','.join(self.hosts)}{place}{query}"
        return told if self.exchange is None else f"{told}, exchange {self.exchange}"


def _with_port(host: str, port: int | None) -> str:
    alone = ":" not in host.rpartition("]")[2]
    return f"{host}:{port}" if alone and port is not None else host
