"""A message to be sent, as it is given to a command: to whom, and what goes with it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from queuecraft.model.errors import ConfigError

EventName: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="EVENT", help="Its name, as order.placed.")
]
Given: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="PAYLOAD", help="JSON, @file, or -. Without it, what is piped in."),
]
HeaderPairs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable."),
]
Key: TypeAlias = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Order is kept within it.")
]
Id: TypeAlias = Annotated[str | None, typer.Option("--id", metavar="ID", help="An id of your own.")]
CorrelationId: TypeAlias = Annotated[
    str | None, typer.Option("--correlation-id", metavar="ID", help="What it belongs to.")
]


def sorted_out(
    event: str | None, payload: str | None, queue: str | None
) -> tuple[str | None, str | None]:
    """The event, if it goes to no queue by name, and the payload: with `--queue` that is the first
    argument.

    >>> sorted_out("order.placed", "{}", None), sorted_out("{}", None, "billing")
    (('order.placed', '{}'), (None, '{}'))
    """
    if queue is None:
        if event is None:
            raise ConfigError("name the event, as order.placed, or a queue with --queue")
        return event, payload
    if payload is not None:
        raise ConfigError("with --queue there is no EVENT; give the payload alone")
    return None, event
