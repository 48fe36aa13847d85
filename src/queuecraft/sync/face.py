"""An async part of a QueueCraft, called from plain code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from queuecraft.app import QueueCraft
from queuecraft.sync.held import Held


class Face:
    """Has the methods of the part, which give their results and not something to await.

    >>> from queuecraft.sync import QueueCraft
    >>> with QueueCraft("local://") as qc:
    ...     qc.admin.declare("billing", "order.placed")
    ...     [queue.name for queue in qc.admin.queues()]
    ['billing', 'billing.dlq']
    """

    def __init__(self, held: Held, part: Callable[[QueueCraft], Any], kind: type) -> None:
        self._held = held
        self._part = part
        self._kind = kind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not inspect.iscoroutinefunction(getattr(self._kind, name, None)):
            raise AttributeError(f"{self._kind.__name__} has no method {name!r} to call from here")

        def call(*arguments: Any, **options: Any) -> Any:
            return self._held.do(
                lambda qc: getattr(self._part(qc), name)(*arguments, **options),
            )

        return call

    def __dir__(self) -> list[str]:
        return [
            name for name, value in vars(self._kind).items() if inspect.iscoroutinefunction(value)
        ]
