"""The methods of AMQP that carry names. RabbitMQ takes any text for one; pamqp would not."""

from __future__ import annotations

from typing import TypeVar, cast

from pamqp import commands
from pamqp.base import Frame

F = TypeVar("F", bound=Frame)


def _unchecked(kind: type[F]) -> type[F]:
    return cast("type[F]", type(kind.__name__, (kind,), {"validate": lambda self: None}))


Consume = _unchecked(commands.Basic.Consume)
ExchangeBind = _unchecked(commands.Exchange.Bind)
ExchangeDeclare = _unchecked(commands.Exchange.Declare)
Get = _unchecked(commands.Basic.Get)
QueueBind = _unchecked(commands.Queue.Bind)
QueueDeclare = _unchecked(commands.Queue.Declare)
QueueDelete = _unchecked(commands.Queue.Delete)
QueuePurge = _unchecked(commands.Queue.Purge)
QueueUnbind = _unchecked(commands.Queue.Unbind)
