"""QueueCraft inside a FastAPI or Starlette application: its life, and a way to it in endpoints."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from queuecraft.app import QueueCraft
from queuecraft.model.errors import ConfigError
from queuecraft.modules import NAME, QueueModule, forget_queue
from queuecraft.modules import use_queue as queue_of

try:
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as error:  # pragma: no cover
    raise ConfigError(
        f"queuecraft.fastapi needs the package {error.name}: pip install fastapi"
    ) from error

__all__ = ["lifespan", "use_queue"]

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[None]]
"""What FastAPI and Starlette take as `lifespan=`."""


def lifespan(
    qc: QueueCraft | QueueModule | Callable[[], QueueCraft], *, workers: bool = True
) -> Lifespan:
    """The life of a QueueCraft within that of an application: connected before the first request,
    its workers running, shut down gracefully after the last one.

    Give it a function that makes one, or a `queue_module`, if the application is started more than
    once in a process, as tests do: a QueueCraft that was shut down stays so. `workers=False`
    leaves its workers to other processes.

    >>> from fastapi import FastAPI
    >>> from queuecraft import QueueCraft
    >>> from queuecraft.fastapi import lifespan
    >>> app = FastAPI(lifespan=lifespan(QueueCraft("local://")))
    """
    if isinstance(qc, QueueModule):
        module = qc
    else:
        module = QueueModule((lambda: qc) if isinstance(qc, QueueCraft) else qc, None, None)

    @asynccontextmanager
    async def living(app: Starlette) -> AsyncGenerator[None]:
        opened = module.of(app.state)
        inner = [each for each in _mounted(app) if not hasattr(each.state, NAME)]
        try:
            async with opened:
                for each in inner:
                    setattr(each.state, NAME, opened)
                for worker in opened.workers if workers else ():
                    await worker.start()
                yield
        finally:
            for each in (app, *inner):
                forget_queue(each.state)

    return living


def use_queue(connection: HTTPConnection) -> QueueCraft:
    """The QueueCraft of the application that a request, or a websocket, came to.

    >>> from typing import Annotated
    >>> from fastapi import Depends, FastAPI
    >>> from queuecraft import QueueCraft
    >>> from queuecraft.fastapi import lifespan, use_queue
    >>> app = FastAPI(lifespan=lifespan(QueueCraft("local://")))
    >>> @app.get("/health")
    ... async def health(qc: Annotated[QueueCraft, Depends(use_queue)]) -> str:
    ...     return qc.health_check().status
    """
    state = connection.app.state
    if not hasattr(state, NAME):
        raise ConfigError(
            "this application has no QueueCraft; make it with FastAPI(lifespan=lifespan(qc)), and "
            "see that the server, or the test, runs its lifespan"
        )
    return queue_of(state)


def _mounted(app: Starlette) -> list[Starlette]:
    """The applications within an application: a request to them knows them alone."""
    found: list[Starlette] = []
    for route in app.routes:
        inner = getattr(route, "app", None)
        if isinstance(inner, Starlette):
            found += [inner, *_mounted(inner)]
    return found
