"""QueueCraft without `await`: the same calls, which return when the broker has answered."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from queuecraft import app
from queuecraft.admin import Admin
from queuecraft.config import settings_from_environment, settings_from_file
from queuecraft.config.options import Options, Parts, parted
from queuecraft.drivers.registry import Drivers
from queuecraft.model.errors import ConfigError, QueueError
from queuecraft.model.event import Event
from queuecraft.model.queue import Queue
from queuecraft.model.settings import Settings, SettingsOptions
from queuecraft.model.types import R, T
from queuecraft.runtime.counters import Metrics
from queuecraft.runtime.dead_letters import DeadLetters
from queuecraft.runtime.delayed import Delayed
from queuecraft.runtime.health import Health
from queuecraft.runtime.options import PublishOptions
from queuecraft.runtime.registration import Given
from queuecraft.runtime.requests import RequestOptions
from queuecraft.sync.face import Face
from queuecraft.sync.held import Held


class Keywords(Parts, SettingsOptions, total=False):
    """What a QueueCraft is made of, and its settings."""


class QueueCraft:
    """Publishes typed events from code that has no event loop: Django, Flask, scripts, threads.

    Make one for the whole process, at import. It connects on first use, in a background thread
    that all of them share, and is closed when the process ends. Any number of threads may use it
    at once. A process that is forked from this one gets a connection of its own on first use.

    >>> from queuecraft import Event
    >>> from queuecraft.sync import QueueCraft
    >>> order_placed = Event("order.placed", dict)
    >>> with QueueCraft("local://") as qc:
    ...     qc.admin.declare("billing", "order.placed")
    ...     message_id = qc.publish(order_placed, {"id": "o-1"})
    ...     qc.admin.inspect("billing").ready
    1
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        **options: Unpack[Keywords],
    ) -> None:
        if not isinstance(options.get("drivers"), (type(None), Drivers)):
            raise ConfigError(
                "drivers= that are made already cannot be used by a process forked from this one; "
                "give the Drivers() that makes them"
            )
        if "middleware" in options:  # made again after a fork, it is gone through again
            options["middleware"] = tuple(options["middleware"])
        if "publish_middleware" in options:
            options["publish_middleware"] = tuple(options["publish_middleware"])

        def make() -> app.QueueCraft:
            return app.QueueCraft(url, settings=settings, **options)

        self._held = Held(make)
        self.settings = self._held.current.settings
        # One for each request, as beginners write it, would leave a connection behind each time.
        weakref.finalize(self, self._held.abandon).atexit = False

    @classmethod
    def from_environment(
        cls, *, env_file: str | PathLike[str] | None = None, **options: Unpack[Options]
    ) -> Self:
        """A QueueCraft with the settings of, the first that says it: keywords, the `QUEUECRAFT_…`
        variables of the environment, a `.env` file, the TOML file that QUEUECRAFT_CONFIG names or
        `queuecraft.toml`.

        >>> QueueCraft.from_environment(publish_timeout=5).settings.publish_timeout
        5
        """
        parts, given = parted(options)
        return cls(settings=settings_from_environment(env_file=env_file, given=given), **parts)

    @classmethod
    def from_file(cls, path: str | PathLike[str], **options: Unpack[Options]) -> Self:
        """A QueueCraft with the settings of a TOML file, its table `[queuecraft]` if it has one,
        or `[tool.queuecraft]` of a `pyproject.toml`; keywords go before it.

        >>> QueueCraft.from_file("no-such.toml")
        Traceback (most recent call last):
        queuecraft.ConfigError: there is no file no-such.toml
        """
        parts, given = parted(options)
        return cls(settings=settings_from_file(path, given=given), **parts)

    # -- publishing ----------------------------------------------------------------------------

    @overload
    def publish(
        self, event: Event[T], payload: Given[T], **options: Unpack[PublishOptions]
    ) -> str: ...
    @overload
    def publish(self, event: str, payload: object, **options: Unpack[PublishOptions]) -> str: ...
    def publish(
        self, event: Event[Any] | str, payload: object, **options: Unpack[PublishOptions]
    ) -> str:
        """Publish an event to every queue bound to it; returns the message's id once the broker
        has it.

        Takes the options of the async `publish`, and raises its errors: `Unroutable` when no
        queue is bound, `PayloadError` when the payload does not fit, `PublishError` when the
        broker did not take it or did not answer within the setting `publish_timeout`.

        >>> from queuecraft import Event
        >>> with QueueCraft("local://") as qc:
        ...     qc.publish(Event("order.placed", dict), {"id": "o-1"}, delay=30)
        Traceback (most recent call last):
        queuecraft.Unroutable: no queue is bound to event 'order.placed' ...
        """
        return self._held.do(lambda qc: qc.publish(event, payload, **options))

    @overload
    def publish_many(
        self,
        event: Event[T],
        payloads: Iterable[Given[T]],
        *,
        atomic: bool = False,
        return_exceptions: Literal[False] = False,
        **options: Unpack[PublishOptions],
    ) -> list[str]: ...
    @overload
    def publish_many(
        self,
        event: Event[T],
        payloads: Iterable[Given[T]],
        *,
        atomic: bool = False,
        return_exceptions: Literal[True],
        **options: Unpack[PublishOptions],
    ) -> list[str | QueueError]: ...
    @overload
    def publish_many(
        self,
        event: str,
        payloads: Iterable[object],
        *,
        atomic: bool = False,
        return_exceptions: bool = False,
        **options: Unpack[PublishOptions],
    ) -> list[str | QueueError]: ...
    def publish_many(
        self,
        event: Event[Any] | str,
        payloads: Iterable[Any],
        *,
        atomic: bool = False,
        return_exceptions: bool = False,
        **options: Unpack[PublishOptions],
    ) -> Any:
        """Publish many payloads of one event, in as few flights as possible; returns their ids.

        If some fail, the others are published all the same; then `PublishError` is raised with
        what became of each in `error.results`, or, with `return_exceptions=True`, that list is
        returned. `atomic=True` stores all or none, where the broker can.

        >>> from queuecraft import Event
        >>> with QueueCraft("local://") as qc:
        ...     qc.admin.declare("numbers", "n")
        ...     len(qc.publish_many(Event("n", int), range(1000)))
        1000
        """
        # Read here: a query that is read as it goes belongs to the thread that made it.
        read = list(payloads)
        many: Any = app.QueueCraft.publish_many
        return self._held.do(
            lambda qc: many(
                qc, event, read, atomic=atomic, return_exceptions=return_exceptions, **options
            )
        )

    @overload
    def send(
        self, queue: Queue[T], payload: Given[T], **options: Unpack[PublishOptions]
    ) -> str: ...
    @overload
    def send(self, queue: str, payload: object, **options: Unpack[PublishOptions]) -> str: ...
    def send(
        self, queue: Queue[Any] | str, payload: object, **options: Unpack[PublishOptions]
    ) -> str:
        """Send a payload to one queue alone; returns its id once the broker has it.

        >>> from queuecraft import Queue
        >>> with QueueCraft("local://") as qc:
        ...     qc.send(Queue("invoices", dict), {"id": "i-1"})
        Traceback (most recent call last):
        queuecraft.PublishError: there is no such queue; start its worker first, ...
        """
        return self._held.do(lambda qc: qc.send(queue, payload, **options))

    @overload
    def request(
        self,
        event: Event[T] | Queue[T],
        payload: Given[T],
        reply: type[R],
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> R: ...
    @overload
    def request(
        self,
        event: str,
        payload: object,
        reply: type[R],
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> R: ...
    @overload
    def request(
        self,
        event: Event[T] | Queue[T],
        payload: Given[T],
        reply: None = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any: ...
    @overload
    def request(
        self,
        event: str,
        payload: object,
        reply: None = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any: ...
    def request(
        self,
        event: Event[Any] | Queue[Any] | str,
        payload: object,
        reply: Any = None,
        *,
        timeout: float = 5.0,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Publish an event, or send to one queue, and wait for what its handler returns, read as
        the type `reply`. Raises `RequestTimeout` when nothing came within `timeout` seconds,
        `RemoteError` when the handler failed.

        >>> with QueueCraft("local://") as qc:
        ...     qc.admin.declare("pricing", "price.asked")
        ...     qc.request("price.asked", "tea", float, timeout=0.05)
        Traceback (most recent call last):
        queuecraft.RequestTimeout: ...no reply came within 0.05 s ...
        """
        return self._held.do(
            lambda qc: qc.request(event, payload, reply, timeout=timeout, **options)
        )

    # -- everything else -----------------------------------------------------------------------

    def call(
        self, work: Callable[[app.QueueCraft], Awaitable[R]], *, timeout: float | None = None
    ) -> R:
        """Do anything that the async QueueCraft can, and wait for it; `TimeoutError` if that takes
        longer than `timeout` seconds.

        >>> with QueueCraft("local://") as qc:
        ...     qc.call(lambda qc: qc.admin.queues())
        []
        """
        return self._held.do(work, timeout)

    @property
    def admin(self) -> Any:
        """What an operator does, as `qc.admin.queues()`; `call` is the same for a type checker."""
        return Face(self._held, lambda qc: qc.admin, Admin)

    @property
    def dead_letters(self) -> Any:
        """Dead letters, as `qc.dead_letters.redrive("billing")`."""
        return Face(self._held, lambda qc: qc.dead_letters, DeadLetters)

    @property
    def delayed(self) -> Any:
        """Delayed messages, as `qc.delayed.cancel(id)`."""
        return Face(self._held, lambda qc: qc.delayed, Delayed)

    def health_check(self) -> Health:
        """Healthy while connected; otherwise what is wrong, and since when. Does not connect.

        >>> QueueCraft("local://").health_check().status
        'unhealthy'
        """
        return self._held.current.health_check()

    def get_metrics(self) -> Metrics:
        """What this process has sent since its start.

        >>> QueueCraft("local://").get_metrics().messages_sent
        0
        """
        return self._held.current.get_metrics()

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect now, and not on first use; `with` does this for you. Raises `ConnectionLost` when
        no host answers, `ConfigError` when trying again is no use."""
        self._held.do(lambda qc: qc.open())

    def close(self, timeout: float | None = None) -> None:
        """Wait for what other threads still publish, at most `timeout` seconds (default: the
        setting `shutdown_timeout`), then disconnect. It cannot be used again."""
        self._held.close(timeout)

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sync {self._held.current!r}>"
