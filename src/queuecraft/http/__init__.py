"""Queues, dead letters, workers, health and metrics over HTTP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuecraft.app import QueueCraft
from queuecraft.model.errors import ConfigError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from queuecraft.observers.prometheus import PrometheusObserver

__all__ = ["app"]

MAX_BODY = 1024 * 1024
"""Bytes of a request."""

LOCAL = ("localhost",)
"""The host names answered to by default; addresses in numbers always are."""


def app(
    qc: QueueCraft,
    *,
    token: str | None = None,
    read_token: str | None = None,
    cron_secret: str | None = None,
    allowed_hosts: Sequence[str] = LOCAL,
    max_body: int = MAX_BODY,
    metrics: PrometheusObserver | None = None,
    audit: str | os.PathLike[str] | None = None,
    mask: Sequence[str] = (),
    reports: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
) -> FastAPI:
    """An ASGI app for a QueueCraft: serve it by itself, or mount it in your own.

    Secrets that are not given come from `QUEUECRAFT_TOKEN`, `QUEUECRAFT_READ_TOKEN` and
    `CRON_SECRET`, in the environment or a `.env` file. Without any, everybody may ask whether all
    is well, and nobody may do anything else. Served by itself it opens `qc` and shuts it down;
    mounted, that is up to you, as servers run the lifespan of the outermost app alone.

    `audit` names a file for who did what, `mask` the fields of payloads and headers that nobody is
    to see, as `*.card_number`, `reports` a directory of pages to show.

    >>> from queuecraft import QueueCraft
    >>> from queuecraft.http import app
    >>> service = app(QueueCraft("local://"), token="f4b8c2d1e6a7930554b2")
    >>> [path for path in service.openapi()["paths"] if path.startswith("/delayed")]
    ['/delayed', '/delayed/stats', '/delayed/{id}']
    """
    try:
        from queuecraft.http.service import Service
    except ModuleNotFoundError as error:
        raise missing(error) from error
    from queuecraft.http.secrets import Secrets

    secrets = Secrets.found(token=token, read_token=read_token, cron_secret=cron_secret)
    return Service(
        qc,
        secrets,
        hosts=allowed_hosts,
        max_body=max_body,
        metrics=metrics,
        audit=audit,
        mask=mask,
        reports=reports,
        dashboard=dashboard,
    ).api


def missing(error: ModuleNotFoundError) -> ConfigError:
    """What to tell somebody whose Python lacks a package that serving needs."""
    return ConfigError(
        f"the HTTP service needs the package {error.name}: pip install 'queuecraft[http]'"
    )
