"""One QueueCraft for each container, for applications whose parts are wired by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from typing import Any, Unpack
from weakref import WeakSet

from queuecraft.app import QueueCraft
from queuecraft.config.options import Options
from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import Policy

NAME = "queuecraft"
"""The key, or the attribute, under which a container has its QueueCraft."""


class QueueModule:
    """How a container gets its QueueCraft; made by `queue_module`. Calling it makes another."""

    def __init__(
        self,
        make: Callable[[], QueueCraft],
        default_queue: Policy | None,
        setup: Callable[[QueueCraft], object] | None,
    ) -> None:
        self._make = make
        self._default_queue = default_queue
        self._setup = setup
        self._made: WeakSet[QueueCraft] = WeakSet()
        self._lock = threading.Lock()

    def __call__(self) -> QueueCraft:
        """A new QueueCraft, with the defaults applied and the workers set up."""
        qc = self._make()
        if self._default_queue is not None:
            qc.configure(default_queue=self._default_queue)
        if self._setup is not None:
            self._setup(qc)
        return qc

    def of(self, container: object) -> QueueCraft:
        """The QueueCraft of a container, made if it has none yet."""
        with self._lock:
            found = _found(container)
            if found is None:
                found = self()
                _put(container, found)
                self._made.add(found)
            elif found not in self._made:
                raise ConfigError(
                    f"the {_kind(container)} has a QueueCraft already, which another module has "
                    "made; ask for it with use_queue(container)"
                )
            return found


def queue_module(
    broker: str | None = None,
    /,
    *,
    default_queue: Policy | None = None,
    setup: Callable[[QueueCraft], object] | None = None,
    make: Callable[..., QueueCraft] = QueueCraft,
    **options: Unpack[Options],
) -> QueueModule:
    """Say how containers get their QueueCraft: the URL and settings, the defaults of its queues,
    and a function that adds its workers. Nothing is made until `use_queue` asks for it.

    With `make=QueueCraft.from_environment` the settings come from there.

    >>> from queuecraft import Policy, queue_module, use_queue
    >>> shop = queue_module(
    ...     "local://",
    ...     default_queue=Policy(ack_timeout=60),
    ...     setup=lambda qc: qc.worker("audit").on("#", print),
    ... )
    >>> use_queue({}, shop)
    <QueueCraft local disconnected, 1 workers>
    """
    given: dict[str, Any] = {**options} if broker is None else {"url": broker, **options}
    return QueueModule(lambda: make(**given), default_queue, setup)


def use_queue(container: object, module: QueueModule | None = None) -> QueueCraft:
    """The one QueueCraft of a container: a dict, or any object that takes attributes.

    Given a module, it is made when first asked for; from then on it is the same, and what the
    module says is not applied again.

    >>> from queuecraft import queue_module, use_queue
    >>> shop = queue_module("local://")
    >>> one, other = {}, {}
    >>> use_queue(one, shop) is use_queue(one, shop) is use_queue(one)
    True
    >>> use_queue(one) is use_queue(other, shop)
    False
    """
    if module is not None:
        return module.of(container)
    found = _found(container)
    if found is None:
        raise ConfigError(
            f"the {_kind(container)} has no QueueCraft; give it one with "
            "use_queue(container, queue_module(…))"
        )
    return found


def forget_queue(container: object) -> None:
    """Take the QueueCraft out of a container, whoever has shut it down."""
    if isinstance(container, MutableMapping):
        container.pop(NAME, None)
    elif getattr(container, NAME, None) is not None:
        delattr(container, NAME)


def _found(container: object) -> QueueCraft | None:
    if isinstance(container, MutableMapping):
        found = container.get(NAME)
    else:
        found = getattr(container, NAME, None)
    if found is not None and not isinstance(found, QueueCraft):
        raise ConfigError(
            f"the {_kind(container)} has something else under {NAME!r}: {type(found).__name__}"
        )
    return found


def _put(container: object, qc: QueueCraft) -> None:
    if isinstance(container, MutableMapping):
        container[NAME] = qc
        return
    try:
        setattr(container, NAME, qc)
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"a {_kind(container)} cannot hold a QueueCraft; give use_queue a dict, or an object "
            "that takes attributes"
        ) from error


def _kind(container: object) -> str:
    return type(container).__name__
