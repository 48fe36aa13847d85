"""Brokers by name: Spark's options carry the name, the machine that connects knows the rest."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from queuecraft.clock import Clock
from queuecraft.config import CONFIG, settings_from_environment
from queuecraft.config.names import PREFIX, VARIABLES
from queuecraft.drivers.local import path_of
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.model import address
from queuecraft.model.errors import ConfigError
from queuecraft.model.settings import Settings
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.facts import Facts

DEFAULT = "default"
"""The connection of an application without more than one: `QUEUECRAFT_URL` and its like."""

NAMED = f"{PREFIX}CONNECTION_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def connection_settings(
    name: str = DEFAULT,
    environ: Mapping[str, str] | None = None,
    *,
    local: bool = True,
    url: str | None = None,
) -> Settings:
    """The settings of a connection. One called `shop` has the variables of an application, with
    `QUEUECRAFT_CONNECTION_SHOP_` before them instead of `QUEUECRAFT_`; its `…_CONFIG` names a TOML
    file. `local`: whether all that reads and writes runs on one machine. `url` is that of a broker
    without a name: it has the other settings of the application, and of an address only itself.

    >>> there = {"QUEUECRAFT_CONNECTION_SHOP_URL": "redis://cache/0?mode=list"}
    >>> connection_settings("shop", there).url
    'redis://cache/0?mode=list'
    >>> connection_settings("shop", {"QUEUECRAFT_CONNECTION_BAR_URL": "local:///tmp/bar.db"})
    Traceback (most recent call last):
    queuecraft.ConfigError: connection 'shop' is not known here; set ..., there is 'bar'
    """
    environ = os.environ if environ is None else environ
    if url is not None:
        settings = settings_from_environment(environ, given={"url": url})
        _check_place("url", settings.url, local)
        return settings
    prefix = f"{NAMED}{_checked(name).upper().replace('-', '_')}_"
    said = _said(environ, prefix)
    try:
        if said:
            # Nothing else that may lie around: a password must not go to another broker.
            settings = settings_from_environment({CONFIG: os.devnull} | said, env_file=os.devnull)
        elif name == DEFAULT:
            settings = settings_from_environment(environ)
        else:
            raise _unknown(name, prefix, environ)
    except ConfigError as error:
        if not said:
            raise
        told = error.message.replace(PREFIX, prefix)
        raise ConfigError(f"connection {name!r}: {told}") from None
    variable = f"{prefix if said or name != DEFAULT else PREFIX}URL"
    _check_place(f"connection {name!r} ({variable})", settings.url, local)
    return settings


@asynccontextmanager
async def connected(settings: Settings) -> AsyncGenerator[Connection]:
    """A connection to the broker, open until the end.

    >>> import asyncio
    >>> async def main() -> str:
    ...     async with connected(Settings(url="local://")) as connection:
    ...         return connection.state
    >>> asyncio.run(main())
    'connected'
    """
    clock = Clock()
    drivers = Drivers().create(Target(settings.url, clock, settings))
    connection = Connection(drivers, settings, clock, Facts())
    try:
        await connection.connect()
        yield connection
    finally:
        await connection.close()


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that say where brokers are, and how to speak to them.

    >>> variables({"QUEUECRAFT_URL": "local://", "QUEUECRAFT_TOKEN": "s3cret", "HOME": "/"})
    {'QUEUECRAFT_URL': 'local://'}
    """
    return {
        name: value
        for name, value in environ.items()
        if name in VARIABLES or name == CONFIG or name.startswith(NAMED)
    }


def _checked(name: str) -> str:
    if "://" in name:  # not shown: it may hold a password
        raise ConfigError(
            "connection= is a name such as 'shop', not a URL, because Spark shows and logs its "
            f"options; put the URL into {NAMED}SHOP_URL where the executors run"
        )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"connection={name!r}: expected a name of letters, digits, - and _, such as 'shop'"
        )
    return name


def _said(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """What is said of one connection, as an application would be told it."""
    said: dict[str, str] = {}
    for variable, value in environ.items():
        rest = variable.removeprefix(prefix)
        if rest != variable and not _of_another(rest):
            said[PREFIX + rest] = value
    return said


def _of_another(rest: str) -> bool:
    """Whether `EU_URL`, found for `shop`, is the URL of `shop-eu`."""
    if PREFIX + rest in (*VARIABLES, CONFIG):
        return False
    return any(rest.endswith(f"_{each.removeprefix(PREFIX)}") for each in (*VARIABLES, CONFIG))


def _unknown(name: str, prefix: str, environ: Mapping[str, str]) -> ConfigError:
    known = sorted(
        each.removeprefix(NAMED).removesuffix("_URL").lower()
        for each in environ
        if each.startswith(NAMED) and each.endswith("_URL")
    )
    others = f", there is {', '.join(map(repr, known))}" if known else ""
    return ConfigError(
        f"connection {name!r} is not known here; set {prefix}URL where the executors run, and "
        f"where the driver does{others}"
    )


def _check_place(said: str, url: str, local: bool) -> None:
    if url.partition("://")[0].lower() != "local":
        return
    if path_of(url) is None:
        raise ConfigError(
            f"{said} is {address.DEFAULT!r}, a queue in the memory of one process; Spark's workers "
            "are processes of their own and would each have an empty one: use a file, "
            "local:///data/queue.db, or a broker"
        )
    if not local:
        raise ConfigError(
            f"{said} is a file of one machine, and this Spark runs on others too, which would each "
            "write into a file of their own; use a broker, or a session with master='local[*]'"
        )
